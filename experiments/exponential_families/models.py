"""The three models, on the unconstrained scales of appendix H.5, with simulators and exact posteriors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ParameterFreeTransform

from experiments.coverage.case import DataSet
from experiments.coverage.conjugate import GammaRate, LogisticDirichlet, inverse_softplus

RATE_PRIOR = GammaRate(8.0, 2.0)
SHARE_PRIOR = LogisticDirichlet(np.array([10.0, 10.0]))
CLASS_PRIOR = LogisticDirichlet(np.array([5.0, 5.0, 5.0]))


class SoftplusGamma(dist.Gamma):
    """A Gamma whose unconstrained scale is softplus⁻¹ instead of the logarithm."""

    support = constraints.softplus_positive


class LogRatios(ParameterFreeTransform):
    """A simplex to log(θ_i / θ_last), i before the last: the scale of multinomial logits with the last fixed at 0."""

    domain = constraints.simplex
    codomain = constraints.real_vector

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.log(x[..., :-1]) - jnp.log(x[..., -1:])

    def _inverse(self, y: jax.Array) -> jax.Array:
        return jax.nn.softmax(with_last(y), axis=-1)

    def log_abs_det_jacobian(self, x: jax.Array, y: jax.Array, intermediates: Any = None) -> jax.Array:
        return -jnp.sum(jax.nn.log_softmax(with_last(y), axis=-1), axis=-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)


def with_last(y: jax.Array) -> jax.Array:
    """Logits of all classes."""
    return jnp.concatenate([y, jnp.zeros_like(y[..., :1])], axis=-1)


def gamma_exponential(y: jax.Array) -> None:
    rate = numpyro.sample("rate", SoftplusGamma(RATE_PRIOR.shape, RATE_PRIOR.rate))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Exponential(rate), obs=y)


def beta_bernoulli(y: jax.Array) -> None:
    share = numpyro.sample("share", dist.Beta(*map(float, SHARE_PRIOR.concentration)))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(share), obs=y)


def dirichlet_categorical(y: jax.Array) -> None:
    shares = dist.Dirichlet(jnp.asarray(CLASS_PRIOR.concentration, jnp.result_type(float)))
    logits = numpyro.sample("log_ratios", dist.TransformedDistribution(shares, LogRatios()))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=with_last(logits)), obs=y)


def simulate_exponential(rng: np.random.Generator, num_records: int) -> DataSet:
    rate = rng.gamma(RATE_PRIOR.shape, 1 / RATE_PRIOR.rate)
    return DataSet(inverse_softplus(np.array([rate])), rng.exponential(1 / rate, num_records).astype(np.float32))


def simulate_bernoulli(rng: np.random.Generator, num_records: int) -> DataSet:
    share = rng.beta(*SHARE_PRIOR.concentration)
    truth = np.array([np.log(share) - np.log1p(-share)])
    return DataSet(truth, (rng.uniform(size=num_records) < share).astype(np.int32))


def simulate_categorical(rng: np.random.Generator, num_records: int) -> DataSet:
    shares = rng.dirichlet(CLASS_PRIOR.concentration)
    labels = rng.choice(len(shares), size=num_records, p=shares)
    return DataSet(np.log(shares[:-1] / shares[-1]), labels.astype(np.int32))


def exact_exponential(y: np.ndarray) -> GammaRate:
    return GammaRate(RATE_PRIOR.shape + len(y), RATE_PRIOR.rate + float(np.sum(y, dtype=np.float64)))


def exact_bernoulli(y: np.ndarray) -> LogisticDirichlet:
    return LogisticDirichlet(SHARE_PRIOR.concentration + np.array([np.sum(y == 1), np.sum(y == 0)]))


def exact_categorical(y: np.ndarray) -> LogisticDirichlet:
    counts = np.bincount(y, minlength=len(CLASS_PRIOR.concentration))
    return LogisticDirichlet(CLASS_PRIOR.concentration + counts)
