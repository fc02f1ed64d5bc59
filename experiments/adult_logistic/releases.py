"""What single records release at a point of the variational space: norms, their quantile, and clip norms from it.

For understanding and for simulated records. On real records these norms carry no noise and protect nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpvi
from dpvi.gradients import Estimator
from dpvi.gradients.base import record_free_gradient
from experiments.adult_logistic.optimum import Optimum
from experiments.adult_logistic.problem import Problem, logistic_regression, simulated_problem
from experiments.adult_logistic.settings import VARIANTS

QUANTILE = 0.975
_BATCH = 2048
_FAMILY = dpvi.MeanField()


def variational_parameters(point: Optimum) -> jax.Array:
    """ξ = (m, s) with softplus(s) = σ."""
    scale = np.asarray(point.scale, np.float64)
    s = scale + np.log(-np.expm1(-scale))
    return jnp.asarray(np.concatenate([point.location, s]), jnp.zeros(()).dtype)


def release_function(estimator: Estimator, problem: Problem, point: Optimum) -> Callable[[np.ndarray], np.ndarray]:
    """A function from the draw η of one step, (d,), to what every record releases before clipping, (n, r)."""
    model = dpvi.check(logistic_regression, problem.records)
    xi = variational_parameters(point)

    @jax.jit
    def of_batch(eta: jax.Array, batch: Any) -> jax.Array:
        queries = jax.vmap(_FAMILY.transform, (None, 0))(xi, eta)
        return jax.vmap(partial(estimator.release, model, _FAMILY, xi, eta, queries))(batch)

    def of_all(eta: np.ndarray) -> np.ndarray:
        draws = jnp.asarray(eta, xi.dtype)[None]
        starts = range(0, len(problem.labels), _BATCH)
        batches = (tuple(part[i : i + _BATCH] for part in problem.records) for i in starts)
        return np.concatenate([np.asarray(of_batch(draws, _padded(batch)))[: len(batch[1])] for batch in batches])

    return of_all


def published_shifts(estimator: Estimator, problem: Problem, point: Optimum, draws: np.ndarray) -> np.ndarray:
    """What the published program adds to every record's release before the clip: 1/N of prior and entropy.

    ``draws`` are those of some steps, (k, d); returns (k, r).
    """
    model = dpvi.check(logistic_regression, problem.records)
    xi = variational_parameters(point)

    def of_step(eta: jax.Array) -> jax.Array:
        return record_free_gradient(model, _FAMILY, xi, eta[None])

    full = np.asarray(jax.jit(jax.vmap(of_step))(jnp.asarray(draws, xi.dtype)), np.float64)
    scaled = full * _weights(estimator, xi) / len(problem.labels)
    # aligned variants clip the locations' part alone and add the entropy afterwards
    return scaled[:, : estimator.release_size(_FAMILY, draws.shape[1])]


def rule_clip_norm(
    estimator: Estimator, problem: Problem, seed: int = 0, num_draws: int = 8, point: Optimum | None = None
) -> float:
    """The 97.5 % quantile of release norms at ``point``, over records and draws of η; by default at the optimum."""
    released = release_function(estimator, problem, problem.optimum if point is None else point)
    draws = np.random.default_rng(seed).normal(size=(num_draws, problem.features.shape[1]))
    norms = [np.linalg.norm(released(eta), axis=1) for eta in draws]
    return float(np.quantile(norms, QUANTILE))


def simulated_clip_norms(num_records: int, num_tables: int = 3, seed: int = 0) -> dict[str, float]:
    """Table F.1's rule on records of the public law: the mean over tables, whose weights come from the prior."""
    tables = [simulated_problem(np.random.default_rng([seed, k]), num_records) for k in range(num_tables)]
    return {
        name: float(np.mean([rule_clip_norm(estimator, table) for table in tables]))
        for name, estimator in VARIANTS.items()
    }


def norms_at_the_start(num_records: int, initial_scale: float, seed: int = 0) -> dict[str, float]:
    """The same quantile where runs start, on one table of the public law: locations 0.1 N(0, 1), one scale for all."""
    table = simulated_problem(np.random.default_rng([seed, 0]), num_records)
    dimension = table.features.shape[1]
    location = 0.1 * np.random.default_rng(seed).normal(size=dimension)
    start = Optimum(location, np.full(dimension, initial_scale))
    return {name: rule_clip_norm(estimator, table, point=start) for name, estimator in VARIANTS.items()}


def _padded(batch: tuple[Any, ...]) -> tuple[Any, ...]:
    """Repeat the first row up to the batch size, so that one program serves all batches."""
    missing = _BATCH - len(batch[-1])
    return tuple(np.concatenate([part, np.repeat(part[:1], missing, axis=0)]) for part in batch)


def _weights(estimator: Estimator, xi: jax.Array) -> np.ndarray:
    """By what an estimator multiplies the gradient of ξ before the clip."""
    derivatives = _FAMILY.scale_derivatives(xi)
    if isinstance(estimator, (dpvi.Natural, dpvi.AlignedNatural)):
        return np.asarray(_FAMILY.inverse_fisher(xi), np.float64)
    if isinstance(estimator, dpvi.Preconditioned):
        return np.asarray(jnp.concatenate([jnp.ones_like(derivatives), 1 / derivatives]), np.float64)
    return np.ones(xi.shape[0])
