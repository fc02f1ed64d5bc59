"""Blocks of scores with what is thought of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Blocks(NamedTuple):
    """Where scores were measured; arrays with a leading axis of blocks. A block with a metric of zero says nothing."""

    query: Any  # (J, d)
    metric: Any  # (J, d, d)


class Measured(NamedTuple):
    """Blocks, what was released there, and what may have bent it besides noise."""

    blocks: Blocks
    released: np.ndarray  # b_j, (J, d)
    noise: np.ndarray  # ν_j, (J,)
    doubt: np.ndarray  # R_j² G_j, (J, d, d)

    def covariances(self, mean: np.ndarray, error: float) -> np.ndarray:
        """ν_j² I + R_j² G_j + τ² (m_j m_jᵀ + |m_j|² I/d)/2 where a share τ = ``error`` of ``mean`` m_j may be wrong."""
        even = np.eye(mean.shape[1]) / mean.shape[1]
        lengths = np.sum(mean**2, axis=1)[:, None, None]
        bent = error**2 / 2 * (mean[:, :, None] * mean[:, None, :] + lengths * even)
        return self.noise[:, None, None] ** 2 * np.eye(mean.shape[1]) + self.doubt + bent
