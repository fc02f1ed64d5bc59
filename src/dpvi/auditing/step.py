"""Mode ``"step"``: the mechanism of a step in the exact worst case, very many times."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpvi.auditing.bounds import Scores
from dpvi.auditing.canaries import RELEASE_SIZE, count_score, covariate_rows, derived_seed, neighbours, step_scores
from dpvi.auditing.mechanism import NoisyCounts, NoisySums, noisy_counts, noisy_sums
from dpvi.declared.plan import HISTOGRAMS, GaussianRelease, Plan
from dpvi.privacy.gaussian import limit_signal

NUM_BACKGROUND = 8
_DEFAULT_TRIALS, _MOST_DRAWS = 200_000, 4_000_000  # on each side; a draw is one step
_MOST_HISTOGRAMS = 200  # each takes as long as thousands of steps
_BLOCK_STEPS = 2**17  # steps that run at a time


class Trials(NamedTuple):
    """Scores of an audit, and what is released of which each is a function."""

    scores: Scores
    releases: dict[str, tuple[GaussianRelease, ...]]
    num_steps: int


def steps_of_a_trial(plan: Plan) -> int:
    """As many steps as make a signal of about 1, or all of the plan's.

    With less signal, error rates depend on the product of trials and steps alone; with more, errors become too rare to
    be counted.
    """
    one_step = limit_signal([_steps(plan, 1)], plan.adjacency)
    return max(1, min(plan.num_steps, math.ceil(one_step**-2)))


def default_trials(plan: Plan) -> int:
    """Trials on each side that take seconds, up to a minute."""
    return max(1_000, min(_DEFAULT_TRIALS, _MOST_DRAWS // steps_of_a_trial(plan)))


def run_steps(
    plan: Plan,
    num_trials: int,
    seed: int | None,
    background: str,
    mechanism: NoisySums = noisy_sums,
    histograms: NoisyCounts = noisy_counts,
) -> Trials:
    """Scores of ``num_trials`` trials without the canary and as many with it.

    A trial is a few steps. Where the plan releases histograms, these are tried apart, less often. ``mechanism`` and
    ``histograms`` are the shipped ones; tests put faulty ones in their place.
    """
    num_steps = steps_of_a_trial(plan)
    sides = [
        _side(plan, releases, side, num_trials, num_steps, seed, background, mechanism)
        for side, releases in enumerate(neighbours(plan, NUM_BACKGROUND, background))
    ]
    scores = {name: (sides[0][name], sides[1][name]) for name in sides[0]}
    releases = dict.fromkeys(scores, (_steps(plan, num_steps),))
    return with_histograms(plan, Trials(scores, releases, num_steps), num_trials, seed, histograms)


def with_histograms(
    plan: Plan, trials: Trials, num_trials: int, seed: int | None, histograms: NoisyCounts = noisy_counts
) -> Trials:
    """``trials`` and those of the histograms, where the plan releases some: ``num_trials`` or fewer on each side."""
    if plan.covariates is None:
        return trials
    few = min(num_trials, _MOST_HISTOGRAMS)
    without, with_canary = (_counted(plan, side, few, seed, histograms) for side in (0, 1))
    return trials._replace(
        scores={**trials.scores, HISTOGRAMS: (without, with_canary)},
        releases={**trials.releases, HISTOGRAMS: (plan.release(HISTOGRAMS),)},
    )


def _side(
    plan: Plan,
    releases: np.ndarray,
    side: int,
    num_trials: int,
    num_steps: int,
    seed: int | None,
    background: str,
    mechanism: NoisySums,
) -> dict[str, np.ndarray]:
    """Scores of one side, block after block of trials, all of one size so that one program serves them."""
    assert releases.shape[1] == RELEASE_SIZE
    size = min(num_trials, max(1, _BLOCK_STEPS // num_steps))
    blocks = []
    for number in range(-(-num_trials // size)):
        sums = mechanism(plan, releases, derived_seed(seed, "step", side, number), size, num_steps)
        blocks.append(step_scores(plan, sums, NUM_BACKGROUND, background))
    return {name: np.concatenate([block[name] for block in blocks])[:num_trials] for name in blocks[0]}


def _counted(plan: Plan, side: int, num_trials: int, seed: int | None, histograms: NoisyCounts) -> np.ndarray:
    columns = plan.covariates or ()
    rows = [covariate_rows(columns, last=True)] * NUM_BACKGROUND + [covariate_rows(columns, last=False)] * side
    records = np.concatenate(rows)
    return np.array(
        [
            count_score(plan, histograms(plan, records, derived_seed(seed, "histogram", side, trial)), NUM_BACKGROUND)
            for trial in range(num_trials)
        ]
    )


def _steps(plan: Plan, count: int) -> GaussianRelease:
    """``count`` steps of the plan."""
    gradients = plan.gradients
    return GaussianRelease(
        gradients.name, gradients.sampling_rate, count, gradients.noise_multiplier, gradients.clip_norm
    )
