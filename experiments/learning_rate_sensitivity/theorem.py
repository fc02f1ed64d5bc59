"""Theorem 2: the trade-off between how far iterates wander and how well they show the curvature.

With φ* known, the least-squares curvature of a parameter is â = Σ g̃(φ−φ*) / (κ Σ(φ−φ*)²), and given the iterates it is
normal around a with standard deviation

    sd[â] = σC / (κβ √Σ(φ−φ*)²)        (A16).

If all iterates lie within r* of φ*, then Σ_i Σ_t (φ−φ*)² ≤ n r*², and therefore

    r* max_i sd[â_i] ≥ √(p/n) σC/κ     (A9),

in coordinates βφ, where all gradients carry the same noise. The paper prints Var[â] where sd[â] stands here. That
cannot be meant: the proof calls it e_std, and in other units of φ (φ → cφ, so that g̃ → g̃/c) both sides of the
inequality scale by 1/c with the standard deviation, but with the variance the left one does by 1/c³.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class TradeOff(NamedTuple):
    """Both sides of (A9) for one run; ``deviation`` is sd[â], (p,), and ``estimate`` is â."""

    radius: float  # r*, in coordinates βφ
    estimate: np.ndarray
    deviation: np.ndarray
    bound: float  # √(p/n) σC/κ

    def ratio(self, power: int = 1, unit: float = 1.0) -> float:
        """Left side over right side with sd[â] to the ``power`` (2 reads it as printed), φ measured in 1/``unit``."""
        radius, deviation, bound = unit * self.radius, self.deviation / unit**2, self.bound / unit
        return float(radius * deviation.max() ** power / bound)


def trade_off(
    iterates: np.ndarray,
    gradients_phi: np.ndarray,
    optimum: np.ndarray,
    sampling_rate: float,
    noise_scale: float,
    beta: np.ndarray,
) -> TradeOff:
    """(A9) for ``iterates`` (n, p), ``gradients_phi`` being Σ g̃(φ−φ*) of every parameter and ``noise_scale`` σC."""
    away = (iterates.astype(np.float64) - optimum) * beta
    spread = np.sum(away**2, axis=0)
    return TradeOff(
        radius=float(np.sqrt(np.sum(away**2, axis=1).max())),
        estimate=gradients_phi * beta**2 / (sampling_rate * spread),
        deviation=noise_scale / (sampling_rate * np.sqrt(spread)),
        bound=float(np.sqrt(away.shape[1] / len(away)) * noise_scale / sampling_rate),
    )
