"""Averages over a Gaussian linear predictor η ~ N(m, v): no draws, so the same answer every time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

_NODES = 32
_HALVINGS = 60


def nodes() -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of Gauss-Hermite quadrature for a standard normal."""
    points, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return points, weights / weights.sum()


def mean_probability(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E σ(η).

    Examples
    --------
    >>> mean_probability(np.array([0.0, 2.0]), np.array([9.0, 0.0])).round(6).tolist()
    [0.5, 0.880797]
    """
    points, weights = nodes()
    return special.expit(mean[:, None] + np.sqrt(variance)[:, None] * points) @ weights


def mean_rate(mean: np.ndarray, variance: np.ndarray, largest: float) -> np.ndarray:
    """E min(exp(η), largest), in closed form: E exp(η) alone explodes where η is hardly known.

    Examples
    --------
    >>> mean_rate(np.array([1.0, 1.0]), np.array([0.0, 50.0]), 100.0).round(3).tolist()
    [2.718, 35.731]
    """
    limit, spread = np.log(largest), np.sqrt(np.maximum(variance, 1e-300))
    below = special.log_ndtr((limit - mean - variance) / spread)
    return np.exp(mean + variance / 2 + below) + largest * special.ndtr((mean - limit) / spread)


def normal_quantiles(
    levels: np.ndarray, mean: np.ndarray, variance: np.ndarray, covariance: np.ndarray, log_sigma: tuple[float, float]
) -> np.ndarray:
    """(levels, n) quantiles of y ~ N(η, σ²), where η and log σ are jointly Gaussian.

    Parameters
    ----------
    levels
        Probabilities.
    mean, variance
        Of η, (n,).
    covariance
        Of η with log σ, (n,).
    log_sigma
        Mean and variance of log σ.
    """
    points, weights = nodes()
    centre, spread = log_sigma[0], np.sqrt(log_sigma[1])
    slope = covariance / max(log_sigma[1], 1e-300)
    means = mean[:, None] + slope[:, None] * spread * points
    left = np.maximum(variance - slope * covariance, 0.0)
    scales = np.sqrt(left[:, None] + np.exp(2 * (centre + spread * points)))

    def probability(value: np.ndarray) -> np.ndarray:
        return special.ndtr((value[..., None] - means) / scales) @ weights

    reach = 40 * scales.max(axis=1)
    return _inverted(probability, levels, means.min(axis=1) - reach, means.max(axis=1) + reach)


def count_quantiles(levels: np.ndarray, mean: np.ndarray, variance: np.ndarray, largest: float) -> np.ndarray:
    """(levels, n) quantiles of y ~ Poisson(min(exp(η), largest)): the smallest counts that reach ``levels``."""
    points, weights = nodes()
    rates = np.exp(np.minimum(mean[:, None] + np.sqrt(variance)[:, None] * points, np.log(largest)))

    def probability(value: np.ndarray) -> np.ndarray:
        return special.pdtr(np.floor(value)[..., None], rates) @ weights

    reach = largest + 40 * np.sqrt(largest) + 40
    found = _inverted(probability, levels, np.full(len(mean), -1.0), np.full(len(mean), reach))
    return np.maximum(np.round(found), 0.0)  # the halving ends right at the step


def _inverted(
    probability: Callable[[np.ndarray], np.ndarray], levels: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Where a distribution function reaches ``levels``, between bounds for each of its columns, by halving."""
    wanted = np.asarray(levels, np.float64)[:, None]
    lower, upper = (np.broadcast_to(end, (len(wanted), len(end))).astype(np.float64) for end in (lower, upper))
    for _ in range(_HALVINGS):
        middle = (lower + upper) / 2
        short = probability(middle) < wanted
        lower, upper = np.where(short, middle, lower), np.where(short, upper, middle)
    return upper
