"""The answer that blocks of scores give: where the non-private answer is, and how sure one can be of it.

The answer without privacy, θ, maximises log p(θ) + Σ log p(x_i | θ). So the scores of the records at θ add up to
−∇log p(θ), those at a point q nearby to H (θ − q) − ∇log p(θ), and block j, measured at q_j in metric W_j, is

    b_j = κ_j W_j (H (θ − q_j) − ∇log p(θ)) + error

with H the measured curvature, as the model says that it changes on the way from q_j to θ, and κ_j the share of a shift
that clipping leaves. The error has the noise of block j, and what is doubted:

    R_j² G_j                             all that clipping may have taken, where long scores point
    (N η κ/C)² (V⁻ᵀ(θ − q_j))·(V⁻ᵀ(θ − q_k)) I    the noise η in an entry of the curvature, shared by blocks j and k
    τ² (m mᵀ + |m|² I/d)/2               a log likelihood that is no parabola, m the mean of b_j
    N E[e eᵀ]                            between blocks: what clipping makes of these records by chance

How data sets vary is no part of it, because θ belongs to the one there is. Before anything is known θ varies around the
prior's centre with precision P + P (H + P)⁻¹ P, P the prior's. That is believed at twice the width: slopes of columns
with generous bounds are large, and a prior that somebody chose knows nothing of these records. With all blocks stacked,
slope A and covariance S,

    Λ = (P + P (H + P)⁻¹ P)/4 + Aᵀ S⁻¹ A precision of θ given the releases. Its inverse is the privacy part, with A of a
                                         curvature that is smaller by what its error exceeds a quarter, where it does
    Λ⁻¹ + (P + H)⁻¹                      covariance of the parameters: the sampling part is the model's own

Where blocks contradict each other beyond all of this, the privacy part is widened until they do not.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.stats

from dpvi.posterior.metric.blocks import Measured
from dpvi.posterior.metric.curvature import MeasuredCurvature, elsewhere
from dpvi.posterior.metric.simulator import Expected, Simulator

_CONTRADICTION = 0.9  # blocks that differ by more than this quantile of what they may contradict each other
_TOLERATED = 0.25  # an error of the curvature that the other doubts make up for
_SURPRISING = 2.0  # an answer lies further from the prior's centre than it says by this factor, where users guess
_ROUNDS = 3  # the doubt depends on the answer


class Answer(NamedTuple):
    """θ given the releases, in float64."""

    mean: np.ndarray
    privacy: np.ndarray  # covariance of θ
    sampling: np.ndarray  # covariance of the parameters around θ
    contradiction: float  # p-value of the blocks against each other
    inflation: float  # by which the privacy part was widened for that
    doubted: np.ndarray  # the share of the privacy part's variance that is doubt about clipping, by parameter
    curvature_error: float  # relative, of the curvature that the answer rests on
    surprise: float = 0.0  # how probable it is that scores are longer than the model expects
    far_out: np.ndarray | None = None  # the share of each parameter that records far from all others decide


class _System(NamedTuple):
    """The linear equations for θ, with covariances as they are if it lies where it was last thought to be."""

    theta: np.ndarray  # their solution
    prior: np.ndarray  # (P + P (H + P)⁻¹ P)/4
    slope: np.ndarray  # A, (Jd, d)
    target: np.ndarray  # A θ + error, (Jd,)
    covariance: np.ndarray  # S, (Jd, Jd)
    curvature: np.ndarray  # H at θ


def answer(
    simulator: Simulator, measured: Measured, curvature: MeasuredCurvature, kept: np.ndarray, variance_of_size: float
) -> Answer:
    """The answer near the last query point.

    Parameters
    ----------
    simulator
        Of records.
    measured
        The blocks; those with a metric of zero are padding.
    curvature
        At a point nearby.
    kept
        κ_j.
    variance_of_size
        Of the number of records, where it is an estimate.
    """
    present = np.any(measured.blocks.metric != 0, axis=(1, 2))
    last = measured.blocks.query[np.nonzero(present)[0][-1]]
    found = simulator.expected(last, last, measured.blocks)
    linear = partial(_linear, simulator, measured, curvature, kept, variance_of_size, last, found)
    system = linear(last)
    for _ in range(_ROUNDS - 1):
        system = linear(system.theta)
    weighted = np.linalg.solve(system.covariance, system.slope)
    # were the curvature smaller by its error, the same noise would leave θ less sure by as much
    least = system.slope @ curvature.doubted(simulator.num_records, _TOLERATED)
    privacy = np.linalg.inv(system.prior + least.T @ np.linalg.solve(system.covariance, least))
    bent = weighted.T @ np.asarray(scipy.linalg.block_diag(*measured.doubt)) @ weighted
    p_value, inflation = _contradiction(system, (int(present.sum()) - 1) * len(last))
    sampling = np.linalg.inv(system.curvature + found.prior_precision)
    return Answer(
        system.theta,
        inflation * privacy,
        (sampling + sampling.T) / 2,
        p_value,
        inflation,
        np.diag(privacy @ bent @ privacy) / np.diag(privacy),
        curvature.error,
    )


def _linear(
    simulator: Simulator,
    measured: Measured,
    curvature: MeasuredCurvature,
    kept: np.ndarray,
    variance_of_size: float,
    last: np.ndarray,
    found: Expected,
    theta: np.ndarray,
) -> _System:
    """The equations with curvature and doubt as they are where θ is ``theta``."""
    (query, metric), size, dimension = measured.blocks, simulator.num_records, len(last)
    precision, gradient = found.prior_precision, found.prior_gradient
    matrix = elsewhere(curvature, simulator.information(theta))
    turned = precision @ np.linalg.inv(matrix + precision)
    prior = (precision + turned @ precision) / _SURPRISING**2
    turning = kept[:, None, None] * metric  # κ W
    way = turning @ np.stack([_between(simulator, curvature, each, theta) for each in query])  # κ W H
    slope = (way + turning @ precision).reshape(-1, dimension)
    # ∇log p(θ) ≈ gradient − P (θ − last)
    target = measured.released + turning @ (precision @ last + gradient) + np.einsum("jab,jb->ja", way, query)
    mean = np.einsum("jab,jb->ja", way, theta - query)
    scale = np.linalg.norm(turning @ np.linalg.inv(curvature.whitener), axis=(1, 2)) / np.sqrt(dimension)  # κ/C
    away = size * curvature.noise * scale[:, None] * curvature.distances(theta - query)
    shared = np.kron(away @ away.T, np.eye(dimension))  # one curvature reads all blocks, so its noise is shared
    covariance = np.asarray(scipy.linalg.block_diag(*measured.covariances(mean, curvature.error))) + shared
    covariance = covariance + size * found.residual + size**2 * found.error
    covariance = covariance + variance_of_size / size**2 * np.outer(mean, mean)
    weighted = np.linalg.solve(covariance, slope)
    pull = (np.eye(dimension) + turned) @ gradient / _SURPRISING**2 + prior @ last
    solved = np.linalg.solve(prior + slope.T @ weighted, pull + weighted.T @ target.reshape(-1))
    return _System(solved, prior, slope, target.reshape(-1), covariance, matrix)


def _contradiction(system: _System, freedom: int) -> tuple[float, float]:
    """The p-value of the blocks against each other, and by how much their covariance must grow to allow for it."""
    if freedom < 1:
        return 1.0, 1.0
    left = system.target - system.slope @ system.theta
    statistic = float(left @ np.linalg.solve(system.covariance, left))
    most = float(scipy.stats.chi2.ppf(_CONTRADICTION, freedom))
    return float(scipy.stats.chi2.sf(statistic, freedom)), max(1.0, statistic / most)


def _between(simulator: Simulator, curvature: MeasuredCurvature, query: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The mean curvature on the way from a query point to θ, by Simpson's rule."""
    ends = simulator.information(query) + simulator.information(theta)
    return elsewhere(curvature, (ends + 4 * simulator.information((query + theta) / 2)) / 6)
