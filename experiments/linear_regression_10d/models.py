"""y = wᵀ(x, 1) + N(0, σ²) with the normal-inverse-gamma prior N-Γ⁻¹(0, ¼, 20, ½); z = (softplus⁻¹(σ²), w)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from experiments.coverage.case import DataSet
from experiments.coverage.conjugate import NormalInverseGamma, inverse_softplus

NUM_COVARIATES = 10
NUM_WEIGHTS = NUM_COVARIATES + 1  # the last is the intercept
PRIOR = NormalInverseGamma(np.zeros(NUM_WEIGHTS), 0.25 * np.eye(NUM_WEIGHTS), shape=20.0, scale=0.5)
_WEIGHT_SCALE = 2.0  # of weights, in units of σ: one over the root of the prior's precision


class SoftplusInverseGamma(dist.InverseGamma):
    """An inverse Gamma whose unconstrained scale is softplus⁻¹ instead of the logarithm."""

    support = constraints.softplus_positive


def linear_regression(x: jax.Array, y: jax.Array | None = None) -> None:
    variance = numpyro.sample("variance", SoftplusInverseGamma(PRIOR.shape, PRIOR.scale))
    noise = jnp.sqrt(variance)
    weights = numpyro.sample("w", dist.Normal(0.0, _WEIGHT_SCALE * noise).expand([NUM_WEIGHTS]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weights[:-1] + weights[-1], noise), obs=y)


def draw_covariates(key: jax.Array, num_records: int) -> jax.Array:
    """The law of the covariates, which the paper declares."""
    return jax.random.normal(key, (num_records, NUM_COVARIATES))


def simulate_regression(rng: np.random.Generator, num_records: int) -> DataSet:
    variance = PRIOR.scale / rng.gamma(PRIOR.shape)
    weights = _WEIGHT_SCALE * np.sqrt(variance) * rng.normal(size=NUM_WEIGHTS)
    x = rng.normal(size=(num_records, NUM_COVARIATES))
    y = x @ weights[:-1] + weights[-1] + np.sqrt(variance) * rng.normal(size=num_records)
    truth = np.concatenate([inverse_softplus(np.array([variance])), weights])
    return DataSet(truth, (x.astype(np.float32), y.astype(np.float32)))


def exact_regression(records: Any) -> NormalInverseGamma:
    x, y = (np.asarray(part, np.float64) for part in records)
    return PRIOR.updated(np.column_stack([x, np.ones(len(y))]), y)
