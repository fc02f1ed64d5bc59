"""A model given as two functions: a log prior and the log-likelihood of one record."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints

from dpvi.models.base import Record
from dpvi.models.sites import Site, check_values, check_vector, dimension_of, join, layout

VECTOR = "z"


class FunctionModel:
    """A :class:`~dpvi.models.base.Model` made of plain functions; build it with :func:`from_functions`."""

    def __init__(
        self,
        log_prior: Callable[[Any], jax.Array],
        log_likelihood: Callable[[Any, Record], jax.Array],
        sites: tuple[Site, ...],
        *,
        flat: bool,
        constrain: Callable[[Any], dict[str, jax.Array]] | None = None,
        unconstrain: Callable[[dict[str, Any]], Any] | None = None,
    ):
        self.sites = sites
        self.flat = flat
        self._log_prior = log_prior
        self._log_likelihood = log_likelihood
        self._constrain = constrain
        self._unconstrain = unconstrain

    @property
    def dimension(self) -> int:
        """d, the number of unconstrained parameters."""
        return dimension_of(self.sites)

    def log_prior(self, z: jax.Array) -> jax.Array:
        """log p(z), a scalar."""
        return self._log_prior(self.parameters(z))

    def log_likelihood(self, z: jax.Array, record: Record) -> jax.Array:
        """log p(x_i | z) for one record, a scalar."""
        return self._log_likelihood(self.parameters(z), record)

    def constrain(self, z: jax.Array) -> dict[str, jax.Array]:
        """``{name: value}``, through the user's own ``constrain`` where there is one."""
        parameters = self.parameters(z)
        if self._constrain is not None:
            return dict(self._constrain(parameters))
        return {VECTOR: parameters} if self.flat else parameters

    def unconstrain(self, values: Mapping[str, Any]) -> jax.Array:
        """The inverse of :meth:`constrain`."""
        if self._constrain is not None:
            if self._unconstrain is None:
                raise ValueError("unconstrain needs the inverse of constrain; pass unconstrain= to from_functions.")
            parameters = self._unconstrain(dict(values))
            values = {VECTOR: parameters} if self.flat else parameters
        check_values(values, self.sites)
        return join([jnp.asarray(values[site.name], dtype=jnp.result_type(float)) for site in self.sites])

    def parameters(self, z: jax.Array) -> Any:
        """z as the user's functions expect it: the vector itself, or a dict of arrays."""
        check_vector(z, self.dimension)
        return z if self.flat else {site.name: site.of(z) for site in self.sites}


def from_functions(
    log_prior: Callable[[Any], jax.Array],
    log_likelihood: Callable[[Any, Record], jax.Array],
    parameters: int | Mapping[str, tuple[int, ...]],
    constrain: Callable[[Any], dict[str, jax.Array]] | None = None,
    unconstrain: Callable[[dict[str, Any]], Any] | None = None,
) -> FunctionModel:
    """Build a model from a log prior and the log-likelihood of one record.

    Parameters
    ----------
    log_prior
        ``log_prior(params)``, log p(z), a scalar; with log-determinants where ``constrain`` maps z elsewhere.
    log_likelihood
        ``log_likelihood(params, record)``, log p(x_i | z), a scalar; ``record`` is the data pytree without record axis.
    parameters
        The number of parameters, and ``params`` is a vector; or ``{name: shape}``, and ``params`` is a dict of arrays.
    constrain
        ``params`` to ``{name: value}`` for reporting; the identity if not given.
    unconstrain
        The inverse of ``constrain``.

    Examples
    --------
    >>> model = from_functions(
    ...     log_prior=lambda w: -0.5 * w @ w,
    ...     log_likelihood=lambda w, record: -jnp.logaddexp(0.0, -record[1] * (record[0] @ w)),
    ...     parameters=3,
    ... )
    >>> model.dimension
    3
    """
    _check_callable(log_prior=log_prior, log_likelihood=log_likelihood)
    flat = not isinstance(parameters, Mapping)
    shapes = {VECTOR: (_count(parameters),)} if flat else _shapes(parameters)
    support = constraints.real if constrain is None else None
    sites = layout([(name, shape, shape, support) for name, shape in shapes.items()])
    return FunctionModel(log_prior, log_likelihood, sites, flat=flat, constrain=constrain, unconstrain=unconstrain)


def _check_callable(**functions: Any) -> None:
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} must be a function, got {type(function).__name__}.")


def _shapes(parameters: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    if not parameters:
        raise ValueError("parameters must name at least one parameter, got an empty dict.")
    return {name: _shape(name, shape) for name, shape in parameters.items()}


def _count(value: Any) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if isinstance(value, bool) or count < 1:
        raise ValueError(f"parameters must be a positive whole number or a dict {{name: shape}}, got {value!r}.")
    return count


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(size) for size in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    except TypeError:
        sizes = (0,)
    if any(size < 1 for size in sizes):
        raise ValueError(f"The shape of parameter {name!r} must be a tuple of positive whole numbers, got {shape!r}.")
    return sizes
