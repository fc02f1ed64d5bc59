"""Audits of plans that measure: the shipped mechanism keeps its promise, planted faults are found."""

from __future__ import annotations

import numpy as np
import pytest

import dpvi
from dpvi.auditing.measuring import audited_model, measured_neighbours, run_measuring, units_of
from dpvi.auditing.modes import report_trials
from dpvi.declared.columns import Numeric
from dpvi.mechanism.rng import root_key
from dpvi.release.requests import KINDS, CovariateMoments, Scores
from dpvi.run.measuring import Answers, Contributions

TRIALS = 300


@pytest.fixture(scope="module")
def contributions() -> Contributions:
    return Contributions(audited_model(), 64)


def plan_of(epsilon: float = 4.0, **settings) -> dpvi.Plan:
    return dpvi.plan(epsilon, 1e-5, num_records=9, **settings)


def audited(answers, contributions, trials: int = TRIALS, **settings):
    plan = plan_of(**settings)
    found = run_measuring(plan, trials, 18, "orthogonal", answers, contributions=contributions)
    return report_trials(plan, found, "measuring", 0.99)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_canary_moves_every_answer_as_far_as_a_record_may(contributions, kind):
    metric = np.eye(2)
    request = CovariateMoments(metric, 1) if kind is CovariateMoments else kind(np.zeros(2), metric, 1)
    for background in ("orthogonal", "opposed"):
        totals = [contributions.total(request, [side]) for side in measured_neighbours(plan_of(), background)]
        moved = np.linalg.norm(totals[1] - totals[0]) / contributions.units_of_one(kind)
        assert 1 - 1e-6 < moved <= 1
    substituted = measured_neighbours(plan_of(adjacency="substitute"), "orthogonal")
    totals = [contributions.total(request, [side]) for side in substituted]
    moved = np.linalg.norm(totals[1] - totals[0]) / contributions.units_of_one(kind)
    assert moved == pytest.approx(2.0 if kind is Scores else 0.0, abs=1e-6)


def test_all_units_are_asked_for():
    for units in (100, 101, 1000):
        plan = plan_of(measuring=dpvi.Measuring(units=units))
        assert sum(units_of(plan).values()) == units


def test_the_shipped_mechanism_gives_away_what_is_promised_and_not_more():
    plan = dpvi.plan(4.0, 1e-5, covariates=[Numeric(0, 1, bins=4)])
    found = dpvi.audit(plan, num_trials=TRIALS, seed=17)
    assert found.mode == "measuring"
    assert found.holds
    assert 0.5 < found.epsilon_lower < 4.0
    assert "Whole measuring runs: 300 of 4 answers" in str(found)
    assert dpvi.audit(plan, num_trials=100, seed=17, background="opposed").holds


class HalfTheNoise(Answers):
    def __init__(self, *given):
        super().__init__(*given)
        self._noise_multiplier /= 2


class SixteenPools(Answers):
    """Every question is answered as if it had been asked for sixteen times as many units, which nobody paid for."""

    def __call__(self, request):
        unpaid = request._replace(units=16 * request.units)
        self._units_left += 15 * request.units
        return super().__call__(unpaid)._replace(request=request)


class OneKey(Answers):
    def __init__(self, contributions, plan, blocks, key):
        super().__init__(contributions, plan, blocks, root_key(1))


@pytest.mark.parametrize("fault", [HalfTheNoise, SixteenPools, OneKey])
def test_planted_faults_of_the_noise_are_found(contributions, fault):
    found = audited(fault, contributions)
    assert not found.holds
    assert found.epsilon_lower > 4.0
    assert "THE PROMISE IS BROKEN" in str(found)


def test_a_record_that_is_clipped_to_twice_the_norm_is_found():
    class Twice(Contributions):
        def total(self, request, blocks):
            return 2 * super().total(request, blocks)

    assert audited(Answers, Twice(audited_model(), 64)).epsilon_lower > 4.0


@pytest.mark.parametrize("mode", ["step", "fits", "one_run"])
def test_modes_are_those_of_the_plan(mode):
    with pytest.raises(ValueError, match="takes no steps, and is audited with mode='measuring'"):
        dpvi.audit(plan_of(), mode=mode)
    with pytest.raises(ValueError, match="got 'measuring'"):
        dpvi.audit(dpvi.plan(1.0, 1e-5, 1.0, 2, 1.0), mode="measuring")
