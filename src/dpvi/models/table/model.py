"""A generative model of a whole table: a mixture over mixed columns, and a regression for a response.

Equations 24 and 25 of Jälkö et al. (2023), for columns of any kind of a schema:

    p(x | θ, π)  = Σ_k π_k Π_j p_j(x_j | θ_j^(k))            π ~ Dirichlet(1)
    p(y | x, w)  = Poisson, logistic or linear regression of y on x

The component of a record is summed out: a record's term is one log-sum-exp over components, a factor under the record
plate. A site per column given the columns before it would have the same density and be slower to compile and to
differentiate; a discrete latent per record could not be fitted.

References
----------
Jälkö, Prediger, Honkela and Kaski (2023), DPVIm: Differentially private variational inference improved.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import factor, plate, sample
from numpyro.distributions import Distribution

from dpvi.declared import validation
from dpvi.models.table.components import column_priors, component_law
from dpvi.models.table.regression import Regression
from dpvi.table import Boolean, Column, Count, Date, Design, Numeric, Schema, SchemaError, observed_leaf
from dpvi.table.levels import Level

_WEIGHTS = "component_weights"
_PLATE = "records"
_MIXTURE = "mixture"
_OWN = {_PLATE, _MIXTURE}
_MISSINGNESS = ("ignore", "model")


@dataclass(frozen=True, eq=False)
class TableModel:
    """A NumPyro model of an encoded table: call it with the leaves of ``schema.encode(table)`` as keywords.

    Parameters
    ----------
    schema
        The table's schema.
    num_components
        K. Components that the data do not need get little weight.
    response
        A column to model by a regression on others instead of by the mixture.
    predictors
        The columns of that regression; all others by default.
    references
        ``{column: level}`` whose indicator is left out of the regression; the first level by default.
    missingness
        ``"ignore"``: values are missing at random, the factor of a missing value is dropped, and drawn records are
        complete. ``"model"``: whether a value is observed is a Bernoulli column of the mixture too, and drawn records
        have gaps like the table's.
    prior_scale
        Standard deviation of the regression's weights and intercept, on the scaled columns of its design.

    Notes
    -----
    The regression uses records whose response and predictors are all observed. That is right where a predictor's being
    missing does not depend on the response given the predictors.

    Drawn values beyond a declared bound move to the bound, as :meth:`Schema.encode` would move them.

    Examples
    --------
    >>> from dpvi.table import Boolean, Categorical
    >>> schema = Schema({"job": Categorical(("a", "b", "c")), "ill": Boolean()})
    >>> model = TableModel(schema, num_components=2, response="ill")
    >>> parameters = model.draw_parameters(jax.random.key(0))
    >>> {name: value.shape for name, value in parameters.items()}
    {'component_weights': (2,), 'job_probabilities': (2, 3), 'ill_weights': (2,), 'ill_intercept': ()}
    >>> records = model.draw_records(parameters, jax.random.key(1), 5)
    >>> schema.decode(records)["job"].shape
    (5,)
    """

    schema: Schema
    num_components: int = 16
    response: str | None = None
    predictors: tuple[str, ...] | None = None
    references: Mapping[str, Level] = field(default_factory=dict)
    missingness: str = "ignore"
    prior_scale: float = 1.0
    regression: Regression | None = field(init=False, default=None)
    parameter_names: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        validation.keep(self, num_components=validation.whole_number("num_components", self.num_components))
        if self.missingness not in _MISSINGNESS:
            raise ValueError(
                f"missingness must be one of {', '.join(map(repr, _MISSINGNESS))}, got {self.missingness!r}."
            )
        if self.response is not None:
            others = tuple(name for name in self.schema.columns if name != self.response)
            design = Design(self.schema, others if self.predictors is None else self.predictors, self.references)
            object.__setattr__(self, "regression", Regression(self.response, design, self.prior_scale))
        elif self.predictors is not None or self.references:
            raise ValueError("predictors and references belong to a regression: name its response too.")
        object.__setattr__(self, "parameter_names", tuple(self.priors()))
        taken = sorted((set(self.parameter_names) | _OWN) & self.schema.leaves.keys())
        if taken:
            names = ", ".join(map(repr, taken))
            raise SchemaError(f"Columns named {names} clash with names the model uses for itself; rename them.")

    @property
    def mixture_columns(self) -> dict[str, Column]:
        """The columns of the mixture, masks included where ``missingness="model"``."""
        columns: dict[str, Column] = {}
        for name, column in self.schema.columns.items():
            if column.missing and self.missingness == "model":
                columns[observed_leaf(name)] = Boolean()
            if name != self.response:
                columns[name] = column
        return columns

    @property
    def leaves(self) -> tuple[str, ...]:
        """The leaves of an encoded table that the model reads."""
        return tuple(self.schema.leaves)

    def blocks(self) -> tuple[TableModel, Regression]:
        """The mixture and the regression as models of their own: they share no parameter and can be fitted apart.

        The regression is log-concave in its weights: under a plan that measures, its noise-aware posterior is the score
        posterior. The mixture is multimodal and has a Hessian that is indefinite at most points, so for it there is
        the noise that its own iterates show, the stationary posterior. :func:`dpvi.plan_together` plans both runs under
        one budget, and :func:`dpvi.posterior.join` makes one posterior of them, for :func:`dpvi.synthesize`.
        """
        if self.regression is None or self.response is None:
            raise ValueError("Only a table model with a response has two blocks; this one is a mixture alone.")
        if self.schema[self.response].missing and self.missingness == "model":
            raise SchemaError(
                f"Whether {self.response!r} is observed is part of this model's mixture; fit it as a whole, or use "
                "missingness='ignore'."
            )
        others = {name: column for name, column in self.schema.columns.items() if name != self.response}
        schema = Schema(others, missing_markers=self.schema.missing_markers)
        return TableModel(schema, self.num_components, missingness=self.missingness), self.regression

    def priors(self) -> dict[str, Distribution]:
        """``{site: prior}`` of all parameters."""
        priors: dict[str, Distribution] = {_WEIGHTS: dist.Dirichlet(jnp.ones(self.num_components))}
        for name, column in self.mixture_columns.items():
            priors |= column_priors(name, column, self.num_components)
        return priors | (self.regression.priors() if self.regression else {})

    def __call__(self, **arrays: Any) -> None:
        """The NumPyro model of the leaves ``arrays``."""
        parameters: dict[str, Any] = {site: sample(site, prior) for site, prior in self.priors().items()}
        num_records = next(iter(arrays.values())).shape[0]
        with plate(_PLATE, num_records):
            log_joint = jnp.log(parameters[_WEIGHTS])  # of component and columns, (records, K)
            for name, column in self.mixture_columns.items():
                term = component_law(name, column, parameters).log_prob(arrays[name][:, None])
                if column.missing:
                    term = jnp.where(arrays[observed_leaf(name)][:, None], term, 0.0)
                log_joint = log_joint + term
            factor(_MIXTURE, jax.nn.logsumexp(log_joint, axis=-1))
            if self.regression is not None:
                self.regression.observe(parameters, arrays)

    def draw_parameters(self, key: jax.Array) -> dict[str, jax.Array]:
        """Parameters from their priors: for simulations, and as ``initial_location`` of a fit whose components part."""
        priors = self.priors()
        keys = jax.random.split(key, len(priors))
        with jax.numpy_dtype_promotion("standard"):
            draws = zip(priors.items(), keys, strict=True)
            return {site: jnp.asarray(prior.sample(each)) for (site, prior), each in draws}

    def draw_records(self, parameters: Mapping[str, Any], key: jax.Array, num_records: int) -> dict[str, jax.Array]:
        """Draw whole records: a component for each, its columns given the component, the response given the columns.

        Parameters
        ----------
        parameters
            ``{site: value}``, one posterior draw.
        key
            A PRNG key.
        num_records
            How many records to draw.

        Returns
        -------
        Leaves like those of ``schema.encode``, for ``schema.decode``.
        """
        lacking = sorted(set(self.parameter_names) - parameters.keys())
        if lacking:
            raise ValueError(
                f"parameters must hold every site of the model, {', '.join(map(repr, lacking))} is missing."
            )
        with jax.numpy_dtype_promotion("standard"):
            return self._draw({site: jnp.asarray(parameters[site]) for site in self.parameter_names}, key, num_records)

    @functools.partial(jax.jit, static_argnums=(0, 3))
    def _draw(self, parameters: Mapping[str, jax.Array], key: jax.Array, num_records: int) -> dict[str, jax.Array]:
        choose, key = jax.random.split(key)
        component = jax.random.categorical(choose, jnp.log(parameters[_WEIGHTS]), shape=(num_records,))
        arrays = {}
        for name, column in self.mixture_columns.items():
            key, draw = jax.random.split(key)
            arrays[name] = _within(column, component_law(name, column, parameters, component).sample(draw))
        if self.regression is not None:
            response = self.regression.response
            drawn = self.regression.law(parameters, arrays).sample(key)
            arrays[response] = _within(self.schema[response], drawn)
        for name, column in self.schema.columns.items():
            if column.missing:
                observed = arrays.setdefault(observed_leaf(name), jnp.ones(num_records, bool))
                arrays[name] = jnp.where(observed, arrays[name], jnp.zeros_like(arrays[name]))
        return {leaf: arrays[leaf] for leaf in self.schema.leaves}


def _within(column: Column, draw: Any) -> jax.Array:
    """The nearest value that the schema can express, so that the response depends on what the table shows."""
    if isinstance(column, Boolean):
        return draw.astype(bool)
    if isinstance(column, Count):
        return jnp.clip(draw, 0, column.upper).astype(jnp.int32)
    if isinstance(column, Numeric) and column.integer:
        return _snapped(draw, column.upper - column.lower)
    if isinstance(column, Date):
        return _snapped(draw, (column.upper - column.lower).days)
    return jnp.clip(draw, -1, 1) if isinstance(column, Numeric) else draw.astype(jnp.int32)


def _snapped(draw: jax.Array, num_steps: float) -> jax.Array:
    return jnp.round((jnp.clip(draw, -1, 1) + 1) / 2 * num_steps) / num_steps * 2 - 1
