"""The trade-off curve of a plan: how well anybody can tell from a release whether one record was there.

A test guesses, from what was released, whether the record was there. It errs in two ways: a false positive guesses a
record that was not there, a false negative misses one that was. The curve f gives the smallest false negative rate that
any test with a given false positive rate can have. All that a plan promises at all δ is in it.

For a Gaussian mechanism of signal μ it is G_μ(α) = Φ(Φ⁻¹(1 − α) − μ). For any other it is made of lines, two for every
ε: what is (ε, δ)-private with δ = δ₁(ε) from "with the record" to "without" and δ = δ₂(ε) the other way has

    f(α) ≥ 1 − δ₁(ε) − exp(ε) α    and    f(α) ≥ exp(−ε) (1 − δ₂(ε) − α).

References
----------
Dong, Roth and Su (2022), Gaussian differential privacy: trade-off functions, G_μ, and the duality with (ε, δ).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from dpvi.declared.plan import GaussianRelease
from dpvi.privacy import accounting
from dpvi.privacy.gaussian import gaussian_epsilon, limit_signal
from dpvi.privacy.privacy_loss import directions, loss_at

_NUM_LINES = 600
_SMALLEST_DELTA = 1e-9  # lines beyond this one matter to error rates that nobody can measure
_LARGEST_SIGNAL, _LARGEST_EPSILON = 40.0, 200.0  # beyond which exp(ε) times anything measurable is more than 1


class TradeOff(NamedTuple):
    """A lower bound on the trade-off curve, by lines; build it with :func:`trade_off`.

    Guarantees
    ----------
    Never above the true curve: δ is never below the truth, and lines that are left out only lower the maximum.
    """

    epsilons: np.ndarray
    forward: np.ndarray  # δ₁, from with to without
    backward: np.ndarray  # δ₂

    def false_negative_rate(self, false_positive_rate: np.ndarray | float) -> np.ndarray:
        """f at each false positive rate."""
        alpha = np.asarray(false_positive_rate, dtype=np.float64)[..., None]
        falling = 1 - self.forward - np.exp(self.epsilons) * alpha
        flat = np.exp(-self.epsilons) * (1 - self.backward - alpha)
        return np.clip(np.maximum(falling, flat).max(axis=-1), 0.0, 1.0)

    def false_positive_rate(self, power: float) -> float:
        """The smallest false positive rate of a test that finds the record with this ``power``: f⁻¹(1 − power)."""
        falling = np.exp(-self.epsilons) * (power - self.forward)
        flat = 1 - self.backward - np.exp(self.epsilons) * (1 - power)
        return float(np.clip(max(falling.max(), flat.max()), 0.0, 1.0))

    @property
    def symmetric(self) -> TradeOff:
        """The curve of somebody who may choose which of the two errors to call false positive."""
        both = np.maximum(self.forward, self.backward)
        return self._replace(forward=both, backward=both)


def trade_off(releases: Sequence[GaussianRelease], adjacency: str = "add_remove") -> TradeOff:
    """The trade-off curve that the accountant promises of all ``releases`` together.

    Examples
    --------
    >>> from dpvi.privacy.accounting import single_release
    >>> curve = trade_off([single_release(2.0, 1.0, 4)])  # a signal of 1
    >>> round(float(curve.false_negative_rate(0.1)), 4), round(float(gaussian_false_negative_rate(0.1, 1.0)), 4)
    (0.6109, 0.6109)
    """
    signal = min(limit_signal(releases, adjacency), _LARGEST_SIGNAL)
    # many steps lose what their Gaussian limit does, a few rare draws as much as one draw can
    far = max(_far_loss(release, adjacency) for release in releases)
    largest = min(max(1.2 * gaussian_epsilon(signal, _SMALLEST_DELTA), far) + 0.01, _LARGEST_EPSILON)
    # dense where curves bend most, towards 0
    epsilons = largest * np.linspace(0.0, 1.0, _NUM_LINES) ** 1.5
    return TradeOff(epsilons, *accounting.deltas_by_direction(releases, epsilons, adjacency))


def _far_loss(release: GaussianRelease, adjacency: str) -> float:
    """The loss of one draw six standard deviations out."""
    direction, sigma = directions(adjacency)[0], release.noise_multiplier
    far, rows = np.array([release.rows_per_unit + 6 * sigma]), release.rows_per_unit
    if release.sampling_rate == 1:
        return float(loss_at(far / rows, sigma / rows, 1.0, direction)[0])
    return float(loss_at(far, sigma, release.sampling_rate, direction, rows)[0])


def gaussian_false_negative_rate(false_positive_rate: np.ndarray | float, signal: float) -> np.ndarray:
    """G_μ(α) = Φ(Φ⁻¹(1 − α) − μ), with μ = ``signal``."""
    return ndtr(-ndtri(false_positive_rate) - signal)


def gaussian_signal_of(false_positive_rate: np.ndarray | float, false_negative_rate: np.ndarray | float) -> np.ndarray:
    """μ = Φ⁻¹(1 − α) − Φ⁻¹(β): the signal of the Gaussian mechanism whose curve passes through (α, β).

    Examples
    --------
    >>> round(float(gaussian_signal_of(0.1, gaussian_false_negative_rate(0.1, 1.5))), 6)
    1.5
    """
    return -ndtri(false_positive_rate) - ndtri(false_negative_rate)


def scaled(releases: Sequence[GaussianRelease], share: float) -> tuple[GaussianRelease, ...]:
    """The same releases with ``share`` times their noise.

    Examples
    --------
    >>> from dpvi.privacy.accounting import single_release
    >>> scaled([single_release(2.0, 0.5, 3)], 0.5)[0].noise_multiplier
    1.0
    """
    if not (math.isfinite(share) and share > 0):
        raise ValueError(f"share must be finite and greater than 0, got {share!r}.")
    return tuple(replace(release, noise_multiplier=share * release.noise_multiplier) for release in releases)
