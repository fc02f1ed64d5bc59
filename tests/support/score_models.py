"""Conjugate models with one parameter, and releases drawn straight from their law instead of from a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.models.numpyro import NumPyroModel
from dpvi.posterior.score import Blocks, ScoreModel, gauss_newton


def coin(y):
    share = numpyro.sample("share", dist.Beta(10.0, 10.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(share), obs=y)


def waiting(y):
    rate = numpyro.sample("rate", dist.Gamma(8.0, 2.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Exponential(rate), obs=y)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


class OneParameter(NamedTuple):
    """A model and what a data set of it looks like, in NumPy."""

    model: NumPyroModel
    draw_z: Callable[[np.random.Generator], float]
    draw_records: Callable[[np.random.Generator, float, int], np.ndarray]
    score: Callable[[np.ndarray, float], np.ndarray]  # (records, q)
    start: float


def _logit_of_beta(random):
    share = random.beta(10, 10)
    return np.log(share / (1 - share))


BERNOULLI = OneParameter(
    NumPyroModel(coin, jax.ShapeDtypeStruct((), jnp.dtype("int32"))),
    _logit_of_beta,
    lambda random, z, n: (random.uniform(size=n) < sigmoid(z)).astype(np.float64),
    lambda y, q: y - sigmoid(q),
    0.0,
)
EXPONENTIAL = OneParameter(
    NumPyroModel(waiting, jax.ShapeDtypeStruct((), jnp.dtype("float32"))),
    lambda random: np.log(random.gamma(8.0, 0.5)),
    lambda random, z, n: random.exponential(np.exp(-z), n),
    lambda y, q: 1 - np.exp(q) * y,
    np.log(4.0),
)


def score_plan(
    num_records: int,
    num_steps: int = 10_000,
    sampling_rate: float = 0.1,
    noise_multiplier: float = 307.5,
    clip_norm: float = 2.0,
) -> Plan:
    """A plan with a public number of records; its ε is a label, far above what it spends."""
    release = GaussianRelease("gradients", sampling_rate, num_steps, noise_multiplier, clip_norm)
    return Plan(100.0, 1e-5, (release,), accountant="no accountant, a label for tests", num_records=num_records)


def release(example: OneParameter, plan: Plan, records: np.ndarray, q: float, steps: int, random: Any) -> float:
    """The mean noisy sum of ``steps`` steps at q, drawn from its law."""
    clipped = np.clip(example.score(records, q), -plan.clip_norm, plan.clip_norm)
    kappa = plan.sampling_rate
    variance = kappa * (1 - kappa) * np.sum(clipped**2) + plan.noise_scale**2
    return kappa * clipped.sum() + np.sqrt(variance / steps) * random.normal()


def padded(blocks: Blocks, num_blocks: int) -> Blocks:
    """Filled up with blocks of no steps, so that one compiled program serves every stage."""
    missing = num_blocks - len(blocks.steps)
    return Blocks(
        np.concatenate([blocks.query, np.repeat(blocks.query[-1:], missing, axis=0)]),
        np.concatenate([blocks.steps, np.zeros(missing)]),
        np.concatenate([blocks.mean_noisy_sum, np.zeros((missing, blocks.mean_noisy_sum.shape[1]))]),
    )


def measured(
    scores: ScoreModel,
    example: OneParameter,
    records: np.ndarray,
    num_blocks: int,
    random: Any,
    seed: int | None = None,
) -> Blocks:
    """Blocks as the driver makes them: each at the Gauss-Newton mean of those before."""
    query, steps, blocks = example.start, scores.plan.num_steps // num_blocks, None
    for _ in range(num_blocks):
        mean = release(example, scores.plan, records, query, steps, random)
        new = Blocks(np.array([[query]]), np.array([float(steps)]), np.array([[mean]]))
        blocks = new if blocks is None else Blocks(*map(np.concatenate, zip(blocks, new, strict=True)))
        found = gauss_newton(scores, padded(blocks, num_blocks), np.array([query]), seed)
        query = float(found.mean[0])
    return blocks
