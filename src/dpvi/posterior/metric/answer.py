"""The answer that blocks of scores give: where the non-private answer is, and how sure one can be of it.

The answer without privacy, θ, maximises log p(θ) + Σ log p(x_i | θ). So the scores of the records at θ add up to
−∇log p(θ), those at a point q nearby to H (θ − q) − ∇log p(θ), and block j, measured at q_j in metric W_j, is

    b_j = κ_j W_j (H (θ − q_j) − ∇log p(θ)) + error

with H the measured curvature, as the model says that it changes on the way from q_j to θ, and κ_j the share of a shift that clipping leaves. The error has the noise of block j, and
what is doubted:

    R_j² G_j                             what clipping bent beyond the model: all it may have taken, where long scores point
    (N η |V⁻ᵀ(θ − q_j)|)² κ_j² I / C²    the noise η in an entry of the curvature
    τ² (m mᵀ + |m|² I/d)/2               a log likelihood that is no parabola, m the mean of b_j
    N E[e eᵀ]                            between blocks: what clipping makes of these records by chance

How data sets vary is no part of it, because θ belongs to the one there is. Before anything is known θ varies around the
prior's centre with precision P + P (H + P)⁻¹ P, P the prior's. With all blocks stacked, slope A and covariance S,

    Λ = P + P (H + P)⁻¹ P + Aᵀ S⁻¹ A     precision of θ given the releases: its inverse is the privacy part, the last
                                         term divided by (1 + (τ − ¼)₊)², for a curvature that may be too large
    Λ⁻¹ + (P + H)⁻¹                      covariance of the parameters: the sampling part is the model's own

Where blocks contradict each other beyond all of this, the privacy part is widened until they do not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.stats

from dpvi.posterior.metric.blocks import Measured
from dpvi.posterior.metric.curvature import MeasuredCurvature, elsewhere
from dpvi.posterior.metric.simulator import Simulator

_CONTRADICTION = 0.9  # blocks that differ by more than this quantile of what they may contradict each other
_TOLERATED = 0.25  # an error of the curvature that the other doubts make up for
_ROUNDS = 3  # the doubt depends on the answer


class Answer(NamedTuple):
    """θ given the releases, in float64."""

    mean: np.ndarray
    privacy: np.ndarray  # covariance of θ
    sampling: np.ndarray  # covariance of the parameters around θ
    contradiction: float  # p-value of the blocks against each other
    inflation: float  # by which the privacy part was widened for that
    doubted: np.ndarray  # the share of the privacy part's variance that is doubt about clipping, by parameter
    surprise: float = 0.0  # how probable it is that scores are longer than the model expects


def answer(
    simulator: Simulator,
    measured: Measured,
    curvature: MeasuredCurvature,
    kept: np.ndarray,
    variance_of_size: float,
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
    query, metric = measured.blocks
    present = np.any(metric != 0, axis=(1, 2))
    last = query[np.nonzero(present)[0][-1]]
    size, dimension = simulator.num_records, len(last)
    found = simulator.expected(last, last, measured.blocks)
    precision, gradient = found.prior_precision, found.prior_gradient
    between = size * found.residual + size**2 * found.error
    scale = np.linalg.norm(metric @ np.linalg.inv(curvature.whitener), axis=(1, 2)) / np.sqrt(dimension)  # 1/C_j
    theta = last
    for _ in range(_ROUNDS):
        matrices = np.stack([_between(simulator, curvature, each, theta) for each in query])
        matrix = elsewhere(curvature, simulator.information(theta))
        turned = precision @ np.linalg.inv(matrix + precision)
        prior, pull = precision + turned @ precision, (np.eye(dimension) + turned) @ gradient
        slopes = kept[:, None, None] * (metric @ (matrices + precision))
        # ∇log p(θ) ≈ gradient − P (θ − last)
        constant = kept[:, None] * (metric @ (precision @ last + gradient))
        target = measured.released + constant + kept[:, None] * np.einsum("jab,jbc,jc->ja", metric, matrices, query)
        step = theta - query
        mean = kept[:, None] * np.einsum("jab,jbc,jc->ja", metric, matrices, step)
        noise = kept * size * scale * curvature.noise * np.array([curvature.distance(each) for each in step])
        covariances = measured.covariances(mean, curvature.error) + noise[:, None, None] ** 2 * np.eye(dimension)
        joint = scipy.linalg.block_diag(*covariances) + between
        joint = joint + variance_of_size / size**2 * np.outer(mean, mean)
        stacked = slopes.reshape(-1, dimension)
        weighted = np.linalg.solve(joint, stacked)
        total = prior + stacked.T @ weighted
        theta = np.linalg.solve(total, pull + prior @ last + weighted.T @ target.reshape(-1))
    # were the curvature smaller by its error, the same noise would leave θ less sure by as much
    privacy = np.linalg.inv(prior + stacked.T @ weighted / (1 + max(curvature.error - _TOLERATED, 0.0)) ** 2)
    left = target.reshape(-1) - stacked @ theta
    freedom = (int(present.sum()) - 1) * dimension
    statistic = float(left @ np.linalg.solve(joint, left))
    p_value = float(scipy.stats.chi2.sf(statistic, freedom)) if freedom else 1.0
    inflation = max(1.0, statistic / float(scipy.stats.chi2.ppf(_CONTRADICTION, freedom))) if freedom else 1.0
    bent = weighted.T @ scipy.linalg.block_diag(*measured.doubt) @ weighted
    doubted = np.diag(privacy @ bent @ privacy) / np.diag(privacy)
    sampling = np.linalg.inv(matrix + precision)
    return Answer(theta, inflation * privacy, (sampling + sampling.T) / 2, p_value, inflation, doubted)


def _between(
    simulator: Simulator, curvature: MeasuredCurvature, query: np.ndarray, theta: np.ndarray
) -> np.ndarray:
    """The mean curvature on the way from a query point to θ, by Simpson's rule."""
    ends = simulator.information(query) + simulator.information(theta)
    return elsewhere(curvature, (ends + 4 * simulator.information((query + theta) / 2)) / 6)
