"""Several runs under one budget: what they spend together, and what a joint statement may claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpvi.declared.columns import Levels
from dpvi.privacy import joint_guarantee, plan, plan_nonprivate, plan_together, verify
from dpvi.privacy.accounting import plan_epsilon
from dpvi.privacy.together import own_releases

DELTA = 1e-5
MIXTURE = {"sampling_rate": 0.02, "num_steps": 300, "clip_norm": 2.0}
REGRESSION = {"sampling_rate": 0.05, "num_steps": 200, "clip_norm": 1.0, "covariates": [Levels((0, 1))]}
SETTINGS = {"mixture": MIXTURE, "regression": REGRESSION}


@pytest.fixture(scope="module")
def plans():
    return plan_together(1.0, DELTA, SETTINGS, {"mixture": 0.4})


def guarantee_of(*plans):
    return joint_guarantee(plans, [one.guarantee for one in plans])


def test_all_runs_together_spend_the_budget_and_not_more(plans):
    released = [release for one in plans.values() for release in own_releases(one)]
    assert [release.name for release in released] == ["gradients", "gradients", "histograms"]
    spent = plan_epsilon(released, DELTA)
    assert 0.999 < spent <= 1.0 + 1e-9
    assert all(verify(one) <= 1.0 + 1e-6 for one in plans.values())
    # runs that each take the whole budget spend more
    alone = [plan(1.0, DELTA, **settings) for settings in SETTINGS.values()]
    assert plan_epsilon([release for one in alone for release in own_releases(one)], DELTA) > 1.2


def test_a_larger_share_has_less_noise(plans):
    other = plan_together(1.0, DELTA, SETTINGS, {"mixture": 0.8})
    assert other["mixture"].noise_multiplier < plans["mixture"].noise_multiplier
    assert other["regression"].noise_multiplier > plans["regression"].noise_multiplier


def test_a_joint_statement_is_one_plans_where_it_lists_all_and_a_sum_otherwise(plans):
    assert guarantee_of(plans["mixture"], plans["regression"]).epsilon == pytest.approx(1.0)
    twice = guarantee_of(plans["mixture"], plans["regression"], plans["regression"])
    assert (twice.epsilon, twice.delta) == (pytest.approx(3.0), pytest.approx(3 * DELTA))
    alone = plan(0.5, DELTA, **MIXTURE)
    summed = guarantee_of(alone, alone)
    assert (summed.epsilon, summed.delta) == (pytest.approx(1.0), pytest.approx(2 * DELTA))
    assert "basic composition" in str(summed)
    assert not guarantee_of(plan_nonprivate(0.1, 5), alone).private


def test_assumptions_of_every_run_are_kept(plans):
    first, second = plans["mixture"].guarantee.assuming("A seed."), plans["regression"].guarantee.assuming("A law.")
    found = joint_guarantee(list(plans.values()), [first, second]).assumptions
    assert {"A seed.", "A law."} <= set(found)
    assert len(found) == len(set(found))


def test_refusals(plans):
    with pytest.raises(ValueError, match="every block but the last"):
        plan_together(1.0, DELTA, SETTINGS, {"regression": 0.5})
    with pytest.raises(ValueError, match="leave something to 'regression'"):
        plan_together(1.0, DELTA, SETTINGS, {"mixture": 1.0})
    with pytest.raises(ValueError, match="Only the last block"):
        plan_together(1.0, DELTA, {"regression": REGRESSION, "mixture": MIXTURE}, {"regression": 0.5})
    with pytest.raises(ValueError, match="different changes"):
        guarantee_of(plans["mixture"], replace(plans["regression"], adjacency="substitute"))
