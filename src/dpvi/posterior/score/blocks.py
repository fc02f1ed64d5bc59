"""What measuring released: one mean noisy sum per block of steps at a frozen query point."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np

from dpvi.release.trace import Array, Trace


class Blocks(NamedTuple):
    """Blocks of frozen steps, float64. A block of no steps is padding and counts for nothing."""

    query: Array  # (J, d): q_j
    steps: Array  # (J,): n_j
    mean_noisy_sum: Array  # (J, d): the mean of s̃ over block j


def measured(trace: Trace) -> bool:
    """Whether any step of the run was taken at a frozen query point."""
    return bool(_frozen(trace).any())


def _frozen(trace: Trace) -> np.ndarray:
    return np.zeros(0, bool) if trace.segments is None else np.all(np.isfinite(trace.segments.query), axis=1)


def blocks_of(trace: Trace) -> Blocks:
    """The measuring blocks of a trace: the segments with a frozen query point."""
    segments, frozen = trace.segments, _frozen(trace)
    if segments is None or not frozen.any():
        raise ValueError(
            "The score posterior needs steps at frozen query points and this trace has none; fit with a plan whose "
            "schedule measures: dpvi.plan(..., num_records=...) or dpvi.plan(..., covariates=[...])."
        )
    if segments.mean_noisy_sum.shape[1] != segments.query.shape[1]:
        raise ValueError(
            f"The score posterior needs one score per step, but {segments.mean_noisy_sum.shape[1]} numbers were "
            f"released for {segments.query.shape[1]} parameters; fit with estimator=Aligned(num_draws=1)."
        )
    return Blocks(
        segments.query[frozen].astype(np.float64),
        (segments.stop - segments.start)[frozen].astype(np.float64),
        segments.mean_noisy_sum[frozen].astype(np.float64),
    )


def simulation_seed(released: np.ndarray) -> int:
    """A seed for simulating, from released numbers: the same for the same run, another for every other."""
    return zlib.crc32(np.ascontiguousarray(released, np.float64).tobytes())
