"""The way to the answer: where blocks of scores, measured far from it, say that it is.

Gauss-Newton on the residuals of all blocks, with the model's own means of clipped sums at every z (records are drawn
anew there). What it finds is a point to measure at and nothing more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvi.posterior.metric.blocks import Measured
from dpvi.posterior.metric.simulator import Expected, Simulator

_EVALUATIONS = 20
_FOUND = 1e-2  # of δᵀΛδ: a tenth of a standard deviation
_NEAR = 0.25  # half of one: from here on responses stay and are weighted
_SMALLEST_STEP = 1e-3


class Found(NamedTuple):
    """A point, and how sure one can be of it where the model is right."""

    z: np.ndarray
    covariance: np.ndarray


class _Point(NamedTuple):
    """Everything known at one z."""

    z: np.ndarray
    expected: Expected
    residuals: np.ndarray  # (J, d)
    slopes: np.ndarray  # (J, d, d)
    covariances: np.ndarray  # (J, d, d)


def search(simulator: Simulator, measured: Measured, start: np.ndarray, doubt: float) -> Found:
    """The point that fits ``measured`` best, from ``start``; ``doubt`` is the relative error of a curvature."""
    reference, near = start, False
    here = _visit(simulator, measured, start, reference, doubt)
    step, distance = _step(here)
    for _ in range(_EVALUATIONS):
        if distance < _FOUND:
            break
        near = near or distance < _NEAR
        share, better = 1.0, None
        while share > _SMALLEST_STEP:
            z = here.z + share * step
            there = _visit(simulator, measured, z, reference if near else z, doubt)
            if _objective(there, here) < _objective(here, here):
                better = there
                break
            share /= 2
        if better is None:
            break
        reference = reference if near else better.z
        here = better
        step, distance = _step(here)
    return Found(here.z, np.linalg.pinv(_precision(here)))


def _visit(simulator: Simulator, measured: Measured, z: np.ndarray, reference: np.ndarray, doubt: float) -> _Point:
    found = simulator.expected(z, reference, measured.blocks, spread=False)
    metric, mean = measured.blocks.metric, found.mean
    residuals = measured.released - mean + metric @ found.prior_gradient
    slopes = found.jacobian + metric @ found.prior_precision
    return _Point(z, found, residuals, slopes, measured.covariances(mean, doubt))


def _precision(point: _Point) -> np.ndarray:
    parts = zip(point.slopes, point.covariances, strict=True)
    return point.expected.prior_precision + sum(slope.T @ np.linalg.solve(s, slope) for slope, s in parts)


def _step(point: _Point) -> tuple[np.ndarray, float]:
    """δ and its squared length in standard deviations."""
    precision, gradient = point.expected.prior_precision, point.expected.prior_gradient
    for residual, slope, covariance in zip(point.residuals, point.slopes, point.covariances, strict=True):
        weighted = np.linalg.solve(covariance, slope)
        precision = precision + slope.T @ weighted
        gradient = gradient + weighted.T @ residual
    if not (np.all(np.isfinite(precision)) and np.all(np.isfinite(gradient))):
        return np.zeros_like(gradient), 0.0
    step = np.linalg.lstsq(precision, gradient, rcond=None)[0]
    return step, float(gradient @ step)


def _objective(point: _Point, at: _Point) -> float:
    """−log p + ½ Σ rᵀ S⁻¹ r with the covariances of ``at``; infinite where a number is not finite."""
    if not (np.all(np.isfinite(point.residuals)) and np.isfinite(point.expected.log_prior)):
        return np.inf
    pairs = zip(point.residuals, at.covariances, strict=True)
    fit = sum(float(residual @ np.linalg.solve(covariance, residual)) for residual, covariance in pairs)
    return 0.5 * fit - point.expected.log_prior
