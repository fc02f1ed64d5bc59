"""Plans, models and traces small enough to fit in a fraction of a second."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpvi.declared.columns import Column, counted
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.models.functions import FunctionModel, from_functions
from dpvi.release.trace import BlockSums, Trace

DIMENSION = 2
RECORDS = np.random.default_rng(3).normal([0.5, -1.0], 1.0, (9, DIMENSION))


def many_records(num_records: int = 403) -> np.ndarray:
    """Records enough for batches on several devices."""
    return np.random.default_rng(5).normal([0.5, -1.0], 1.0, (num_records, DIMENSION))


def private_plan(
    num_steps: int, sampling_rate: float = 0.5, noise_multiplier: float = 1.0, clip_norm: float = 1.0
) -> Plan:
    """A plan whose ε is only a label, so that no accountant runs."""
    release = GaussianRelease("gradients", sampling_rate, num_steps, noise_multiplier, clip_norm)
    return Plan(epsilon=1.0, delta=1e-5, releases=(release,), accountant="no accountant, a label for tests")


def histogram_plan(
    columns: tuple[Column, ...],
    noise_multiplier: float = 10.0,
    num_records: int | None = None,
    num_steps: int = 100,
    **settings: Any,
) -> Plan:
    """A plan that pays for histograms of covariates, too; its ε is a label."""
    gradients = GaussianRelease("gradients", 0.1, num_steps, 1.0, 1.0)
    histograms = GaussianRelease("histograms", 1.0, 1, noise_multiplier, math.sqrt(counted(columns)))
    releases = (gradients, histograms)
    return Plan(100.0, 1e-5, releases, "a label", num_records=num_records, covariates=columns, **settings)


def exact_plan(num_steps: int, sampling_rate: float = 1.0, clip_norm: float = math.inf) -> Plan:
    """No noise, and no clipping unless asked for."""
    release = GaussianRelease("gradients", sampling_rate, num_steps, 0.0, clip_norm)
    return Plan(epsilon=math.inf, delta=1e-5, releases=(release,), accountant="none")


def location_model(dimension: int = DIMENSION) -> FunctionModel:
    """x_i ~ N(z, I), z ~ N(0, I): the score of a record is x_i − z."""
    return from_functions(
        log_prior=lambda z: -0.5 * jnp.sum(z**2),
        log_likelihood=lambda z, x: -0.5 * jnp.sum((x - z) ** 2),
        parameters=dimension,
    )


def logistic_data(num_records: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(11)
    x = random.normal(size=(num_records, 2))
    return x, (random.uniform(size=num_records) < 0.5).astype(np.int64)


def clipped(rows: np.ndarray, clip_norm: float) -> np.ndarray:
    """Each row shortened to ``clip_norm``, in float64."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))


def block_sums(iterates: np.ndarray, gradients: np.ndarray, block_length: int, counted: np.ndarray) -> BlockSums:
    """What a trace must hold, straight from all rows; ``counted`` marks the steps that moved."""
    num_steps = len(iterates)
    time = np.arange(num_steps, dtype=np.float64)
    phi, gradient = iterates.astype(np.float64), gradients.astype(np.float64)

    def by_block(values: np.ndarray) -> np.ndarray:
        values = values * counted.reshape(-1, *[1] * (values.ndim - 1))
        return np.stack([values[i : i + block_length].sum(axis=0) for i in range(0, num_steps, block_length)])

    return BlockSums(
        count=by_block(np.ones(num_steps)),
        time=by_block(time),
        time_squared=by_block(time**2),
        phi=by_block(phi),
        phi_squared=by_block(phi**2),
        time_phi=by_block(time[:, None] * phi),
        gradient=by_block(gradient),
        gradient_phi=by_block(gradient * phi),
        gradient_squared=by_block(gradient**2),
    )


def trace_of(iterates: np.ndarray, block_length: int = 1, counted: np.ndarray | None = None) -> Trace:
    """A trace with these iterates and nothing else of interest; the last iterate is the final one."""
    num_steps = len(iterates)
    counted = np.ones(num_steps, bool) if counted is None else counted
    return Trace(
        steps=np.arange(num_steps, dtype=np.int64),
        iterates=iterates,
        queries=np.zeros((num_steps, 1), iterates.dtype),
        noisy_sums=np.zeros((num_steps, 1), iterates.dtype),
        final=iterates[-1],
        thinning=1,
        block_length=block_length,
        blocks=block_sums(iterates, np.zeros_like(iterates), block_length, counted),
        segments=None,
    )


STUDY_SETS, STUDY_RECORDS, STUDY_STEPS, STUDY_GROUP = 5, 61, 12, 2


def study(directory: Any = None, **changes: Any) -> list[Any]:
    """Five small data sets in groups of two, the last of which is filled up; one call of ``fit_many``."""
    import dpvi

    stacked = np.random.default_rng(7).normal(0.5, 1.0, (STUDY_SETS, STUDY_RECORDS, DIMENSION))
    call: dict[str, Any] = {
        "model": location_model(),
        "data": stacked,
        "plan": private_plan(STUDY_STEPS),
        "seeds": [111, 112, 113, 114, 115],
        "group_size": STUDY_GROUP,
        "directory": directory,
        "progress": False,
    }
    return dpvi.fit_many(**{**call, **changes})
