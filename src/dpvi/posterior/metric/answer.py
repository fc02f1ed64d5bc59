"""The answer that blocks of scores give: where the non-private answer is, and how sure one can be of it.

The answer without privacy, θ, maximises log p(θ) + Σ log p(x_i | θ). So the scores of the records at θ add up to
−∇log p(θ), and block j, measured at q_j in metric W_j, is

    b_j = m_j(θ) − W_j ∇log p(θ) + error,     error ~ N(0, ν_j² I + D_j) for each block, and S for all blocks together,

with ν_j the noise, S = N E[e eᵀ] + … from clipping (:mod:`~dpvi.posterior.metric.simulator`), and D_j what is doubted:

    D_j = τ² (m_j m_jᵀ + |m_j|² I/d)/2 + R_j² G_j

A curvature that is wrong by a share of τ moves m_j by so much: blocks far from the answer count for little. What
clipping may have bent is R_j, in the directions of long scores. How data sets vary is no part of it, because θ belongs to
the one there is. With H = N F the information of all records and P the prior's precision, θ itself varies around the
prior's centre with precision P + P H⁻¹ P before anything is known, and

    Λ = P + P H⁻¹ P + Aᵀ S⁻¹ A           precision of θ given the releases: its inverse is the privacy part
    Λ⁻¹ + (P + H)⁻¹                      covariance of the parameters: the sampling part is the model's own
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.stats

from dpvi.posterior.metric.simulator import Blocks, Expected, Simulator

_CURVATURE = 0.15  # τ: covariates with the measured moments leave this much of a curvature open
_EVALUATIONS = 40
_FOUND = 1e-3  # of δᵀΛδ: a thirtieth of a standard deviation
_NEAR = 0.25  # half of one: from here on responses stay and are weighted
_SMALLEST_STEP = 1e-3
_CONTRADICTION = 0.9  # blocks that differ by more than this quantile of what they may are thought to contradict


class Measured(NamedTuple):
    """Blocks of scores with what is thought of them."""

    blocks: Blocks
    released: np.ndarray  # b_j, (J, d)
    noise: np.ndarray  # ν_j, (J,)
    doubt: np.ndarray  # R_j² G_j, (J, d, d)


class Answer(NamedTuple):
    """θ given the releases, in float64."""

    mean: np.ndarray
    privacy: np.ndarray  # covariance of θ
    sampling: np.ndarray  # covariance of the parameters around θ
    distance: float  # how far the next step would have gone, in standard deviations
    contradiction: float  # p-value of the blocks against each other
    inflation: float  # by which the privacy part was widened, for contradictions
    scaled: np.ndarray  # R² G beside noise, by parameter: the share of the privacy part's variance that is doubt


class _Point(NamedTuple):
    """Everything known at one z."""

    z: np.ndarray
    expected: Expected
    residuals: np.ndarray  # (J, d)
    slopes: np.ndarray  # (J, d, d)
    covariances: np.ndarray  # (J, d, d)


def solve(simulator: Simulator, measured: Measured, variance_of_size: float, start: np.ndarray, error: float) -> Answer:
    """Gauss-Newton from ``start``.

    Parameters
    ----------
    simulator
        Of records with the covariates' law.
    measured
        The blocks that count.
    variance_of_size
        Of the number of records, where it is an estimate.
    error
        The relative error of a curvature that comes from the covariates' moments.
    """
    doubt = np.hypot(_CURVATURE, error)
    reference, near = start, False
    here = _visit(simulator, measured, start, reference, doubt)
    step, distance = _step(here, simulator.num_records)
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
        step, distance = _step(here, simulator.num_records)
    return _finish(here, simulator.num_records, variance_of_size, measured)


def _visit(simulator: Simulator, measured: Measured, z: np.ndarray, reference: np.ndarray, doubt: float) -> _Point:
    found = simulator.expected(z, reference, measured.blocks)
    metric = measured.blocks.metric
    mean, dimension = found.mean, len(z)
    residuals = measured.released - mean + metric @ found.prior_gradient
    slopes = found.jacobian + metric @ found.prior_precision
    lengths = np.sum(mean**2, axis=1)[:, None, None]
    curvature = doubt**2 / 2 * (mean[:, :, None] * mean[:, None, :] + lengths * np.eye(dimension) / dimension)
    own = measured.noise[:, None, None] ** 2 * np.eye(dimension)
    return _Point(z, found, residuals, slopes, own + curvature + measured.doubt)


def _prior(point: _Point, num_records: float) -> tuple[np.ndarray, np.ndarray]:
    """Precision of θ before anything was measured, and the gradient of its log density."""
    precision = point.expected.prior_precision
    information = num_records * point.expected.information
    ridge = 1e-9 * np.trace(information) / len(information) * np.eye(len(information))
    turned = precision @ np.linalg.pinv(information + ridge, hermitian=True)
    return precision + turned @ precision, (np.eye(len(precision)) + turned) @ point.expected.prior_gradient


def _step(point: _Point, num_records: float) -> tuple[np.ndarray, float]:
    """δ and its squared length in standard deviations; blocks count by themselves, which is enough on the way."""
    precision, gradient = _prior(point, num_records)
    for residual, slope, covariance in zip(point.residuals, point.slopes, point.covariances, strict=True):
        weighted = np.linalg.solve(covariance, slope)
        precision = precision + slope.T @ weighted
        gradient = gradient + weighted.T @ residual
    if not (np.all(np.isfinite(precision)) and np.all(np.isfinite(gradient))):
        return np.zeros_like(gradient), 0.0
    step = np.linalg.solve(precision, gradient)
    return step, float(gradient @ step)


def _objective(point: _Point, at: _Point) -> float:
    """−log p + ½ Σ rᵀ S⁻¹ r with the covariances of ``at``; infinite where a number is not finite."""
    total = -point.expected.log_prior
    for residual, covariance in zip(point.residuals, at.covariances, strict=True):
        total += 0.5 * float(residual @ np.linalg.solve(covariance, residual)) if np.all(np.isfinite(residual)) else np.inf
    return total if np.isfinite(total) else np.inf


def _finish(point: _Point, num_records: float, variance_of_size: float, measured: Measured) -> Answer:
    """The answer with all covariances, those between blocks included."""
    found, dimension = point.expected, len(point.z)
    mean = found.mean.reshape(-1)
    between = num_records * found.residual + num_records**2 * found.error
    between = between + variance_of_size / num_records**2 * np.outer(mean, mean)
    covariance = scipy.linalg.block_diag(*point.covariances) + between
    slopes, residuals = point.slopes.reshape(-1, dimension), point.residuals.reshape(-1)
    weighted = np.linalg.solve(covariance, slopes)
    precision, gradient = _prior(point, num_records)
    precision = precision + slopes.T @ weighted
    step = np.linalg.solve(precision, gradient + weighted.T @ residuals)
    privacy = np.linalg.inv(precision)
    left = residuals - slopes @ step
    counted = int(np.sum(np.isfinite(measured.noise) & (measured.noise < np.inf)))
    freedom = (counted - 1) * dimension
    statistic = float(left @ np.linalg.solve(covariance, left))
    p_value = float(scipy.stats.chi2.sf(statistic, freedom)) if freedom > 0 else 1.0
    limit = float(scipy.stats.chi2.ppf(_CONTRADICTION, freedom)) if freedom > 0 else np.inf
    inflation = max(1.0, statistic / limit)
    doubted = weighted.T @ scipy.linalg.block_diag(*measured.doubt) @ weighted
    share = np.diag(privacy @ doubted @ privacy) / np.diag(privacy)
    sampling = np.linalg.inv(num_records * found.information + found.prior_precision)
    distance = float(np.sqrt(max(step @ precision @ step, 0.0)))
    return Answer(point.z + step, inflation * privacy, sampling, distance, p_value, inflation, share)
