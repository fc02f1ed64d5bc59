"""NumPyro regressions in scaled coordinates: features, and a linear model's response, lie in [−1, 1].

Classes instead of functions, because their instances can be pickled, and equal ones share their compiled programs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


@dataclass(frozen=True)
class Regression:
    """η = b + x·w with w ~ N(0, prior_scale²) and b ~ N(intercept_mean, intercept_scale²)."""

    prior_scale: float
    fit_intercept: bool = True
    intercept_mean: float = 0.0
    intercept_scale: float = 5.0

    def predictor(self, x: Any) -> Any:
        """Draw the coefficients, and return η of every row."""
        prior = dist.Normal(0.0, self.prior_scale).expand([x.shape[1]]).to_event(1)
        predictor = x @ numpyro.sample("coef", prior)
        if self.fit_intercept:
            predictor += numpyro.sample("intercept", dist.Normal(self.intercept_mean, self.intercept_scale))
        return predictor


@dataclass(frozen=True)
class Logistic(Regression):
    """y ~ Bernoulli(σ(η))."""

    def __call__(self, x: Any, y: Any = None) -> None:
        predictor = self.predictor(x)
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=predictor), obs=y)


@dataclass(frozen=True)
class Linear(Regression):
    """y ~ N(η, exp(2 log_sigma)), y in units of half its declared range: its scale is at most about 1."""

    def __call__(self, x: Any, y: Any = None) -> None:
        predictor = self.predictor(x)
        log_sigma = numpyro.sample("log_sigma", dist.Normal(-1.5, 1.0))
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("y", dist.Normal(predictor, jnp.exp(log_sigma)), obs=y)


@dataclass(frozen=True)
class Poisson(Regression):
    """y ~ Poisson(exp(η))."""

    def __call__(self, x: Any, y: Any = None) -> None:
        predictor = self.predictor(x)
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("y", dist.Poisson(jnp.exp(predictor)), obs=y)


def poisson_for(largest: float, prior_scale: float, fit_intercept: bool) -> Poisson:
    """Rates from about 1 to the largest declared count within one standard deviation of the intercept's prior."""
    middle = 0.5 * math.log(max(largest, 1.0))
    return Poisson(prior_scale, fit_intercept, intercept_mean=middle, intercept_scale=middle + 1.0)
