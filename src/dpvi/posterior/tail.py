"""The converged part of a run: per parameter the longest tail without a trend (DPVIm, section 3.2).

A tail is a run of whole blocks up to the last step. A line is fitted to the iterates of the tail by least squares,
with time running over [0, 1]; its slope is the drift over the tail in the parameter's own units. The longest tail
whose drift is below a threshold in absolute value counts as converged. Everything comes from block sums, so thinning
of rows changes nothing, and every step takes part, or, of networks, one in several.

A tail that passes says which iterates may be averaged, and not that the run has arrived: under a falling learning rate
iterates stand still anywhere. :mod:`dpvi.posterior.settled` looks for that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvi.declared.validation import positive
from dpvi.release.trace import BlockSums, Trace


class Tail(NamedTuple):
    """Mean and variance of each parameter over its own converged tail."""

    mean: np.ndarray  # (p,)
    variance: np.ndarray  # (p,), of the iterates, not of their mean
    fraction: np.ndarray  # (p,), share of the run's moving steps in the tail
    converged: np.ndarray  # (p,), False where no tail passed and the shortest was taken


def converged_tail(
    trace: Trace, slope_threshold: float = 0.05, num_candidates: int = 20, relative: bool = False
) -> Tail:
    """The longest tail of each parameter whose drift is below ``slope_threshold``.

    Parameters
    ----------
    trace
        A run's trace.
    slope_threshold
        Largest drift over a tail, in unconstrained parameter units; the paper uses 0.05. With ``relative``, in standard
        deviations of the parameter over the tail: a line without noise has √12.
    num_candidates
        How many starting points are tried, evenly spread over the run; the last leaves 1/num_candidates of it, or one
        block where there are fewer blocks than that.
    """
    positive("slope_threshold", slope_threshold)
    num_blocks = len(trace.blocks.count)
    starts = np.unique(np.linspace(0, num_blocks, num_candidates, endpoint=False).astype(int))
    starts = starts[trace.blocks.count[::-1].cumsum()[::-1][starts] > 0]
    if len(starts) == 0:
        raise ValueError(
            "The trace holds no step at which the variational parameters moved, so there is nothing to average."
        )
    tails = [_tail_statistics(trace.blocks, start) for start in starts]
    units = [np.sqrt(variance) if relative else 1.0 for _, variance, _, _ in tails]
    passed = np.array([np.abs(tail[2]) <= slope_threshold * unit for tail, unit in zip(tails, units, strict=True)])
    converged = np.asarray(passed.any(axis=0))
    chosen = np.where(converged, passed.argmax(axis=0), len(starts) - 1)
    columns = np.arange(passed.shape[1])
    mean, variance = (np.array([tail[i] for tail in tails])[chosen, columns] for i in (0, 1))
    counts = np.array([tail[3] for tail in tails])
    return Tail(mean, variance, counts[chosen] / counts[0], converged)


def _tail_statistics(blocks: BlockSums, start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """(mean, variance, drift, steps) of every parameter over the blocks from ``start`` on."""
    count = blocks.count[start:].sum()
    mean = blocks.phi[start:].sum(axis=0) / count
    # the variance about the mean, summed block by block: Σφ² − n φ̄² of the whole tail would cancel
    safe = np.maximum(blocks.count[start:, None], 1)
    within = blocks.phi_squared[start:] - blocks.phi[start:] ** 2 / safe
    between = safe * (blocks.phi[start:] / safe - mean) ** 2 * (blocks.count[start:, None] > 0)
    variance = np.maximum((within + between).sum(axis=0), 0) / count
    time = blocks.time[start:].sum()
    spread = blocks.time_squared[start:].sum() - time**2 / count
    covariance = blocks.time_phi[start:].sum(axis=0) - time * mean
    span = np.sqrt(12 * spread / count)  # length of the time window, so that the slope is the drift over it
    slope = covariance / spread * span if spread > 0 else np.full_like(mean, np.inf)
    return mean, variance, slope, float(count)
