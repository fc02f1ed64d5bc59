"""The trace: everything a run releases, and the only thing that crosses the privacy boundary.

Rows are the released steps themselves (all of them, or every ``thinning``-th when they would not fit); blocks carry
float64 sums over *all* steps, so that thinning loses nothing that later methods need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class BlockSums(NamedTuple):
    """Sums over the steps of each block, float64; the leading axis is the block.

    φ is the iterate (the flat variational parameters ξ at which a step was taken), t the step's index, and
    g̃ = −κ times the reconstructed ELBO gradient: a noisy gradient of the loss at batch scale.
    """

    count: np.ndarray  # (blocks,)
    phi: np.ndarray  # (blocks, p): Σ φ
    phi_squared: np.ndarray  # (blocks, p): Σ φ²
    time_phi: np.ndarray  # (blocks, p): Σ t φ
    gradient: np.ndarray  # (blocks, p): Σ g̃
    gradient_phi: np.ndarray  # (blocks, p): Σ g̃ φ
    gradient_squared: np.ndarray  # (blocks, p): Σ g̃²


class MomentSums(NamedTuple):
    """Second-order sums of query points z and noisy sums s̃ over each block, float64 (for d up to 500)."""

    count: np.ndarray  # (blocks,)
    noisy_sum: np.ndarray  # (blocks, r): Σ s̃
    query_query: np.ndarray  # (blocks, q, q): Σ z zᵀ
    sum_query: np.ndarray  # (blocks, r, q): Σ s̃ zᵀ


class Trace(NamedTuple):
    """What one run released.

    ``iterates[j]``, ``queries[j]`` and ``noisy_sums[j]`` belong to step ``steps[j] = j * thinning``: the parameters
    *before* the update, the point(s) z at which per-record terms were evaluated, and the noisy clipped sum released
    there. ``final`` is the iterate after the last step.
    """

    steps: np.ndarray  # (rows,) int64
    iterates: np.ndarray  # (rows, p)
    queries: np.ndarray  # (rows, draws * d)
    noisy_sums: np.ndarray  # (rows, r)
    final: np.ndarray  # (p,)
    thinning: int
    block_length: int
    blocks: BlockSums
    moments: MomentSums | None  # None above d = 500
