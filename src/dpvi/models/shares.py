"""Shares of bins from noisy counts: as much structure as the noise lets one see.

Noisy counts moved to the simplex as they are put mass into empty tails, which reads as information that covariates do
not carry. So shares are one of three descriptions, the one with the smallest estimate of its squared error (Mallows'
Cp, which needs nothing but the known variance of the noise):

    smooth      p_i ∝ exp(polynomial of degree m in i), m = 0, 1, … 6, for bins that are ordered
    few         m bins of their own, the others equal, m = 0, 1, …
    as counted  every bin of its own
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import legendre
from scipy.optimize import least_squares

_MAX_DEGREE = 6


def shares_of(counts: np.ndarray, size: float, noise_scale: float, ordered: bool) -> np.ndarray:
    """Probabilities of bins from ``counts`` of ``size`` records, to each of which noise of ``noise_scale`` was added.

    Parameters
    ----------
    counts
        Noisy counts, (bins,).
    size
        N, or an estimate.
    noise_scale
        Standard deviation of the noise on each count.
    ordered
        Whether neighbouring bins are alike.

    Examples
    --------
    >>> shares_of(np.array([48.0, 53.0, -9.0]), 100.0, 0.1, ordered=False).round(2).tolist()
    [0.48, 0.52, 0.0]
    """
    variance = noise_scale**2 + size / len(counts)  # counting people at random has a variance, too
    candidates = [(onto_simplex(counts / size), 2.0 * (len(counts) - 1))]
    candidates += _few(counts / size)
    if ordered:
        candidates += _smooth(counts / size)
    costs = [np.sum((counts - size * shares) ** 2) / variance + penalty for shares, penalty in candidates]
    return candidates[int(np.argmin(costs))][0]


def onto_simplex(values: np.ndarray) -> np.ndarray:
    """The nearest point with non-negative coordinates that sum to one.

    Examples
    --------
    >>> onto_simplex(np.array([0.7, 0.5, -0.4])).round(3).tolist()
    [0.6, 0.4, 0.0]
    """
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    threshold = excess[np.flatnonzero(descending > excess)[-1]]
    return np.maximum(values - threshold, 0.0)


def _few(values: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """The largest m bins as they are, the rest equal; which bins these are is a choice that is paid for."""
    order, found = np.argsort(values)[::-1], []
    for count in range(len(values) - 1):
        shares = np.full(len(values), max(values[order[count:]].mean(), 0.0))
        shares[order[:count]] = values[order[:count]]
        found.append((onto_simplex(shares), count * (2.0 + 2.0 * math.log(len(values)))))
    return found


def _smooth(values: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Exponentials of polynomials, by least squares, each degree starting at the one before."""
    positions = (np.arange(len(values)) + 0.5) / len(values) * 2 - 1
    coefficients, found = np.zeros(0), []
    for degree in range(1, min(_MAX_DEGREE, len(values) - 1) + 1):
        basis = legendre.legvander(positions, degree)[:, 1:]

        def residual(theta: np.ndarray, basis: np.ndarray = basis) -> np.ndarray:
            return _softmax(basis @ theta) - values

        coefficients = least_squares(residual, np.append(coefficients, 0.0), max_nfev=200).x
        found.append((_softmax(basis @ coefficients), 2.0 * degree))
    return found


def _softmax(values: np.ndarray) -> np.ndarray:
    exponentials = np.exp(values - values.max())
    return exponentials / exponentials.sum()
