"""Gauss-Newton on the score posterior: a Gaussian on z in a few evaluations of the simulated moments.

With b̄ the weighted block mean, m(z), A(z), S(z) its simulated mean, Jacobian and covariance, W = S(z)⁻¹ and the prior
p(z), a step solves

    P δ = ∇log p(z) + Aᵀ W (b̄ − m(z)),      P = −∇²log p(z) + Aᵀ W A

(negative curvature of the prior counts as none) and is halved until log p − ½ (b̄ − m)ᵀ W (b̄ − m) does not fall. The
answer is N(ẑ, P⁻¹ + δδᵀ) at the end, δ the step that would have come next: nothing where it converged.

Records that are drawn are drawn anew at every z until a step moves by less than half a standard deviation. Discrete
draws jump as z moves, and the last steps would chase the jumps; from there on the draws stay, with weights
p(x; z)/p(x; reference), which are smooth in z and close to one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.population.covariates import Population
from dpvi.population.generative import prior_center
from dpvi.posterior.score.blocks import Blocks
from dpvi.posterior.score.model import Moments, ScoreModel, Simulated

_MAX_EVALUATIONS = 60
_TOLERANCE = 1e-6  # of δᵀPδ: a thousandth of a standard deviation
_DRAWN_TOLERANCE = 1e-4  # a hundredth: A is the slope of m(z) but for the error of simulation
_CLOSE = 1e-2  # a tenth of one
_NEAR = 0.25  # half of one: from here on draws are weighted instead of made anew
_USABLE = 1.0  # one: an answer that is not quite found, but says so
_SMALLEST_STEP = 1e-4
_ELEMENTS_AT_ONCE = 2**24  # of clipped scores, which bounds how many runs are solved side by side


class GaussNewton(NamedTuple):
    """The Gaussian answer in float64, and how it was reached."""

    mean: np.ndarray  # ẑ
    covariance: np.ndarray  # P⁻¹ + δδᵀ
    decrement: float  # δᵀPδ of the last step: the squared distance it would still move, in standard deviations
    evaluations: int

    @property
    def converged(self) -> bool:
        return self._reached(_CLOSE)

    @property
    def usable(self) -> bool:
        """Whether the covariance can account for what is missing to the answer."""
        return self._reached(_USABLE)

    def _reached(self, decrement: float) -> bool:
        finite = np.all(np.isfinite(self.mean)) and np.all(np.isfinite(self.covariance))
        return bool(finite and self.decrement < decrement)


class Point(NamedTuple):
    """Everything known at one z."""

    z: jax.Array
    moments: Moments
    log_prior: jax.Array


class _State(NamedTuple):
    point: Point
    step: jax.Array  # δ at the point
    decrement: jax.Array
    share: jax.Array  # of δ that is tried next
    near: jax.Array  # whether draws stay
    reference: jax.Array  # where they were made, once they stay
    evaluations: jax.Array


def gauss_newton(
    scores: ScoreModel,
    blocks: Blocks,
    start: np.ndarray | None = None,
    seed: int | None = None,
    population: Population | None = None,
) -> GaussNewton:
    """The Gaussian around ẑ for ``blocks``, from ``start`` (the prior's centre where not given).

    ``population`` is what ``scores.population(trace.histograms)`` gives; it may be left out where no histogram is
    needed.
    """
    if start is None:
        start = np.asarray(prior_center(scores.model, scores.key(seed)))
    people = scores.population() if population is None else population
    lanes, at, people = jax.tree.map(lambda part: np.asarray(part)[None], (blocks, start, people))
    return gauss_newton_many(scores, lanes, at, [seed], people)[0]


def gauss_newton_many(
    scores: ScoreModel, blocks: Blocks, start: np.ndarray, seeds: Sequence[int | None], population: Population
) -> list[GaussNewton]:
    """:func:`gauss_newton` for many runs at once; every argument has a leading axis of runs."""
    with jax.enable_x64(True):
        arrays = jax.tree.map(lambda part: jnp.asarray(part, jnp.float64), (blocks, start, population))
        keys = jnp.stack([scores.key(seed) for seed in seeds])
        found = jax.tree.map(np.asarray, _compiled(scores)(*arrays[:2], keys, arrays[2]))
    mean, covariance, decrement, evaluations = found
    return [
        GaussNewton(mean[i], covariance[i], float(decrement[i]), int(evaluations[i])) for i in range(len(decrement))
    ]


@lru_cache(maxsize=16)
def _compiled(scores: ScoreModel) -> Any:
    def solve(blocks: Blocks, start: jax.Array, keys: jax.Array, population: Population) -> Any:
        rows = 1 if scores.exact else scores.num_simulated
        batch = max(1, min(len(start), _ELEMENTS_AT_ONCE // (rows * blocks.query[0].size)))
        one = partial(_solve, scores)
        arguments = (blocks, start, keys, population)
        return jax.lax.map(lambda lane: one(*lane), arguments, batch_size=None if batch == 1 else batch)

    return jax.jit(solve)


def _solve(
    scores: ScoreModel, blocks: Blocks, start: jax.Array, key: jax.Array, population: Population
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    target = scores.target(blocks)

    def at_queries(z: jax.Array) -> tuple[Simulated, jax.Array]:
        simulated = scores.simulate(z, key, population)
        return simulated, scores.clipped_scores(blocks.query, simulated.records)

    # records that are enumerated do not move with z, only their weights do
    fixed = at_queries(start) if scores.enumerates else None

    def visit(z: jax.Array, reference: jax.Array) -> Point:
        simulated, clipped = fixed or at_queries(reference)
        weights = scores.weights(z, simulated, None if scores.enumerates else reference)
        gradient = scores.scores(z, simulated.records)
        moments = scores.moments(blocks, simulated, clipped, weights, gradient)
        return Point(z, moments, scores.model.log_prior(z))

    def arrive(point: Point, state: _State, reference: jax.Array) -> _State:
        precision, gradient = quadratic(scores, target, point)
        step = jnp.linalg.solve(precision, gradient)
        decrement = gradient @ step
        near = state.near | (jnp.abs(decrement) < _NEAR)
        share = jnp.minimum(1.0, 2 * state.share)
        return _State(point, step, decrement, share, near, reference, state.evaluations + 1)

    def attempt(state: _State) -> _State:
        z = state.point.z + state.share * state.step
        reference = jnp.where(state.near, state.reference, z)
        candidate = visit(z, reference)
        better = _objective(target, candidate, state.point) >= _objective(target, state.point, state.point)
        better |= state.evaluations == 0
        arrived = arrive(candidate, state, reference)
        stayed = state._replace(share=state.share / 2, evaluations=state.evaluations + 1)
        return jax.tree.map(lambda yes, no: jnp.where(better, yes, no), arrived, stayed)

    tolerance = _TOLERANCE if scores.enumerates else _DRAWN_TOLERANCE

    def unfinished(state: _State) -> jax.Array:
        going = (jnp.abs(state.decrement) > tolerance) & (state.share > _SMALLEST_STEP)
        return going & (state.evaluations < _MAX_EVALUATIONS)

    final = jax.lax.while_loop(unfinished, attempt, _nowhere(visit, start))
    precision, _ = quadratic(scores, target, final.point)
    covariance = jnp.linalg.inv(precision) + jnp.outer(final.step, final.step)
    return final.point.z, (covariance + covariance.T) / 2, jnp.abs(final.decrement), final.evaluations


def _nowhere(visit: Callable[[jax.Array, jax.Array], Point], start: jax.Array) -> _State:
    """The state before the first attempt, which visits the start whatever stands here.

    A visit to the start itself would be a second copy of all that code to compile.
    """
    shapes = jax.eval_shape(visit, start, start)
    first = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)._replace(z=start)
    identity = first._replace(moments=first.moments._replace(covariance=jnp.eye(len(start))))
    far, count = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    return _State(identity, jnp.zeros_like(start), jnp.full((), jnp.inf), jnp.ones(()), far, start, count)


def quadratic(scores: ScoreModel, target: jax.Array, point: Point) -> tuple[jax.Array, jax.Array]:
    """P and the gradient of the log posterior with S held fixed."""
    prior_gradient = jax.grad(scores.model.log_prior)(point.z)
    values, vectors = jnp.linalg.eigh(-jax.hessian(scores.model.log_prior)(point.z))
    prior_precision = (vectors * jnp.maximum(values, 0.0)) @ vectors.T
    weighted = jnp.linalg.solve(point.moments.covariance, point.moments.jacobian)  # W A
    precision = prior_precision + point.moments.jacobian.T @ weighted
    return precision, prior_gradient + weighted.T @ (target - point.moments.mean)


def _objective(target: jax.Array, point: Point, at: Point) -> jax.Array:
    """log p(z) − ½ (b̄ − m(z))ᵀ W (b̄ − m(z)) with W from ``at``."""
    residual = target - point.moments.mean
    return point.log_prior - 0.5 * residual @ jnp.linalg.solve(at.moments.covariance, residual)
