"""Are the released block means what the fitted model would release? A posterior-predictive check.

For residuals r_j = b̃_j − μ_{q_j}(ẑ), stacked to r with Jacobian A = ∂μ/∂z and covariance S (blocks share their records:
S_ij = N Cov(c(q_i), c(q_j)), plus batches and noise of each block on the diagonal), two statistics:

    blocks:  min_δ (r − Aδ)ᵀ S⁻¹ (r − Aδ)         chi-square with Jd − rank(A) degrees of freedom, whatever z is;
    reach:   r̄ᵀ S̄⁻¹ r̄ of the weighted mean         at most chi-square with d: large where no z gives what was released.

Scores at one point have as many numbers as the model has parameters, so a wrong model shows only through blocks at
different points, or through sums that no z explains. Passing is no proof.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from dpvi.population.covariates import Population
from dpvi.posterior.score.blocks import Blocks
from dpvi.posterior.score.model import ScoreModel, as_float64
from dpvi.release.trace import Array

_HEAVY_CLIPPING = 0.5
_RANK = 1e-9


class BlockCheck(NamedTuple):
    """What the check found, from released quantities and simulation alone."""

    statistic: float
    degrees_of_freedom: int
    p_value: float  # of the blocks against each other
    reach_p_value: float  # of their mean against what any z gives
    clipped_share: float  # of simulated records at ẑ, over the blocks
    message: str | None  # None where nothing speaks against the model


class _Joint(NamedTuple):
    """The joint law of all block means at one z."""

    mean: Array  # (J, d)
    jacobian: Array  # (Jd, d)
    covariance: Array  # (Jd, Jd)
    clipped_share: Array


def check_blocks(
    scores: ScoreModel,
    blocks: Blocks,
    z: np.ndarray,
    level: float = 0.001,
    warn: bool = False,
    seed: int | None = None,
    population: Population | None = None,
) -> BlockCheck:
    """Compare block means with the model fitted at ``z``; with ``warn``, say what is wrong as a warning.

    Parameters
    ----------
    scores, blocks
        The law of releases, and the releases.
    z
        ẑ, the mean of the score posterior.
    level
        The probability with which a right model is called wrong by each of the two tests.
    seed
        Of the simulation.
    population
        As for :func:`~dpvi.posterior.score.gauss_newton.gauss_newton`.
    """
    blocks = Blocks(*(part[blocks.steps > 0] for part in blocks))
    with jax.enable_x64(True):
        arrays = Blocks(*(jnp.asarray(part, jnp.float64) for part in blocks))
        at = jnp.asarray(z, jnp.float64)
        people = scores.population() if population is None else population
        joint = _Joint(*map(np.asarray, _compiled(scores)(arrays, at, scores.key(seed), as_float64(people))))
    residual = blocks.mean_noisy_sum / scores.plan.sampling_rate - joint.mean
    covariance = np.asarray(joint.covariance)
    statistic, freedom = _chi_square(residual.ravel(), covariance, np.asarray(joint.jacobian))
    share = np.kron(blocks.steps / blocks.steps.sum(), np.eye(residual.shape[1]))
    reach, reach_freedom = _chi_square(share @ residual.ravel(), share @ covariance @ share.T, None)
    p_value = float(scipy.stats.chi2.sf(statistic, freedom)) if freedom else 1.0
    reach_p_value = float(scipy.stats.chi2.sf(reach, reach_freedom))
    clipped_share = float(joint.clipped_share)
    message = _message(p_value, reach_p_value, clipped_share, level)
    if warn and message is not None:
        warnings.warn(message, stacklevel=2)
    return BlockCheck(statistic, freedom, p_value, reach_p_value, clipped_share, message)


def _message(p_value: float, reach_p_value: float, clipped_share: float, level: float) -> str | None:
    found = []
    if reach_p_value < level:
        found.append(
            "The released scores are not what the model can produce at any plausible parameter "
            f"(p = {reach_p_value:.2g})."
        )
    if p_value < level:
        found.append(f"Scores released at different points do not fit one set of parameters (p = {p_value:.2g}).")
    if clipped_share > _HEAVY_CLIPPING:
        found.append(
            f"{100 * clipped_share:.0f} % of simulated scores are clipped, so the answer rests on the model's tails; "
            "use a larger clip norm."
        )
    if not found:
        return None
    return " ".join([*found, "Do not trust the score posterior's intervals before the model is understood."])


def _chi_square(residual: np.ndarray, covariance: np.ndarray, jacobian: np.ndarray | None) -> tuple[float, int]:
    """min_δ (r − Aδ)ᵀ S⁺ (r − Aδ) and its degrees of freedom; directions without variance are left out."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _RANK * values.max()
    whitener = vectors[:, kept] / np.sqrt(values[kept])
    white, rank = residual @ whitener, 0
    if jacobian is not None:
        basis, sizes, _ = np.linalg.svd(whitener.T @ jacobian, full_matrices=False)
        basis = basis[:, sizes > _RANK * max(sizes.max(), 1e-300)]
        white, rank = white - basis @ (basis.T @ white), basis.shape[1]
    return float(white @ white), int(kept.sum()) - rank


@lru_cache(maxsize=16)
def _compiled(scores: ScoreModel) -> Any:
    return jax.jit(lambda blocks, z, key, population: _joint(scores, blocks, z, key, population))


def _joint(scores: ScoreModel, blocks: Blocks, z: jax.Array, key: jax.Array, population: Population) -> _Joint:
    simulated = scores.simulate(z, key, population)
    weights = scores.weights(z, simulated)
    clipped = scores.clipped_scores(blocks.query, simulated.records)
    gradient = scores.scores(z, simulated.records)
    num_blocks, dimension = blocks.query.shape
    data = scores.data_moments(simulated, clipped.reshape(len(weights), -1), weights, gradient)
    second = population.num_records * jnp.einsum("m,mjd,mje->jde", weights, clipped, clipped)
    own = (scores.batch_factor * second + scores.noise_variance * jnp.eye(dimension)) / blocks.steps[:, None, None]
    covariance = data.covariance + jax.scipy.linalg.block_diag(*own)
    norms = jnp.sqrt(jnp.sum(clipped**2, axis=-1))
    clipped_share = jnp.mean(weights @ (norms > 0.9999 * scores.plan.clip_norm).astype(weights.dtype))
    return _Joint(data.mean.reshape(num_blocks, dimension), data.jacobian, covariance, clipped_share)
