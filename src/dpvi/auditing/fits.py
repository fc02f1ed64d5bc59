"""Mode ``"fits"``: whole fits of data with and without a canary, from the first step to the last."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dpvi.auditing.canaries import RELEASE_SIZE, derived_seed, neighbours, step_scores
from dpvi.auditing.mechanism import linear_model
from dpvi.auditing.step import Trials
from dpvi.declared.plan import Plan
from dpvi.declared.validation import PrivacyWarning
from dpvi.privacy.planning import plan as make_plan
from dpvi.run.many import fit_many

NUM_BACKGROUND = 50
DEFAULT_TRIALS = 10_000
_GROUP = 10_000  # fits of one call, which compiles its program


def run_fits(
    plan: Plan, num_trials: int, seed: int | None, background: str, fits: Callable[..., list[Any]] = fit_many
) -> Trials:
    """Scores of ``num_trials`` fits without the canary and as many with it.

    Every fit is one of :func:`dpvi.fit_many` with a key of its own. The guess is made from its trace, which is all that
    a result holds. ``fits`` is the shipped function; tests put faulty ones in its place.
    """
    alone = steps_alone(plan)
    sides = []
    for side, records in enumerate(neighbours(plan, NUM_BACKGROUND, background)):
        sums = _noisy_sums(alone, records, side, num_trials, seed, fits)
        sides.append(step_scores(plan, sums, NUM_BACKGROUND, background))
    scores = {name: (sides[0][name], sides[1][name]) for name in sides[0]}
    return Trials(scores, dict.fromkeys(scores, alone.releases), plan.num_steps)


def steps_alone(plan: Plan) -> Plan:
    """The plan's steps without histograms and without a schedule, which the canaries' model has no use for."""
    if len(plan.releases) == 1 and plan.schedule is None and plan.num_records is None:
        return plan
    gradients = plan.gradients
    return make_plan(
        delta=plan.delta,
        sampling_rate=gradients.sampling_rate,
        num_steps=gradients.count,
        clip_norm=gradients.clip_norm,
        noise_multiplier=gradients.noise_multiplier,
        adjacency=plan.adjacency,
    )


def _noisy_sums(
    plan: Plan, records: np.ndarray, side: int, num_trials: int, seed: int | None, fits: Callable[..., list[Any]]
) -> np.ndarray:
    """What all fits of one side released, (fits, steps, r)."""
    model, found = linear_model(RELEASE_SIZE), []
    size = min(_GROUP, num_trials)
    for number in range(-(-num_trials // size)):
        keys: dict[str, Any] = {"plan": [plan] * size}
        if seed is not None:
            keys = {"plan": plan, "seeds": [derived_seed(seed, "fit", side, number, i) for i in range(size)]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # of δ beside 51 records that are nobody's
            results = fits(model, records, same_data=True, progress=False, **keys)
        found.append(np.stack([result.trace.noisy_sums for result in results]).astype(np.float64))
    return np.concatenate(found)[:num_trials]
