"""The regression part of a table model: one column given others, as in equation 25 of Jälkö et al.

==========  ==============================================  ==================================================
response    law                                             priors
==========  ==============================================  ==================================================
count       Poisson(exp(b + xᵀw))                           w, b ~ Normal(0, 1)
boolean     Bernoulli(σ(b + xᵀw))                           w, b ~ Normal(0, 1)
numeric     Normal(b + xᵀw, s) on the scale [−1, 1]         w, b ~ Normal(0, 1), s ~ LogNormal(−1, 1)
==========  ==============================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution

from dpvi.data.schema import Boolean, Count, Design, Numeric, SchemaError, observed_leaf

_LARGEST_LOG_RATE = 20.0


@dataclass(frozen=True, eq=False)
class Regression:
    """A generalised linear model of column ``response`` with the design matrix of ``design``, scaled units."""

    response: str
    design: Design

    def __post_init__(self) -> None:
        column = self.design.schema[self.response]
        if not isinstance(column, (Count, Boolean, Numeric)):
            raise SchemaError(
                f"The response must be a count (Poisson), boolean (logistic) or numeric (linear) column, "
                f"{self.response!r} is {column.kind}."
            )
        if self.response in self.design.predictors or not self.design.predictors:
            raise SchemaError(f"The response {self.response!r} needs at least one predictor, and is none itself.")

    def priors(self) -> dict[str, Distribution]:
        """``{site: prior}``: weights, intercept and, for a numeric response, the residual scale."""
        num_weights = len(self.design.names)
        priors: dict[str, Distribution] = {
            f"{self.response}_weights": dist.Normal(0.0, 1.0).expand([num_weights]).to_event(1),
            f"{self.response}_intercept": dist.Normal(0.0, 1.0),
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
