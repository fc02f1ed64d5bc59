"""Audits of the shipped mechanism and of planted faults; the long table is ``make audit``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from harness.audit_faults import FAULTS, Fault, plan_of
from support.statistics import assert_close, assert_variance

import dpvi
from dpvi.auditing.canaries import count_score, covariate_rows
from dpvi.auditing.mechanism import noisy_counts

QUICK = [fault for fault in FAULTS if fault.mode == "step" and (fault.sampling_rate == 1 or fault.num_trials < 30_000)]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("sampling_rate", [1.0, 0.5])
def test_the_shipped_mechanism_gives_away_what_is_promised_and_not_more(epsilon, sampling_rate):
    trials = 100_000 if sampling_rate == 1 else 30_000
    found = dpvi.audit(plan_of(epsilon, sampling_rate), num_trials=trials, seed=11)
    assert found.holds
    assert epsilon / 2 < found.epsilon_lower < epsilon


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: f"{fault.name}, {fault.epsilon:g}, {fault.sampling_rate:g}")
def test_planted_faults_are_found(fault):
    found = fault.audit(seed=12)
    assert not found.holds
    assert found.epsilon_lower > found.promise
    assert "THE PROMISE IS BROKEN" in str(found)


@pytest.mark.parametrize("background", ["orthogonal", "opposed"])
def test_backgrounds_change_nothing_for_the_shipped_mechanism(background):
    """What the faults are found with does not accuse the honest; fixed batches are found with one of the two alone."""
    assert dpvi.audit(plan_of(1.0, 0.5), num_trials=10_000, background=background, seed=13).holds
    fixed = next(fault for fault in FAULTS if fault.name == "batches of a fixed size")
    settings = {**fixed.__dict__, "background": background, "num_trials": 10_000}
    assert Fault(**settings).audit(seed=13).holds == (background == "orthogonal")


def test_histograms_show_the_canary_under_their_noise():
    """The canary counts in the first bin of both columns, the others in the last; 20 draws of 7 bins have the noise."""
    plan = plan_of(1.0, 1.0, (dpvi.Numeric(0, 1, bins=4), dpvi.OneHot(3)))
    rows = np.concatenate([covariate_rows(plan.covariates, last) for last in (False, True, True)])
    counts = np.array([noisy_counts(plan, rows, seed) for seed in range(20)])
    scale = plan.release("histograms").noise_scale
    assert_close(counts.mean(axis=0), [1, 0, 0, 2, 1, 0, 2], scale / np.sqrt(20))
    assert_variance((counts - [1, 0, 0, 2, 1, 0, 2]).ravel(), scale**2)
    exact = np.array([1.0, 0, 0, 2, 1, 0, 2])
    sigma = plan.release("histograms").noise_multiplier
    assert count_score(plan, exact, 2) == pytest.approx(0.5 / sigma**2)
    assert count_score(plan, exact - [1, 0, 0, 0, 1, 0, 0], 2) == pytest.approx(-0.5 / sigma**2)


def test_a_picture_of_guesses_that_never_err(tmp_path):
    fault = next(fault for fault in FAULTS if fault.name == "one key for all runs")
    fault.audit(seed=14).save(tmp_path / "audit.png")
    assert (tmp_path / "audit.png").stat().st_size > 1000


def test_whole_fits_give_away_what_is_promised_and_half_the_noise_is_found():
    found = dpvi.audit(plan_of(4.0, 0.5), mode="fits", num_trials=600, seed=14)
    assert found.holds
    assert 1.0 < found.epsilon_lower < 4.0
    planted = next(fault.planted for fault in FAULTS if (fault.name, fault.mode) == ("half the noise", "fits"))
    fault = Fault("half the noise", mode="fits", epsilon=4.0, sampling_rate=0.5, num_trials=600, planted=planted)
    assert fault.audit(seed=14).epsilon_lower > 4.0


def test_one_run_with_many_canaries():
    found = dpvi.audit(plan_of(4.0, 1.0), mode="one_run", num_trials=1_000, seed=15)
    assert found.holds
    assert 1.0 < found.epsilon_lower < 4.0


def test_substitution_is_audited_with_a_canary_and_its_mirror():
    plan = dpvi.plan(4.0, 1e-5, 1.0, 10, 2.0, adjacency="substitute")
    found = dpvi.audit(plan, num_trials=50_000, seed=16)
    assert 3.5 < found.epsilon_lower < 4.0
    with pytest.raises(ValueError, match="add/remove adjacency alone"):
        dpvi.audit(plan, mode="one_run")


def test_an_audit_is_repeatable_with_a_seed_and_only_then():
    plan = plan_of(1.0, 1.0)
    first, second, other = (dpvi.audit(plan, num_trials=1_000, seed=seed).counts for seed in (1, 1, 2))
    assert first == second != other
    assert dpvi.audit(plan, num_trials=1_000).counts != dpvi.audit(plan, num_trials=1_000).counts


def test_a_report_is_json_text_and_a_picture(tmp_path):
    found = dpvi.audit(plan_of(1.0, 1.0), num_trials=2_000, seed=3)
    found.save(tmp_path / "audit.json")
    content = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert content["epsilon_lower"] == found.epsilon_lower
    assert content["plan"]["epsilon"] == 1.0
    found.save(tmp_path / "audit.svg")
    assert (tmp_path / "audit.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "promise    epsilon = 1 at delta = 1e-05" in str(found)
    with pytest.raises(ValueError, match=r"got 'audit.txt'"):
        found.save(tmp_path / "audit.txt")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mode": "guess"}, "mode must be one of 'step', 'fits', 'one_run'"),
        ({"background": "none"}, "background must be one of"),
        ({"confidence": 1.0}, "confidence must lie in"),
        ({"num_trials": 10}, "num_trials must be a whole number of at least 100"),
        ({"plan": dpvi.plan_nonprivate(0.5, 10, 1.0)}, "promises nothing"),
        ({"plan": dpvi.plan(1.0, 1e-5, 0.5, 10, clipping=dpvi.PerLayer({"*": 1.0}))}, "one fixed clip norm"),
    ],
)
def test_what_cannot_be_audited_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        dpvi.audit(**{"plan": plan_of(1.0, 1.0), **changes})
    with pytest.raises(TypeError, match=r"plan must come from dpvi.plan"):
        dpvi.audit("plan.json")
