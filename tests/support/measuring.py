"""A small regression and what a measuring run asks of it, in plain NumPy."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from dpvi.declared.columns import Column, Numeric, counted
from dpvi.declared.measuring import Measuring
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.models.numpyro import NumPyroModel
from dpvi.release.requests import NORM_EDGES, CovariateMoments, Curvature, ScoreNorms, Scores

DIMENSION = 3
COLUMNS: tuple[Column, ...] = (Numeric(-3, 3, 8),) * DIMENSION
QUERY = np.array([0.3, -0.2, 0.1])
METRIC = np.array([[1.0, 0.3, 0.0], [0.0, 2.0, -0.4], [0.1, 0.0, 0.5]])
UNITS = 100  # of a plan, all kinds together
UNIT = 2.0**-29  # of sums of vectors of norm 1


def regression(x, y):
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([DIMENSION]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ slopes), obs=y)


def regression_model() -> NumPyroModel:
    leaves = jax.ShapeDtypeStruct((DIMENSION,), jnp.dtype("float32")), jax.ShapeDtypeStruct((), jnp.dtype("int32"))
    return NumPyroModel(regression, leaves)


def regression_data(num_records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(num_records, DIMENSION)) * 10.0 ** random.uniform(-1, 1, (num_records, 1))
    return x.astype(np.float32), (random.uniform(size=num_records) < 0.4).astype(np.int32)


def measuring_plan(noise_multiplier: float = 1.0, columns: Any = COLUMNS, **settings: Any) -> Plan:
    """A plan whose ε is a label, with one noise multiplier for a unit and for histograms."""
    measuring = Measuring(units=UNITS)
    releases = [GaussianRelease("gradients", 1.0, UNITS, noise_multiplier, 1.0)]
    if columns is not None:
        releases.append(GaussianRelease("histograms", 1.0, 1, noise_multiplier, math.sqrt(counted(columns))))
    return Plan(1.0, 1e-5, tuple(releases), "a label", covariates=columns, measuring=measuring, **settings)


def requests(units: int = 1) -> list[Any]:
    """One of every kind."""
    at_a_point = [kind(QUERY, METRIC, units) for kind in (Curvature, ScoreNorms, Scores)]
    return [CovariateMoments(METRIC / 4, units), *at_a_point]


def expected(request: Any, data: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The answer without noise."""
    x, y = data[0].astype(np.float64), data[1]
    if isinstance(request, CovariateMoments):
        rows = x @ request.metric.T
        vectors = _triangles(rows)
        return (vectors * _shortened(vectors)).sum(axis=0)
    mean = 1 / (1 + np.exp(-x @ request.query))
    if isinstance(request, Curvature):
        vectors = (mean * (1 - mean))[:, None] * _triangles(x @ request.metric.T)
        return (vectors * _shortened(vectors)).sum(axis=0)
    scores = x * (y - mean)[:, None]
    vectors = scores @ request.metric.T
    if isinstance(request, Scores):
        return (vectors * _shortened(vectors)).sum(axis=0)
    bins = np.searchsorted(NORM_EDGES, np.linalg.norm(vectors, axis=1), side="right")
    return np.bincount(bins, minlength=len(NORM_EDGES) + 1).astype(np.float64)


def asking(scores: Any, histograms: Any):
    """A strategy: one answer of every kind, then scores at a point that follows from them."""
    yield CovariateMoments(METRIC / 4, 14)
    yield ScoreNorms(QUERY, METRIC, 4)
    yield Curvature(QUERY, METRIC, 12)
    released = yield Scores(QUERY, METRIC, 32)
    yield Scores(QUERY + 1e-3 * released, METRIC, 16)


def _triangles(rows: np.ndarray) -> np.ndarray:
    first, second = np.triu_indices(rows.shape[1])
    return np.where(first == second, 1, math.sqrt(2)) * rows[:, first] * rows[:, second]


def _shortened(vectors: np.ndarray) -> np.ndarray:
    return np.minimum(1, 1 / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300))
