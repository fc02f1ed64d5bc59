"""Which clip norm a score posterior should have, by simulation alone.

Noise grows with the clip norm C, and what clipping cuts away is lost; in between lies the sharpest posterior. For
parameters z* drawn from the prior, records of the model at z*, and scores measured at z* itself, the precision of the
answer is known before anything is released:

    P_C(z*) = −∇²log p(z*) + Aᵀ S⁻¹ A

The mean of ½ log det P_C(z*) is, up to a constant, the expected log score. The choice is the largest C that loses at
most ``tolerance`` nats against the best: where clipping hardly bends the scores, little rests on the simulated tails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared.plan import GRADIENTS, Plan
from dpvi.declared.schedule import Schedule
from dpvi.models.base import GenerativeModel
from dpvi.population.covariate_law import CovariateLaw
from dpvi.population.covariates import Population, public_population
from dpvi.population.generative import prior_draws
from dpvi.posterior.score.blocks import Blocks
from dpvi.posterior.score.gauss_newton import Point, quadratic
from dpvi.posterior.score.model import ScoreModel, as_float64
from dpvi.release.clip import clip_factor


class ClipNormChoice(NamedTuple):
    """The chosen clip norm, and what all of them would give."""

    clip_norm: float
    clip_norms: np.ndarray
    information: np.ndarray  # mean ½ log det P for each; differences are nats of expected log score


def choose_clip_norm(
    model: GenerativeModel,
    plan: Plan,
    clip_norms: Sequence[float],
    *,
    num_records: float | None = None,
    covariate_law: CovariateLaw | None = None,
    tolerance: float = 0.05,
    num_draws: int = 16,
    num_simulated: int = 2000,
    seed: int = 0,
) -> ClipNormChoice:
    """The best of ``clip_norms`` for measuring scores of ``model`` under ``plan``; no record is read.

    Parameters
    ----------
    model
        A NumPyro model that can draw records.
    plan
        Its noise multiplier, sampling rate, steps and schedule; its own clip norm does not matter. Privacy does not
        depend on the clip norm, so the plan with the chosen one, ``dpvi.plan(..., clip_norm=chosen)``, spends the same.
    num_records
        A guess of the number of records, from public knowledge, where the plan does not declare it.
    covariate_law
        ``covariate_law(key, n)`` draws n rows of covariates, by a law that is declared or guessed; not needed without
        covariates.
    tolerance
        Nats that the choice may lose against the best candidate.
    num_draws, num_simulated
        Draws of z* and of records at each.
    seed
        Of the simulation.

    Examples
    --------
    ``choose_clip_norm(model, plan, np.geomspace(0.3, 30, 9)).clip_norm``
    """
    candidates = np.asarray(clip_norms, np.float64)
    if candidates.ndim != 1 or candidates.size == 0 or not np.all(np.isfinite(candidates) & (candidates > 0)):
        raise ValueError(f"clip_norms must be one or more positive numbers, got {clip_norms!r}.")
    size = num_records if num_records is not None else plan.num_records
    if size is None:
        raise ValueError("The plan declares no number of records; pass num_records=, a guess from public knowledge.")
    schedule = plan.schedule or Schedule()
    steps = plan.num_steps - schedule.move_steps(plan.num_steps)
    laws = [
        ScoreModel(model, _with_clip_norm(plan, float(clip_norm), size), None, covariate_law, num_simulated)
        for clip_norm in candidates
    ]
    with jax.enable_x64(True):
        key, prior_key = jax.random.split(jax.random.key(seed))
        draws = prior_draws(model, prior_key, num_draws).astype(jnp.float64)
        keys, people = jax.random.split(key, num_draws), as_float64(public_population(size))
        information = np.asarray(_information(laws, draws, keys, people, steps)).mean(axis=0)
    good = candidates[information >= information.max() - tolerance]
    return ClipNormChoice(float(good.max()), candidates, information)


def _with_clip_norm(plan: Plan, clip_norm: float, num_records: float) -> Plan:
    """The gradients of ``plan`` at another clip norm; a guess of the number of records counts as public here."""
    gradients = dataclasses.replace(plan.release(GRADIENTS), clip_norm=clip_norm)
    return dataclasses.replace(plan, releases=(gradients,), covariates=None, num_records=round(num_records))


def _information(laws: Sequence[ScoreModel], draws: jax.Array, keys: jax.Array, people: Population, steps: int) -> Any:
    """½ log det P, (draws, clip norms)."""

    def one(lane: tuple[jax.Array, jax.Array]) -> jax.Array:
        z, key = lane
        blocks = Blocks(z[None], jnp.full(1, float(steps)), jnp.zeros((1, len(z))))
        simulated = laws[0].simulate(z, key, people)
        weights, gradient = laws[0].weights(z, simulated), laws[0].scores(z, simulated.records)

        def information(law: ScoreModel) -> jax.Array:
            clipped = (clip_factor(gradient, law.plan.clip_norm)[:, None] * gradient)[:, None]
            moments = law.moments(blocks, simulated, clipped, weights, gradient)
            precision, _ = quadratic(law, moments.mean, Point(z, moments, jnp.zeros(())))
            return 0.5 * jnp.linalg.slogdet(precision)[1]

        return jnp.stack([information(law) for law in laws])

    return jax.jit(lambda *lanes: jax.lax.map(one, lanes))(draws, keys)
