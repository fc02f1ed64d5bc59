"""The regression part of a table model: one column given others, as in equation 25 of Jälkö et al.

==========  ==============================================  ==================================================
response    law                                             priors, τ = ``prior_scale``
==========  ==============================================  ==================================================
count       Poisson(exp(b + xᵀw))                           w, b ~ Normal(0, τ)
boolean     Bernoulli(σ(b + xᵀw))                           w, b ~ Normal(0, τ)
numeric     Normal(b + xᵀw, s) on the scale [−1, 1]         w, b ~ Normal(0, τ), s ~ LogNormal(−1, 1)
==========  ==============================================  ==================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers, plate, sample
from numpyro.distributions import Distribution

from dpvi.declared import columns, validation
from dpvi.table import Boolean, Column, Count, Design, Numeric, SchemaError, observed_leaf
from dpvi.table.levels import Leveled

_PLATE = "records"
_LARGEST_LOG_RATE = 20.0
_MOST_LEVELS = 64  # counts with a larger bound are counted in bins


@dataclass(frozen=True, eq=False)
class Regression:
    """A generalised linear model of column ``response`` with the design matrix of ``design``, scaled units.

    ``prior_scale`` is the standard deviation of weights and intercept. A regression is part of a
    :class:`~dpvi.models.table.TableModel` and a NumPyro model by itself: call it with ``leaves``.
    """

    response: str
    design: Design
    prior_scale: float = 1.0

    def __post_init__(self) -> None:
        validation.keep(self, prior_scale=validation.number("prior_scale", self.prior_scale))
        if not 0 < self.prior_scale < math.inf:
            raise ValueError(f"prior_scale must be a finite number above zero, got {self.prior_scale!r}.")
        column = self.design.schema[self.response]
        if not isinstance(column, (Count, Boolean, Numeric)):
            raise SchemaError(
                f"The response must be a count (Poisson), boolean (logistic) or numeric (linear) column, "
                f"{self.response!r} is {column.kind}."
            )
        if self.response in self.design.predictors or not self.design.predictors:
            raise SchemaError(f"The response {self.response!r} needs at least one predictor, and is none itself.")

    def __call__(self, **arrays: Any) -> None:
        """The NumPyro model of the response given the predictors, without the mixture."""
        parameters: dict[str, Any] = {site: sample(site, prior) for site, prior in self.priors().items()}
        with plate(_PLATE, arrays[self.response].shape[0]):
            self.observe(parameters, arrays)

    def observe(self, parameters: Mapping[str, jax.Array], arrays: Mapping[str, Any]) -> None:
        """The response's site, inside the record plate."""
        usable = self.usable(arrays)
        if usable is True:
            sample(self.response, self.law(parameters, arrays), obs=arrays[self.response])
            return
        with handlers.mask(mask=usable):
            sample(self.response, self.law(parameters, arrays), obs=arrays[self.response])

    @property
    def leaves(self) -> tuple[str, ...]:
        """The leaves of an encoded table that the regression reads."""
        names = (self.response, *self.design.predictors)
        masks = [observed_leaf(name) for name in names if self.design.schema[name].missing]
        return (*names, *masks)

    def covariates(self) -> list[columns.Column]:
        """What ``dpvi.plan(covariates=...)`` has to declare to measure this regression: the schema's levels and bounds.

        Sorted by name, the order in which a dict of leaves is read.
        """
        gaps = [name for name in (self.response, *self.design.predictors) if self.design.schema[name].missing]
        if gaps:
            raise SchemaError(
                f"Values of {', '.join(map(repr, gaps))} may be missing, and histograms of single columns do not say "
                "of which records; fit the table as a whole and use its stationary posterior."
            )
        return [counted_column(self.design.schema[name]) for name in sorted(self.design.predictors)]

    def priors(self) -> dict[str, Distribution]:
        """``{site: prior}``: weights, intercept and, for a numeric response, the residual scale."""
        num_weights = len(self.design.names)
        priors: dict[str, Distribution] = {
            f"{self.response}_weights": dist.Normal(0.0, self.prior_scale).expand([num_weights]).to_event(1),
            f"{self.response}_intercept": dist.Normal(0.0, self.prior_scale),
        }
        if isinstance(self.design.schema[self.response], Numeric):
            priors[f"{self.response}_scale"] = dist.LogNormal(-1.0, 1.0)
        return priors

    def law(self, parameters: Mapping[str, jax.Array], arrays: Mapping[str, Any]) -> Distribution:
        """The response given the encoded predictors, batch shape (records,)."""
        matrix = self.design.matrix(arrays, numpy=jnp)
        linear = parameters[f"{self.response}_intercept"] + matrix @ parameters[f"{self.response}_weights"]
        column = self.design.schema[self.response]
        if isinstance(column, Count):
            # e^20 is beyond what a 32-bit Poisson sampler can count, and far beyond any declared bound
            return dist.Poisson(jnp.exp(jnp.minimum(linear, _LARGEST_LOG_RATE)))
        if isinstance(column, Boolean):
            return dist.BernoulliLogits(linear)
        return dist.Normal(linear, parameters[f"{self.response}_scale"])

    def usable(self, arrays: Mapping[str, Any]) -> Any:
        """Where the response and all predictors are observed: True, or one flag per record."""
        flags: Any = True
        for name in (self.response, *self.design.predictors):
            if self.design.schema[name].missing:
                flags = flags & arrays[observed_leaf(name)]
        return flags


def counted_column(column: Column) -> columns.Column:
    """How a leaf is counted: codes and truth values one by one, numbers and dates on their encoded scale [−1, 1]."""
    if isinstance(column, Leveled):
        return columns.Levels(tuple(range(column.num_levels)))
    if isinstance(column, Boolean):
        return columns.Levels((0, 1))
    if isinstance(column, Count):
        small = column.upper < _MOST_LEVELS
        return columns.Levels(tuple(range(column.upper + 1))) if small else columns.Numeric(0, column.upper)
    return columns.Numeric(-1, 1)
