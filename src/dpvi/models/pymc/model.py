"""A PyMC model, split into a prior on z and one term per record.

For unconstrained z, with PyMC's own transforms and their log-determinants,

    log_prior(z)         = Σ_{free variables} log p(variable) + log|det|
    log_likelihood(z, x) = Σ_{observed variables} log p(variable), the model on a batch that holds x alone

Both are PyMC's elementwise log-probabilities, turned into JAX by PyTensor. The model object keeps none of the arrays
that the PyMC model holds for its records: these are replaced by placeholders when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.models.base import ModelError, Record
from dpvi.models.numpyro.discovery import batched
from dpvi.models.pymc.jaxified import import_linker
from dpvi.models.pymc.reading import Read, read
from dpvi.models.sites import Site, check_values, check_vector, dimension_of, join


def from_pymc(model: Any, record_dim: str) -> PyMCModel:
    """A PyMC model for :func:`dpvi.fit`.

    The records are the arrays that the model holds in ``pm.Data`` with ``record_dim`` as their first dimension, and the
    observed arrays. They are arguments from here on: pass ``fit`` a dict of them, by the names of their ``pm.Data`` (or
    of the observed variable, where its array was given as it is), or a table with columns of these names. What the
    PyMC model holds in their place when it is read does not matter, as long as the other axes are right.

    Parameters
    ----------
    model
        A ``pm.Model`` of PyMC 5 (Python 3.11) or 6 (Python 3.12 and later), written as for ``pm.sample``.
    record_dim
        The name of the records' dimension, ``pm.Data("x", x, dims="person")``.

    Raises
    ------
    ModelError
        With one sentence for everything that has no private fit: latents of a record, potentials, minibatches, discrete
        latents, one density for all records (time series, Gaussian processes), arrays of records outside ``pm.Data``.

    Examples
    --------
    >>> import pymc as pm  # doctest: +SKIP
    >>> with pm.Model() as regression:  # doctest: +SKIP
    ...     x = pm.Data("x", np.zeros((10, 2)), dims=("person", "column"))
    ...     w = pm.Normal("w", 0.0, 1.0, shape=2)
    ...     pm.Bernoulli("y", logit_p=x @ w, observed=np.zeros(10, int), dims="person")
    >>> dpvi.fit(dpvi.from_pymc(regression, record_dim="person"), {"x": x, "y": y}, plan)  # doctest: +SKIP
    """
    try:
        import pymc
    except ImportError:
        raise ImportError("from_pymc needs PyMC, which is optional: install dpvi[pymc] or pymc.") from None
    if not isinstance(model, pymc.Model):
        raise TypeError(f"model must be a pm.Model, got {type(model).__name__}.")
    import_linker()
    found = PyMCModel(read(model, record_dim))
    found.check_axes()
    return found


class PyMCModel:
    """A PyMC model as a :class:`~dpvi.models.base.GenerativeModel`; made by :func:`from_pymc`.

    Attributes
    ----------
    structure
        The structure of one record: a dict by the names of ``pm.Data``.
    record_plate
        The name of the records' dimension.
    sites
        The free variables, in the model's order.
    responses
        ``{index of a leaf: observed variable}``.
    constants
        Arrays that the model holds beside its records, by name. They are public, and the guarantee lists them.
    """

    alone = True

    def __init__(self, found: Read, structure: Mapping[str, Any] | None = None) -> None:
        import_linker()
        self._read = found
        self.structure: dict[str, Any] = dict(found.structure if structure is None else structure)
        self.constants = found.constants

    def __reduce__(self) -> tuple[Any, ...]:
        return PyMCModel, (self._read, self.structure)

    def __deepcopy__(self, memo: dict[int, Any]) -> PyMCModel:
        return self  # nothing in it changes

    @property
    def record_plate(self) -> str:
        return self._read.record_dim

    @property
    def sites(self) -> tuple[Site, ...]:
        return self._read.sites

    @property
    def responses(self) -> Mapping[int, str]:
        return self._read.responses

    @property
    def columns(self) -> list[str]:
        """What a table must have columns for."""
        return list(self.structure)

    @property
    def dimension(self) -> int:
        """d, the number of unconstrained parameters."""
        return dimension_of(self.sites)

    def with_structure(self, structure: Any) -> PyMCModel:
        """The same model for records of this structure, which may have other dtypes; refused where it does not fit."""
        expected = self.structure
        if not isinstance(structure, dict) or set(structure) != set(expected):
            names = ", ".join(f"{name!r}: ..." for name in expected)
            raise ModelError(
                f"The data must be {{{names}}}, one entry for each array of records in the PyMC model; a table must "
                "have columns of these names."
            )
        for name, leaf in structure.items():
            wanted = expected[name]
            if tuple(leaf.shape) != tuple(wanted.shape):
                raise ModelError(f"A record of {name!r} has shape {wanted.shape} in the model, and {leaf.shape} here.")
            if np.dtype(wanted.dtype).kind != "f" and np.dtype(leaf.dtype).kind == "f":
                raise ModelError(f"{name!r} holds whole numbers in the model, and fractions here; convert it.")
        return PyMCModel(self._read, {name: structure[name] for name in expected})

    def placeholder(self, num_records: int = 1) -> Any:
        """Records of zeros, for what reads no record."""
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), batched(self.structure, num_records))

    def log_prior(self, z: jax.Array) -> jax.Array:
        """log p(z) on the unconstrained scale, a scalar."""
        return sum((jnp.sum(term) for term in self.outside(z, self.placeholder())[1].values()), jnp.zeros(()))

    def log_likelihood(self, z: jax.Array, record: Record) -> jax.Array:
        """log p(x_i | z) for one record, a scalar."""
        return jnp.reshape(self.record_terms(z, jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), record)), ())

    def constrain(self, z: jax.Array) -> dict[str, jax.Array]:
        """Map one unconstrained vector to ``{variable: value}``, free variables only."""
        return self.outside(z, self.placeholder())[0]

    def unconstrain(self, values: Mapping[str, Any]) -> jax.Array:
        """The inverse of :meth:`constrain`."""
        check_values(values, self.sites)
        given = [jnp.asarray(values[site.name], jnp.result_type(float)) for site in self.sites]
        return join(self._run("inverse", given, self.placeholder()))

    def outside(self, z: jax.Array, batch: Any) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Values of the free variables and parts of the log prior, as the model computes them on ``batch``."""
        found = self._run("outside", self._values(z), batch)
        names = [site.name for site in self.sites]
        values, terms = found[: len(names)], found[len(names) :]
        return dict(zip(names, values, strict=True)), {
            name: jnp.sum(term) for name, term in zip(names, terms, strict=True)
        }

    def record_terms(self, z: jax.Array, batch: Any) -> jax.Array:
        """The log-likelihood of each record as the model computes it on a whole batch, (n,)."""
        first, *others = self._terms(z, batch)
        return sum(others, first)

    def supported(self, z: jax.Array, batch: Any) -> dict[str, jax.Array]:
        """By observed variable, whether PyMC gives what it observes any probability."""
        terms = self._terms(z, batch)
        names = list(self._read.observed)
        return {name: ~jnp.any(jnp.isneginf(term)) for name, term in zip(names, terms, strict=True)}

    def own_findings(self) -> list[str]:
        """Nothing: what only PyMC shows is refused when the model is read."""
        return []

    def drawing_findings(self) -> list[str]:
        """Why observed variables do not draw the data back, one sentence each."""
        if len(self.responses) != len(self._read.observed):
            return ["Several observed variables observe one array, so one draw cannot be all of them."]
        try:
            jax.eval_shape(
                lambda z, key: self.draw_responses(z, self.placeholder(), key),
                jax.ShapeDtypeStruct((self.dimension,), jnp.result_type(float)),
                jax.eval_shape(lambda: jax.random.key(0)),
            )
        except Exception as error:  # whatever PyTensor says of a distribution that JAX cannot draw from
            return [
                f"Some observed variable has a density but no sampler in JAX ({type(error).__name__}), so its records "
                "cannot be simulated; write it as another distribution, or as a pm.Mixture of others."
            ]
        return []

    def draw_prior(self, key: jax.Array) -> jax.Array:
        """A draw of z from the prior; ``NotImplementedError`` where it has no sampler."""
        return join(self._run("prior draws", [], self.placeholder(), key))

    def draw_responses(self, z: jax.Array, batch: Any, key: jax.Array) -> dict[int, jax.Array]:
        """A draw of each observed variable given all other leaves of ``batch``."""
        drawn = self._run("responses", self._values(z), batch, key)
        by_name = dict(zip(self._read.observed, drawn, strict=True))
        return {index: by_name[name] for index, name in self.responses.items()}

    def values_of(self, site: str) -> np.ndarray | None:
        """All values that an observed scalar can take, where they are few and the same for all parameters."""
        return self._read.finite.get(site)

    def deterministic_sites(self) -> Callable[[jax.Array], dict[str, jax.Array]] | None:
        """``z -> {name: value}`` for ``pm.Deterministic`` of parameters alone."""
        names = self._read.deterministics
        if not names:
            return None

        def values(z: jax.Array) -> dict[str, jax.Array]:
            return dict(zip(names, self._run("deterministics", self._values(z), self.placeholder()), strict=True))

        return jax.jit(values, inline=True)

    def check_axes(self) -> None:
        """Refuse observed variables that have no term for each record."""
        for size in (2, 3):
            try:
                terms = jax.eval_shape(
                    lambda z, batch: self._run("terms", self._values(z), batch),
                    jax.ShapeDtypeStruct((self.dimension,), jnp.result_type(float)),
                    batched(self.structure, size),
                )
            except Exception as error:  # PyTensor's own text may hold numbers of the graph
                raise ModelError(_untranslated(error, self.record_plate)) from None
            short = [
                name
                for name, term in zip(self._read.observed, terms, strict=True)
                if not term.shape or term.shape[0] != size
            ]
            if short:
                raise ModelError(
                    [
                        f"Observed variable {name!r} does not have one log-probability for each {self.record_plate!r}: "
                        "a record needs a term of its own. Give its array the records' dimension first, and write "
                        "densities over all records at once (time series, Gaussian processes) in another way."
                        for name in short
                    ]
                )

    def _terms(self, z: jax.Array, batch: Any) -> list[jax.Array]:
        """The terms of each observed variable, (n,) each."""
        num_records = jax.tree.leaves(batch)[0].shape[0]
        return [
            jnp.sum(jnp.reshape(term, (num_records, -1)), axis=1) for term in self._run("terms", self._values(z), batch)
        ]

    def _values(self, z: jax.Array) -> list[jax.Array]:
        check_vector(z, self.dimension)
        return [site.of(z) for site in self.sites]

    def _run(self, name: str, values: list[jax.Array], batch: Any, key: Any = None) -> list[jax.Array]:
        leaves = [batch[leaf] for leaf in self.structure]
        return self._read.program(name, values, leaves, leaves[0].shape[0], key)


def _untranslated(error: Exception, record_dim: str) -> str:
    kind = type(error).__name__
    if isinstance(error, NotImplementedError):
        return (
            "PyTensor cannot turn this model into JAX: some distribution or operation of it has no JAX version. "
            "pm.sample(nuts_sampler='numpyro') fails in the same way; write that part by other operations."
        )
    return (
        f"The model does not run on another number of records than it holds ({kind}): every array of records must be "
        f"pm.Data(..., dims={record_dim!r}) or observed, and sizes must come from the arrays, x.shape[0], and not from "
        "Python numbers such as len(y)."
    )
