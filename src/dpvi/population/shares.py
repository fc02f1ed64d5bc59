"""Shares of bins from noisy counts: as much structure as the noise lets one see, and how sure one can be of it.

Noisy counts moved to the simplex as they are put mass into empty tails, which reads as information that covariates do
not carry. So shares are one of a few descriptions, the one with the smallest estimate of its squared error (Mallows'
Cp, which needs nothing but the known variance of the noise). Of bins in an order:

    smooth      p_i ∝ exp(polynomial of degree m in i), m = 0, 1, 2
    one peak    rising to some bin and falling from there, the least squares fit, but for bins that stand out of it by
                more than noise alone can, s √(2 log bins): these are as counted

and of bins without one:

    few         m bins of their own, the others equal, m = 0, 1, …
    as counted  every bin of its own
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import legendre
from scipy.optimize import isotonic_regression, least_squares

_MAX_DEGREE = 2
_MAX_ROUNDS = 4  # of setting bins apart and fitting the rest

Candidate = tuple[np.ndarray, float]  # shares, and the penalty of their number of parameters


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
        Whether bins lie in an order in which most columns rise and fall once.

    Examples
    --------
    >>> shares_of(np.array([48.0, 53.0, -9.0]), 100.0, 0.1, ordered=False).round(2).tolist()
    [0.48, 0.52, 0.0]
    """
    variance = noise_scale**2 + size / len(counts)  # counting people at random has a variance, too
    values = counts / size
    if ordered:
        candidates = [*_smooth(values), _one_peak(values, noise_scale / size)]
    else:
        candidates = [(onto_simplex(values), 2.0 * (len(counts) - 1)), *_few(values)]
    costs = [np.sum((counts - size * shares) ** 2) / variance + penalty for shares, penalty in candidates]
    return candidates[int(np.argmin(costs))][0]


def drawn_shares(
    shares: np.ndarray, size: float, noise_scale: float, ordered: bool, random: np.random.Generator
) -> np.ndarray:
    """What :func:`shares_of` might have found had ``shares`` been right: one draw of its error around them."""
    counts = size * shares + noise_scale * random.normal(size=len(shares))
    return shares_of(counts, size, noise_scale, ordered)


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


def _few(values: np.ndarray) -> list[Candidate]:
    """The largest m bins as they are, the rest equal; which bins these are is a choice that is paid for."""
    order, found = np.argsort(values)[::-1], []
    for count in range(len(values) - 1):
        shares = np.full(len(values), max(values[order[count:]].mean(), 0.0))
        shares[order[:count]] = values[order[:count]]
        found.append((onto_simplex(shares), count * (2.0 + 2.0 * math.log(len(values)))))
    return found


def _smooth(values: np.ndarray) -> list[Candidate]:
    """Exponentials of polynomials, by least squares, each degree starting at the one before."""
    positions = (np.arange(len(values)) + 0.5) / len(values) * 2 - 1
    coefficients, found = np.zeros(0), [(np.full(len(values), 1 / len(values)), 0.0)]
    for degree in range(1, min(_MAX_DEGREE, len(values) - 1) + 1):
        basis = legendre.legvander(positions, degree)[:, 1:]

        def residual(theta: np.ndarray, basis: np.ndarray = basis) -> np.ndarray:
            return _softmax(basis @ theta) - values

        coefficients = least_squares(residual, np.append(coefficients, 0.0), max_nfev=200).x
        found.append((_softmax(basis @ coefficients), 2.0 * degree))
    return found


def _one_peak(values: np.ndarray, noise_scale: float) -> Candidate:
    """Rising, then falling, and bins that stand out; each of these and each run of pooled bins is a parameter."""
    threshold, places = noise_scale * math.sqrt(2 * math.log(max(len(values), 2))), np.arange(len(values))
    apart, peak, shape = np.zeros(len(values), bool), values, values
    for _ in range(_MAX_ROUNDS):
        peak = _rise_and_fall(values[~apart])
        shape = np.interp(places, places[~apart], peak)
        before, apart = apart, values - shape > threshold
        if np.array_equal(before, apart) or np.all(apart):
            break
    shares = onto_simplex(np.where(apart, values, shape))
    return shares, 2.0 * (len(np.unique(peak[peak > 0].round(12))) + int(apart.sum()))


def _rise_and_fall(values: np.ndarray) -> np.ndarray:
    """The nearest sequence that rises to one of its places and falls from there."""

    def fit(peak: int) -> np.ndarray:
        rising = isotonic_regression(values[: peak + 1]).x
        falling = isotonic_regression(values[peak + 1 :], increasing=False).x if peak + 1 < len(values) else values[:0]
        return np.concatenate([rising, falling])

    fits = [fit(peak) for peak in range(len(values))]
    return fits[int(np.argmin([np.sum((one - values) ** 2) for one in fits]))]


def _softmax(values: np.ndarray) -> np.ndarray:
    exponentials = np.exp(values - values.max())
    return exponentials / exponentials.sum()
