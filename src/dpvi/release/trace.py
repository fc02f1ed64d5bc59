"""The trace: everything a run releases, and the only thing that crosses the privacy boundary.

Rows are the released steps themselves: all of them, or every ``thinning``-th where they would not fit and of networks.
Blocks carry float64 sums over all steps (of networks, over one step in several), so that thinning loses nothing that
later methods need.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpvi.release.measurements import Measurements

Array = Any  # NumPy in a trace; a device array of the same meaning while sums are being made

MAX_CURVATURE_DIMENSION = 64


class BlockSums(NamedTuple):
    """Sums over the steps of each block, float64; the leading axis is the block.

    φ is the iterate (the flat variational parameters ξ at which a step was taken), t the step's index, and
    g̃ = −κ times the reconstructed ELBO gradient: a noisy gradient of the loss at batch scale. Steps at a frozen
    query point move nothing and are not counted.
    """

    count: Array  # (blocks,)
    time: Array  # (blocks,): Σ t
    time_squared: Array  # (blocks,): Σ t²
    phi: Array  # (blocks, p): Σ φ
    phi_squared: Array  # (blocks, p): Σ φ²
    time_phi: Array  # (blocks, p): Σ t φ
    gradient: Array  # (blocks, p): Σ g̃
    gradient_phi: Array  # (blocks, p): Σ g̃ φ
    gradient_squared: Array  # (blocks, p): Σ g̃²


class CurvatureSums(NamedTuple):
    """Sums over groups of blocks that show how g̃ depends on all of φ, float64 (for p up to 64).

    Kept of runs that release one number per variational parameter: other gradients do not carry independent noise, and
    no method asks for these sums. Steps at a frozen query point are not counted.
    """

    count: Array  # (groups,)
    phi: Array  # (groups, p): Σ φ
    gradient: Array  # (groups, p): Σ g̃
    gradient_squared: Array  # (groups, p): Σ g̃²
    phi_phi: Array  # (groups, p, p): Σ φ φᵀ
    gradient_phi: Array  # (groups, p, p): Σ g̃ φᵀ


class Segments(NamedTuple):
    """The stretches a driver asked for, in order: steps [start, stop) scored at ``query`` (NaN where ξ moved)."""

    start: np.ndarray  # (segments,)
    stop: np.ndarray  # (segments,)
    query: np.ndarray  # (segments, d)
    mean_noisy_sum: np.ndarray  # (segments, r)


class Trace(NamedTuple):
    """What one run released.

    ``iterates[j]``, ``queries[j]`` and ``noisy_sums[j]`` belong to step ``steps[j] = j * thinning``: the parameters
    *before* the update, the point(s) z at which per-record terms were evaluated, and the noisy clipped sum released
    there. ``final`` is the iterate after the last step. A measuring run takes no step: it has no rows and no blocks,
    ``measurements`` and ``histograms`` are all that it released, and ``final`` is where it measured last.
    """

    steps: np.ndarray  # (rows,) int64
    iterates: np.ndarray  # (rows, p)
    queries: np.ndarray  # (rows, draws * d)
    noisy_sums: np.ndarray  # (rows, r)
    final: np.ndarray  # (p,)
    thinning: int
    block_length: int
    blocks: BlockSums
    segments: Segments | None  # only where a driver chose query points
    curvature: CurvatureSums | None = None  # only where every variational parameter has a noisy sum of its own
    histograms: np.ndarray | None = None  # noisy counts of the declared columns' bins, one column after the other
    clip_norms: np.ndarray | None = None  # (num_steps,): C_t of every step, only where it adapts
    measurements: Measurements | None = None  # only where a run measured and took no step
