"""The three regressions of the study, as anybody would write them.

Columns of x are scaled to about [−1, 1] or [0, 1] by declared bounds, so that a slope a priori N(0, 2²) says little.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

PRIOR_SCALE = 2.0


def linear(x: Any, y: Any = None) -> None:
    """Normal residuals with an unknown scale; z = (w, log σ)."""
    w = _weights(x)
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, sigma), obs=y)


def logistic(x: Any, y: Any = None) -> None:
    """Yes or no; z = w."""
    w = _weights(x)
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def poisson(x: Any, y: Any = None) -> None:
    """Counts with a log-linear rate; z = w."""
    w = _weights(x)
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ w)), obs=y)


def _weights(x: Any) -> Any:
    return numpyro.sample("w", dist.Normal(0.0, PRIOR_SCALE).expand([x.shape[1]]).to_event(1))
