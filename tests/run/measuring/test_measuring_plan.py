"""Plans that measure: tight, never below the truth, and exactly what a run may release."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import dpvi
from dpvi.declared.columns import Constant, Numeric, OneHot
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.privacy import joint_guarantee, verify
from dpvi.privacy.together import own_releases

TWO = [Numeric(-1, 1), Numeric(0, 5)]
SENSITIVITY = {"add_remove": 1.0, "substitute": 2.0}


def signal(plan: Plan) -> float:
    """μ of the composition, from its releases alone."""
    return math.sqrt(sum(r.count * (SENSITIVITY[plan.adjacency] / r.noise_multiplier) ** 2 for r in plan.releases))


def true_delta(plan: Plan) -> float:
    mu, epsilon = signal(plan), plan.epsilon
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


@settings(max_examples=30)
@given(
    st.floats(0.05, 9.9),
    st.floats(1e-9, 1e-2),
    st.sampled_from([None, [], TWO, [OneHot(4), Constant()]]),
    st.sampled_from(["add_remove", "substitute"]),
    st.sampled_from([None, 500]),
)
def test_the_budget_is_spent_and_not_exceeded(epsilon, delta, columns, adjacency, num_records):
    plan = dpvi.plan(epsilon, delta, covariates=columns, adjacency=adjacency, num_records=num_records)
    assert true_delta(plan) <= delta * (1 + 1e-9)
    assert true_delta(plan) >= delta * (1 - 1e-4)
    assert epsilon * (1 - 1e-4) <= verify(plan) <= epsilon * (1 + 1e-9)


def test_histograms_have_their_share_of_the_squared_signal_and_units_all_the_rest():
    plan, measuring = dpvi.plan(1.0, 1e-6, covariates=TWO), dpvi.Measuring()
    total = signal(plan) ** 2
    shares = {r.name: r.count / r.noise_multiplier**2 / total for r in plan.releases}
    share = measuring.covariate_share
    assert shares == pytest.approx({"gradients": 1 - share, "histograms": share}, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, ["gradients", "histograms"]),
        ({"num_records": 10}, ["gradients"]),
        ({"num_records": 10, "covariates": []}, ["gradients"]),
        ({"covariates": [Numeric(0, 1), Constant()]}, ["gradients", "histograms"]),
        ({"covariates": [OneHot(3)], "num_records": 10}, ["gradients", "histograms"]),
    ],
)
def test_only_what_can_be_asked_is_paid_for(settings, names):
    plan = dpvi.plan(1.0, 1e-6, **settings)
    assert [release.name for release in plan.releases] == names
    assert true_delta(plan) == pytest.approx(1e-6, rel=1e-4)


def test_units_divide_the_budget_and_do_not_change_it():
    coarse, fine = (dpvi.plan(1.0, 1e-6, measuring=dpvi.Measuring(units=units)) for units in (100, 4000))
    assert (coarse.num_steps, fine.num_steps) == (100, 4000)
    assert signal(coarse) == pytest.approx(signal(fine), rel=1e-6)
    assert dpvi.plan(1.0, 1e-6, covariate_share=0.5).measuring == dpvi.Measuring(covariate_share=0.5)


def test_a_plan_survives_storage_and_older_plans_are_read():
    plan = dpvi.plan(1.0, 1e-6, covariates=TWO)
    assert Plan.from_json(plan.to_json()) == plan
    steps = dpvi.plan(1.0, 1e-6, 1.0, 10, 1.0)
    assert "measuring" not in json.loads(steps.to_json())
    assert Plan.from_json(steps.to_json()).measuring is None


def test_the_guarantee_speaks_of_all_records():
    text = str(dpvi.plan(1.0, 1e-6).guarantee)
    assert "sum over all records" in text
    assert "Poisson" not in text
    assert "sampling rate" not in text


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_steps": 10}, "clip_norm must be a number"),
        ({"num_steps": 10, "clip_norm": 1.0}, "sampling_rate must be a number"),
        ({"sampling_rate": 0.1, "num_steps": 10}, "clip_norm must be a number"),
        ({"schedule": dpvi.Schedule()}, "schedule is a setting of steps"),
        ({"clipping": dpvi.QuantileClipping(expected_batch=10)}, "clipping is a setting of steps"),
        ({"epsilon": None, "noise_multiplier": 1.0}, "noise_multiplier is a setting of steps"),
        ({"measuring": dpvi.Measuring(), "covariate_share": 0.1}, "not both"),
        ({"measuring": 3}, "must be a dpvi.Measuring"),
        (
            {"measuring": dpvi.Measuring(), "sampling_rate": 0.1, "num_steps": 1, "clip_norm": 1.0},
            "for plans without steps",
        ),
        ({"covariates": [3]}, "covariates must be"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        dpvi.plan(**{"epsilon": 1.0, "delta": 1e-6, **settings})


@pytest.mark.parametrize(
    "settings",
    [{"covariate_share": 0.0}, {"covariate_share": 1.0}, {"units": 99}, {"units": 0}, {"units": 150.0}],
)
def test_bad_shares_and_units_are_refused(settings):
    with pytest.raises(ValueError, match=r"share|units"):
        dpvi.Measuring(**settings)


@pytest.mark.parametrize(
    "change",
    [
        {"sampling_rate": 0.5},
        {"count": 3},
        {"clip_norm": 2.0},
        {"name": "something"},
    ],
)
def test_a_plan_whose_releases_are_others_is_refused(change):
    plan = dpvi.plan(1.0, 1e-6, covariates=TWO)
    releases = [replace(r, **change) if r.name == "gradients" else r for r in plan.releases]
    with pytest.raises(ValueError, match=r"A plan with measuring=|The release|exactly one release"):
        replace(plan, releases=tuple(releases))


def test_a_plan_without_the_number_of_records_is_refused():
    plan = dpvi.plan(1.0, 1e-6, num_records=10)
    with pytest.raises(ValueError, match="needs the number of records"):
        replace(plan, num_records=None)
    with pytest.raises(ValueError, match="takes no steps"):
        replace(plan, schedule=dpvi.Schedule())


def test_other_releases_and_runs_are_composed():
    other = GaussianRelease("mine", 1.0, 1, 10.0, 1.0)
    plan = dpvi.plan(1.0, 1e-6, covariates=TWO, other_releases=[other])
    assert true_delta(plan) == pytest.approx(1e-6, rel=1e-4)
    assert [r.name for r in own_releases(plan)] == ["gradients", "histograms"]
    steps = dpvi.plan(1.0, 1e-6, 1.0, 2, 1.0, other_releases=[replace(other, name="norms")])
    assert [r.name for r in own_releases(steps)] == ["gradients"]


def test_the_last_of_several_runs_may_measure():
    steps = {"sampling_rate": 1.0, "num_steps": 5, "clip_norm": 1.0}
    plans = dpvi.plan_together(1.0, 1e-6, {"steps": steps, "measured": {"covariates": TWO}}, {"steps": 0.3})
    both = list(plans.values())
    assert plans["measured"].measuring is not None
    assert joint_guarantee(both, [one.guarantee for one in both]).epsilon == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(ValueError, match="Only the last block may measure"):
        dpvi.plan_together(1.0, 1e-6, {"measured": {}, "steps": steps}, {"measured": 0.3})
