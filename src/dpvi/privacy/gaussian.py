"""Closed forms for the Gaussian mechanism, and the Gaussian approximation of everything else.

Without sampling, any composition of Gaussian mechanisms is one Gaussian mechanism, so its privacy is exact and needs no
grid of losses. With sampling the same formula holds only in the limit of many steps; there it is a good first guess
and nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from scipy.optimize import brentq
from scipy.special import log_ndtr

from dpvi.declared.plan import GaussianRelease

_ROUND_UP = 1 + 1e-12  # covers the root finder and the last bits, so that a bound stays a bound


def find_root(function: Callable[[float], float], low: float, high: float, absolute: float = 1e-300) -> float:
    """Root between two points of opposite sign, to 1e-13 relative or to ``absolute``."""
    # SciPy's annotations fit neither its plain float result nor a plain float tolerance.
    root: Any = brentq(function, low, high, xtol=absolute, rtol=1e-13)  # pyright: ignore[reportArgumentType]
    return float(root)


def sensitivity(adjacency: str) -> float:
    """L2 sensitivity of a clipped sum, in clip norms: 1 under add/remove, 2 under substitution."""
    return 2.0 if adjacency == "substitute" else 1.0


def gaussian_delta(signal: float, epsilon: float) -> float:
    """δ(ε) of a Gaussian mechanism, exactly.

    With μ = ``signal`` (sensitivity over noise standard deviation) and ε = ``epsilon``:
    δ = Φ(μ/2 - ε/μ) - exp(ε) Φ(-μ/2 - ε/μ).

    References
    ----------
    Balle and Wang (2018), Improving the Gaussian mechanism for differential privacy, theorem 8.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    first = float(log_ndtr(signal / 2 - epsilon / signal))
    second = epsilon + float(log_ndtr(-signal / 2 - epsilon / signal))
    return max(0.0, -math.exp(first) * math.expm1(min(0.0, second - first)))


def gaussian_epsilon(signal: float, delta: float) -> float:
    """Smallest ε ≥ 0 for which a Gaussian mechanism of this signal is (ε, ``delta``)-private.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, 1e-5), 4)
    4.3772
    """
    if gaussian_delta(signal, 0.0) <= delta:
        return 0.0
    upper = signal**2 / 2 + signal * math.sqrt(2 * math.log(1 / delta)) + 1e-12
    return find_root(lambda value: gaussian_delta(signal, value) - delta, 0.0, upper) * _ROUND_UP


def gaussian_signal(epsilon: float, delta: float) -> float:
    """Largest μ that is still (``epsilon``, ``delta``)-private: the inverse of :func:`gaussian_delta`.

    Examples
    --------
    >>> round(gaussian_delta(gaussian_signal(1.0, 1e-5), 1.0), 12)
    1e-05
    """
    low = high = 1.0
    while gaussian_delta(low, epsilon) > delta:
        low /= 2
    while gaussian_delta(high, epsilon) < delta:
        high *= 2
    return find_root(lambda value: gaussian_delta(value, epsilon) - delta, low, high) / _ROUND_UP


def limit_signal(releases: Iterable[GaussianRelease], adjacency: str) -> float:
    """Signal μ of the Gaussian mechanism that a composition tends to with many steps (an estimate, not a bound).

    Each release adds count · κ² (exp(1/σ²) - 1) to μ² under add/remove and count · κ² · 4 sinh(1/σ²) under
    substitution; without sampling (κ = 1) the exact count · sensitivity²/σ². A unit of k rows counts k² times.

    References
    ----------
    Bu, Dong, Long and Su (2020), Deep learning with Gaussian differential privacy.
    """
    return math.sqrt(sum(release.count * _limit_variance(release, adjacency) for release in releases))


def limit_noise_multiplier(signal: float, sampling_rate: float, num_steps: int, adjacency: str) -> float:
    """The noise multiplier at which :func:`limit_signal` of ``num_steps`` releases equals ``signal``."""
    variance = signal**2 / num_steps
    if sampling_rate == 1:
        return sensitivity(adjacency) / math.sqrt(variance)
    scaled = variance / sampling_rate**2
    inverse_square = math.asinh(scaled / 4) if adjacency == "substitute" else math.log1p(scaled)
    return 1 / math.sqrt(inverse_square)


def _limit_variance(release: GaussianRelease, adjacency: str) -> float:
    inverse_square, rows = release.noise_multiplier**-2, release.rows_per_unit
    if release.sampling_rate == 1:
        return (sensitivity(adjacency) * rows) ** 2 * inverse_square
    if inverse_square > 600:
        return math.inf
    factor = 4 * math.sinh(inverse_square) if adjacency == "substitute" else math.expm1(inverse_square)
    return (rows * release.sampling_rate) ** 2 * factor
