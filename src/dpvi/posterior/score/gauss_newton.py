"""Gauss-Newton on the score posterior: a Gaussian on z in a few evaluations of the simulated moments.

With b̄ the weighted block mean, m(z), A(z), S(z) its simulated mean, Jacobian and covariance, W = S(z)⁻¹ and the prior
p(z), a step solves

    P δ = ∇log p(z) + Aᵀ W (b̄ − m(z)),      P = −∇²log p(z) + Aᵀ W A

(negative curvature of the prior counts as none) and is halved until log p − ½ (b̄ − m)ᵀ W (b̄ − m) does not fall. The
answer is N(ẑ, P⁻¹) at the end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.core.plan import Plan
from dpvi.core.trace import Trace
from dpvi.families.base import Family
from dpvi.models.generative import CovariateLaw, prior_center
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.score.blocks import Blocks, blocks_of
from dpvi.posterior.score.check import check_blocks
from dpvi.posterior.score.model import Moments, ScoreModel

_MAX_EVALUATIONS = 60
_TOLERANCE = 1e-6  # of δᵀPδ: a thousandth of a standard deviation
_CLOSE = 1e-2  # a tenth of one, where simulation of discrete records leaves steps in m(z)
_SMALLEST_STEP = 1e-4


class GaussNewton(NamedTuple):
    """The Gaussian answer in float64, and how it was reached."""

    mean: np.ndarray  # ẑ
    covariance: np.ndarray  # P⁻¹
    decrement: float  # δᵀPδ of the last step: the squared distance it would still move, in standard deviations
    evaluations: int

    @property
    def converged(self) -> bool:
        return bool(np.all(np.isfinite(self.mean)) and np.all(np.isfinite(self.covariance)) and self.decrement < _CLOSE)


class _Point(NamedTuple):
    """Everything known at one z."""

    z: jax.Array
    moments: Moments
    log_prior: jax.Array


class _State(NamedTuple):
    point: _Point
    step: jax.Array  # δ at the point
    decrement: jax.Array
    share: jax.Array  # of δ that is tried next
    evaluations: jax.Array


def score_posterior(
    trace: Trace,
    family: Family,
    *,
    plan: Plan,
    model: Any,
    scores: ScoreModel | None = None,
    num_records: float | None = None,
    covariates: CovariateLaw | None = None,
    num_simulated: int = 20_000,
    seed: int | None = None,
    check: bool = True,
) -> Gaussian:
    """The score posterior of a trace with frozen query points, as ``Result.posterior("score")`` computes it.

    Parameters
    ----------
    trace, family, plan, model
        From the result. The family is not used: no variational scale enters.
    scores
        The driver's :class:`~dpvi.posterior.score.model.ScoreModel`, whose programs are compiled already; its settings
        hold.
    num_records, covariates, num_simulated
        Without ``scores``, the settings of a new one.
    seed
        Of the simulation; that of ``scores`` where not given.
    check
        Warn where the blocks are not compatible with the fitted model; see :func:`check_blocks`.
    """
    blocks = blocks_of(trace)
    if scores is None:
        if model is None:
            raise ValueError("The score posterior simulates records; load the result with its model.")
        scores = ScoreModel(model, plan, num_records, covariates, num_simulated)
    elif scores.plan != plan:
        raise ValueError("scores must be a ScoreModel of the plan of this result, got one of another plan.")
    found = gauss_newton(scores, blocks, start=blocks.query[-1], seed=seed)
    if not found.converged:
        raise ValueError(
            "Gauss-Newton did not converge on these releases: the last step would still move by "
            f"{np.sqrt(found.decrement):.2g} standard deviations. Measure nearer to the answer, with a longer moving "
            "phase."
        )
    if check:
        check_blocks(scores, blocks, found.mean, warn=True, seed=seed)
    return Gaussian.from_covariance(found.mean.astype(trace.final.dtype), found.covariance)


def gauss_newton(
    scores: ScoreModel, blocks: Blocks, start: np.ndarray | None = None, seed: int | None = None
) -> GaussNewton:
    """The Gaussian N(ẑ, P⁻¹) for ``blocks``, from ``start`` (the prior's centre where not given)."""
    if start is None:
        start = np.asarray(prior_center(scores.model, scores.key(seed)))
    with jax.enable_x64(True):
        arrays = Blocks(*(jnp.asarray(part, jnp.float64) for part in blocks))
        at = jnp.asarray(start, jnp.float64)
        mean, covariance, decrement, evaluations = _compiled(scores)(arrays, at, scores.key(seed))
    return GaussNewton(np.asarray(mean), np.asarray(covariance), float(decrement), int(evaluations))


@lru_cache(maxsize=16)
def _compiled(scores: ScoreModel) -> Any:
    return jax.jit(lambda blocks, start, key: _solve(scores, blocks, start, key))


def _solve(
    scores: ScoreModel, blocks: Blocks, start: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    target = scores.target(blocks)

    def visit(z: jax.Array) -> _Point:
        simulated = scores.simulate(z, key)
        clipped = scores.clipped_scores(blocks.query, simulated.records)
        weights, gradient = scores.weights(z, simulated), scores.scores(z, simulated.records)
        moments = scores.moments(blocks, simulated, clipped, weights, gradient)
        return _Point(z, moments, scores.model.log_prior(z))

    def arrive(point: _Point, share: jax.Array, evaluations: jax.Array) -> _State:
        precision, gradient = _quadratic(scores, target, point)
        step = jnp.linalg.solve(precision, gradient)
        return _State(point, step, gradient @ step, share, evaluations)

    def attempt(state: _State) -> _State:
        candidate = visit(state.point.z + state.share * state.step)
        better = _objective(target, candidate, state.point) >= _objective(target, state.point, state.point)
        arrived = arrive(candidate, jnp.minimum(1.0, 2 * state.share), state.evaluations + 1)
        stayed = state._replace(share=state.share / 2, evaluations=state.evaluations + 1)
        return jax.tree.map(lambda yes, no: jnp.where(better, yes, no), arrived, stayed)

    def unfinished(state: _State) -> jax.Array:
        going = (jnp.abs(state.decrement) > _TOLERANCE) & (state.share > _SMALLEST_STEP)
        return going & (state.evaluations < _MAX_EVALUATIONS)

    final = jax.lax.while_loop(unfinished, attempt, arrive(visit(start), jnp.ones(()), jnp.ones((), jnp.int32)))
    precision, _ = _quadratic(scores, target, final.point)
    covariance = jnp.linalg.inv(precision)
    return final.point.z, (covariance + covariance.T) / 2, jnp.abs(final.decrement), final.evaluations


def _quadratic(scores: ScoreModel, target: jax.Array, point: _Point) -> tuple[jax.Array, jax.Array]:
    """P and the gradient of the log posterior with S held fixed."""
    prior_gradient = jax.grad(scores.model.log_prior)(point.z)
    values, vectors = jnp.linalg.eigh(-jax.hessian(scores.model.log_prior)(point.z))
    prior_precision = (vectors * jnp.maximum(values, 0.0)) @ vectors.T
    weighted = jnp.linalg.solve(point.moments.covariance, point.moments.jacobian)  # W A
    precision = prior_precision + point.moments.jacobian.T @ weighted
    return precision, prior_gradient + weighted.T @ (target - point.moments.mean)


def _objective(target: jax.Array, point: _Point, at: _Point) -> jax.Array:
    """log p(z) − ½ (b̄ − m(z))ᵀ W (b̄ − m(z)) with W from ``at``."""
    residual = target - point.moments.mean
    return point.log_prior - 0.5 * residual @ jnp.linalg.solve(at.moments.covariance, residual)
