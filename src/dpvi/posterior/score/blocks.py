"""What measuring released: one mean noisy sum per block of steps at a frozen query point."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvi.core.trace import Array, Trace


class Blocks(NamedTuple):
    """Blocks of frozen steps, float64. A block of no steps is padding and counts for nothing."""

    query: Array  # (J, d): q_j
    steps: Array  # (J,): n_j
    mean_noisy_sum: Array  # (J, d): the mean of s̃ over block j

    def padded(self, num_blocks: int) -> Blocks:
        """Filled up to ``num_blocks`` with blocks of no steps, so that one compiled program serves every stage."""
        missing = num_blocks - len(self.steps)
        return Blocks(
            np.concatenate([self.query, np.repeat(self.query[-1:], missing, axis=0)]),
            np.concatenate([self.steps, np.zeros(missing)]),
            np.concatenate([self.mean_noisy_sum, np.zeros((missing, self.mean_noisy_sum.shape[1]))]),
        )


def blocks_of(trace: Trace) -> Blocks:
    """The measuring blocks of a trace: the segments with a frozen query point."""
    segments = trace.segments
    frozen = np.zeros(0, bool) if segments is None else np.all(np.isfinite(segments.query), axis=1)
    if segments is None or not frozen.any():
        raise ValueError(
            "The score posterior needs steps at frozen query points and this trace has none; "
            "fit with driver=ScoreDriver(...)."
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
