"""Proper scores, interval width and coverage.

Coverage alone is won by any posterior that is wide enough in the right way, the prior above all. A proper score is won
only by being right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtr

_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


def log_score(
    density: Callable[[np.ndarray], Any] | tuple[Any, Any],
    truths: Any,
    *,
    weights: Any = None,
    log_determinant: Any = None,
) -> np.ndarray:
    """Marginal log density of each parameter at its true value; higher is better, and only the truth is best.

    For a Gaussian mixture, log Σ_m w_m N(θ_ki; μ_kmi, σ_kmi²). A posterior known through draws of variational
    parameters is such a mixture, with a component for each draw; its density needs no kernel estimate, which would
    blur the sharp posteriors most.

    Parameters
    ----------
    density
        ``(means, sds)`` of the mixture components, each (K, M, d) or broadcasting to it; or a function that maps
        ``truths`` to log densities, (K, d).
    truths
        True parameters, (K, d).
    weights
        Weights of the components, (M,) or (K, M), summing to 1; equal if absent.
    log_determinant
        log |dθ_i/dz_i| at the truth, (K, d), when the density is that of an unconstrained z and the score is wanted for
        θ: it is subtracted. Only maps that act on each parameter alone have one. Comparisons between methods do not
        need it: it is the same for all.

    Returns
    -------
    numpy.ndarray
        (K, d), natural logarithms.

    Examples
    --------
    >>> means, sds = np.zeros((1, 2, 1)), np.array([[[1.0], [2.0]]])
    >>> log_score((means, sds), [[0.0]]).round(4)
    array([[-1.2066]])
    """
    truth = _truths(truths)
    if callable(density):
        score = np.asarray(density(truth), np.float64)
        if score.shape != truth.shape:
            raise ValueError(f"density must return marginal log densities of shape {truth.shape}, got {score.shape}.")
    else:
        means, sds, share = _mixture(*density, weights, truth)
        if not np.all(sds > 0):
            raise ValueError("sds must be positive: a point mass has no density, and a log score of minus infinity.")
        deviation = (truth[:, None] - means) / sds
        with np.errstate(divide="ignore"):  # a component of weight zero contributes nothing
            exponents = np.log(share) - 0.5 * deviation**2 - np.log(sds)
        score = np.asarray(logsumexp(exponents, axis=1)) - _LOG_ROOT_TWO_PI
    return score if log_determinant is None else score - np.asarray(log_determinant, np.float64)


def crps(samples: Any, truths: Any) -> np.ndarray:
    """Continuous ranked probability score from draws; lower is better.

    The fair estimator, unbiased for E|X − θ| − ½ E|X − X′| at any number S of draws:
    (1/S) Σ_s |x_s − θ| − 1/(2S(S − 1)) Σ_s Σ_t |x_s − x_t|.

    Parameters
    ----------
    samples
        Independent posterior draws, (K, S, d), S ≥ 2.
    truths
        True parameters, (K, d).

    Returns
    -------
    numpy.ndarray
        (K, d). A single value can be negative; its expectation cannot.

    Examples
    --------
    >>> crps([[[0.0], [1.0]]], [[3.0]])
    array([[2.]])
    """
    draws, truth = _draws(samples, truths)
    size = draws.shape[1]
    if size < 2:
        raise ValueError("crps needs at least two draws of each posterior: one says nothing of its spread.")
    offset = np.sort(draws - truth[:, None], axis=1)
    weight = (2 * np.arange(1, size + 1) - size - 1) / (size * (size - 1))
    return np.mean(np.abs(offset), axis=1) - np.einsum("s,ksd->kd", weight, offset)


def crps_gaussian_mixture(means: Any, sds: Any, truths: Any, weights: Any = None) -> np.ndarray:
    """Continuous ranked probability score of a Gaussian mixture in closed form; lower is better.

    Σ_m w_m A(θ − μ_m, σ_m²) − ½ Σ_m Σ_n w_m w_n A(μ_m − μ_n, σ_m² + σ_n²), with
    A(μ, σ²) = μ (2Φ(μ/σ) − 1) + 2σ φ(μ/σ), and |μ| for σ = 0. Its cost grows with M²: beyond some hundred components
    take draws and :func:`crps`.

    Parameters
    ----------
    means, sds, weights
        Components as in :func:`log_score`; ``sds`` may be zero.
    truths
        True parameters, (K, d).

    References
    ----------
    Grimit et al. (2006), The continuous ranked probability score for circular variables, equation 5.

    Examples
    --------
    >>> crps_gaussian_mixture([[[0.0]]], [[[1.0]]], [[0.0]]).round(4)
    array([[0.2337]])
    """
    truth = _truths(truths)
    mean, sd, share = _mixture(means, sds, weights, truth)
    if not np.all(sd >= 0):
        raise ValueError("sds must not be negative.")
    score = np.sum(share * _absolute_moment(truth[:, None] - mean, sd), axis=1)
    for m in range(mean.shape[1]):
        pair = _absolute_moment(mean - mean[:, m : m + 1], np.hypot(sd, sd[:, m : m + 1]))
        score -= 0.5 * share[:, m] * np.sum(share * pair, axis=1)
    return score


def interval_width(samples: Any, probability: float = 0.95) -> np.ndarray:
    """Width of each central interval, (K, d), between the (1 ∓ ``probability``)/2 quantiles of the draws (K, S, d).

    Examples
    --------
    >>> interval_width(np.linspace(0, 1, 101)[None, :, None], 0.9).round(3)
    array([[0.9]])
    """
    lower, upper = _interval(_draws(samples)[0], probability)
    return upper - lower


def interval_coverage(samples: Any, truths: Any, probability: float = 0.95) -> np.ndarray:
    """Share of the K central intervals that hold their truth, (d,).

    Its standard error for a perfect posterior is √(p(1 − p)/K), p = ``probability``.

    Examples
    --------
    >>> interval_coverage(np.tile(np.linspace(0, 1, 101)[None, :, None], (2, 1, 1)), [[0.5], [0.99]], 0.9)
    array([0.5])
    """
    draws, truth = _draws(samples, truths)
    lower, upper = _interval(draws, probability)
    return np.mean((lower <= truth) & (truth <= upper), axis=0)


def _absolute_moment(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """E|X| of X ~ N(mean, sd²), sd ≥ 0."""
    ratio = mean / np.where(sd > 0, sd, 1.0)
    density = np.exp(-0.5 * ratio**2 - _LOG_ROOT_TWO_PI)
    return np.where(sd > 0, mean * (2 * ndtr(ratio) - 1) + 2 * sd * density, np.abs(mean))


def _interval(draws: np.ndarray, probability: float) -> tuple[np.ndarray, np.ndarray]:
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie strictly between 0 and 1, got {probability!r}.")
    lower, upper = np.quantile(draws, [(1 - probability) / 2, (1 + probability) / 2], axis=1)
    return lower, upper


def _mixture(means: Any, sds: Any, weights: Any, truths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and sds (K, M, d), weights (K or 1, M, 1), all finite."""
    mean, sd = np.broadcast_arrays(np.asarray(means, np.float64), np.asarray(sds, np.float64))
    if mean.ndim != 3 or mean.shape[::2] != truths.shape or mean.size == 0:
        raise ValueError(
            f"means and sds must broadcast to (K, M, d) with (K, d) = {truths.shape}, got {np.shape(means)}, "
            f"{np.shape(sds)}."
        )
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(sd))):
        bad = int(np.sum(~np.all(np.isfinite(mean) & np.isfinite(sd), axis=(1, 2))))
        raise ValueError(f"{bad} of {len(mean)} mixtures have components that are not finite.")
    size = mean.shape[1]
    share = np.full((1, size), 1 / size) if weights is None else np.atleast_2d(np.asarray(weights, np.float64))
    if share.shape not in ((1, size), mean.shape[:2]) or np.any(share < 0) or not np.allclose(share.sum(axis=1), 1):
        raise ValueError(f"weights must be non-negative, (M,) or (K, M) with M = {size}, and sum to 1.")
    return mean, sd, share[..., None]


def _draws(samples: Any, truths: Any = None) -> tuple[np.ndarray, np.ndarray]:
    draws = np.asarray(samples, np.float64)
    if draws.ndim != 3 or draws.size == 0:
        raise ValueError(f"samples must have shape (K, S, d), got {draws.shape}.")
    bad = int(np.sum(~np.all(np.isfinite(draws), axis=(1, 2))))
    if bad:
        raise ValueError(f"{bad} of {len(draws)} posteriors have draws that are NaN or infinite.")
    truth = np.zeros(draws.shape[::2]) if truths is None else _truths(truths)
    if truth.shape != draws.shape[::2]:
        raise ValueError(f"truths must have shape {draws.shape[::2]}, got {truth.shape}.")
    return draws, truth


def _truths(truths: Any) -> np.ndarray:
    truth = np.asarray(truths, np.float64)
    if truth.ndim != 2 or not np.all(np.isfinite(truth)):
        raise ValueError(f"truths must be finite and of shape (K, d), got shape {truth.shape}.")
    return truth
