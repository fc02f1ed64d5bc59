"""What a ledger allows, charges and refuses."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import dpvi
from dpvi.declared.validation import PrivacyWarning
from dpvi.ledger import Ledger, LedgerError, fingerprint
from dpvi.privacy.accounting import plan_epsilon
from dpvi.privacy.together import own_releases

DELTA = 1e-5
STEPS = {"sampling_rate": 0.02, "num_steps": 100, "clip_norm": 1.0}


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "people.ledger", epsilon=1.0, delta=DELTA, share_for_sampling=0.1)


@pytest.fixture
def exact(tmp_path):
    return Ledger(tmp_path / "exact.ledger", epsilon=1.0, delta=DELTA)


def test_one_plan_without_steps_may_take_the_whole_budget(exact):
    whole = dpvi.plan(epsilon=1.0, delta=DELTA)
    assert exact.reserve(whole) == "run-1"
    assert exact.epsilon_left < 1e-4
    with pytest.raises(LedgerError, match=r"spent 0\.0 %, reserved 100\.0 %, asked 100\.0 % .* left 0\.0 %"):
        exact.reserve(whole)
    exact.release("run-1", because="the machine went down before it began")
    assert exact.epsilon_left == pytest.approx(1.0)
    exact.commit(exact.reserve(dpvi.plan(epsilon=exact.epsilon_left, delta=DELTA)))
    assert exact.entries["run-1"].state == "released"
    assert "the machine went down" in str(exact)


def test_what_is_left_after_a_run_can_be_spent_and_not_more(exact):
    exact.commit(exact.reserve(dpvi.plan(epsilon=0.7, delta=DELTA)))
    left = exact.epsilon_left
    too_much = dpvi.plan(epsilon=1.001 * left, delta=DELTA)
    with pytest.raises(LedgerError, match=f"may have epsilon = {left:.4g}"):
        exact.check(too_much)
    assert len(exact.entries) == 1
    last = dpvi.plan(epsilon=left, delta=DELTA)
    exact.check(last)
    exact.commit(exact.reserve(last))
    listed = [release for entry in exact.entries.values() for release in entry.releases[0]]
    assert plan_epsilon(listed, DELTA) == pytest.approx(1.0, rel=1e-6)


def test_the_same_run_made_again_is_charged_again(exact):
    plan = dpvi.plan(epsilon=0.5, delta=DELTA)
    for _ in range(3):  # signals add up in squares
        with exact.charging(plan):
            pass
    with pytest.raises(LedgerError, match="does not hold this run"), exact.charging(plan):
        raise AssertionError("a run began that is not covered")
    assert [entry.state for entry in exact.entries.values()] == ["spent"] * 3


def test_a_killed_run_stays_reserved_until_it_is_released_by_name(exact):
    with pytest.raises(KeyboardInterrupt) as caught, exact.charging(dpvi.plan(epsilon=0.9, delta=DELTA)) as name:
        raise KeyboardInterrupt
    assert f"dpvi ledger release {exact.path} {name}" in caught.value.__notes__[0]
    assert exact.entries[name].state == "reserved"
    with pytest.raises(LedgerError, match="Reserved are run-1"):
        exact.reserve(dpvi.plan(epsilon=0.9, delta=DELTA))
    exact.release(name)
    for call in (exact.release, exact.commit):
        with pytest.raises(LedgerError, match="is released, and only one that is reserved"):
            call(name)
    spent = exact.reserve(dpvi.plan(epsilon=0.9, delta=DELTA))
    exact.commit(spent)
    with pytest.raises(LedgerError, match="is spent"):
        exact.release(spent)  # what was released is released for ever
    with pytest.raises(LedgerError, match="has no run 'run-7'"):
        exact.commit("run-7")


def test_a_result_is_not_lost_where_the_commit_cannot_be_written(exact):
    def run():
        with exact.charging(dpvi.plan(epsilon=0.5, delta=DELTA)):
            exact.path.chmod(0o444)
            return "the result"

    with pytest.warns(PrivacyWarning, match="stays reserved in its ledger, which counts as much as spent"):
        assert run() == "the result"
    assert exact.entries["run-1"].state == "reserved"


def test_what_no_budget_covers_is_refused(ledger, exact):
    with pytest.raises(LedgerError, match="NOT PRIVATE"):
        ledger.reserve(dpvi.plan_nonprivate(0.1, 5))
    with pytest.raises(LedgerError, match="seed below 2"):
        ledger.reserve(dpvi.plan(epsilon=0.1, delta=DELTA), seeds=[7])
    assert ledger.reserve(dpvi.plan(epsilon=0.1, delta=DELTA), seeds=[None, 2**200 + 1])
    with pytest.raises(LedgerError, match="keeps no part of delta"):
        exact.reserve(dpvi.plan(epsilon=0.1, delta=DELTA, **STEPS))
    with pytest.raises(TypeError, match=r"plans from dpvi\.plan"):
        ledger.reserve([])
    assert len(ledger.entries) == 1


@pytest.mark.parametrize(
    "other",
    [{"adjacency": "substitute"}, {"unit": "one patient"}, {"rows_per_unit": 2}, {"unit": "one unit"}],
)
def test_plans_that_protect_something_else_are_not_added_up(exact, other):
    (name,) = other if "rows_per_unit" not in other else ("unit",)
    with pytest.raises(LedgerError, match=f"This ledger's {name} is "):
        exact.reserve(dpvi.plan(epsilon=0.1, delta=DELTA, **other))


def test_units_of_several_rows_have_a_ledger_of_their_own(tmp_path):
    ledger = Ledger(tmp_path / "visits.ledger", epsilon=1.0, delta=DELTA, rows_per_unit=3, share_for_sampling=0.1)
    run = ledger.reserve(dpvi.plan(epsilon=0.5, delta=DELTA, rows_per_unit=3, **STEPS))
    assert "one unit with at most 3 rows" in str(ledger.guarantee)
    assert "one unit with at most 3 rows" in str(ledger)
    assert ledger.entries[run].releases[0][0].rows_per_unit == 3
    with pytest.raises(LedgerError, match="unit"):
        ledger.reserve(dpvi.plan(epsilon=0.1, delta=DELTA))


def test_declared_runs_cost_what_they_cost_together_and_each_runs_once(ledger):
    plan = dpvi.plan(epsilon=0.3, delta=DELTA, **STEPS)
    name = ledger.declare([plan, plan, plan])
    together = ledger.entries[name].epsilon
    assert together == pytest.approx(plan_epsilon([replace(plan.gradients, count=300)], DELTA), rel=1e-4)
    assert f"epsilon = {together:.4g} at delta = 1e-05 together" in str(ledger)
    used = ledger.epsilon_left
    runs = [ledger.reserve(plan) for _ in range(2)]
    assert ledger.epsilon_left == used  # nothing more
    ledger.release(runs[0])
    with pytest.raises(LedgerError, match="cannot be given back"):
        ledger.release(name)
    with pytest.raises(LedgerError, match="is a declaration"):
        ledger.commit(name)
    for run in [runs[1], ledger.reserve([plan, plan])]:
        ledger.commit(run)
    assert ledger.entries[name].state == "spent"
    assert ledger.epsilon_left == used
    again = ledger.reserve(plan)
    assert ledger.entries[again].of is None
    assert ledger.epsilon_left < used
    ledger.verify()


def test_a_declaration_of_which_nothing_was_run_can_be_given_back(ledger):
    name = ledger.declare([dpvi.plan(epsilon=0.9, delta=DELTA)])
    ledger.release(name)
    ledger.reserve(dpvi.plan(epsilon=0.9, delta=DELTA))
    assert ledger.entries["run-1"].of is None


def test_plans_made_together_are_charged_once(ledger):
    plans = list(dpvi.plan_together(0.9, DELTA, {"a": STEPS, "b": STEPS}, {"a": 0.4}).values())
    name = ledger.declare(plans)
    assert ledger.entries[name].epsilon == pytest.approx(0.9, rel=1e-3)
    for plan in plans:
        ledger.commit(ledger.reserve(plan))
    assert ledger.entries[name].state == "spent"
    ledger.verify()
    # each by itself has to pay for all that it lists, because nobody knows who makes the rest
    listed = plan_epsilon(plans[0].releases, DELTA)
    assert listed > plan_epsilon(own_releases(plans[0]), DELTA)


def test_a_release_that_a_plan_lists_besides_its_own_is_charged_for(exact):
    mean = dpvi.GaussianRelease("mean", 1.0, 1, 8.0, 1.0)
    with_mean = exact.reserve(dpvi.plan(epsilon=0.6, delta=DELTA, other_releases=[mean]))
    without = exact.reserve(dpvi.plan(epsilon=0.6, delta=DELTA))
    first, second = (exact.entries[name].charge.signal_squared for name in (with_mean, without))
    assert first == pytest.approx(second, rel=1e-6)


def test_terms_are_checked_and_never_change(tmp_path):
    path = tmp_path / "a.ledger"
    with pytest.raises(LedgerError, match="There is no ledger"):
        Ledger(path)
    for wrong, words in [
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"delta": 0.0}, "delta must lie"),
        ({"adjacency": "swap"}, "adjacency must be"),
        ({"share_for_sampling": 1.0}, "share_for_sampling must be"),
        ({"share_for_sampling": 1e-9}, "share_for_sampling must be"),
        ({"rows_per_unit": 0}, "rows_per_unit must be"),
    ]:
        with pytest.raises(ValueError, match=words):
            Ledger(path, **{"epsilon": 1.0, "delta": DELTA, **wrong})
        assert not path.exists()
    Ledger(path, epsilon=1.0, delta=DELTA, name="cohort")
    assert Ledger(path, epsilon=1.0, delta=DELTA).terms.name == "cohort"
    with pytest.raises(LedgerError, match="never change"):
        Ledger(path, epsilon=1.0, delta=DELTA, share_for_sampling=0.1)


def test_records_are_known_by_a_keyed_fingerprint_alone(tmp_path):
    records = np.arange(6.0)
    key, other = bytes(range(32)), bytes(32)
    assert fingerprint(key, records) == fingerprint(key, records.copy())
    assert len({fingerprint(key, records), fingerprint(other, records), fingerprint(key, records[:5])}) == 3
    with pytest.raises(ValueError, match="random bytes"):
        fingerprint(b"secret", records)
    ledger = Ledger(tmp_path / "a.ledger", epsilon=1.0, delta=DELTA, data=fingerprint(key, records))
    assert ledger.terms.data == fingerprint(key, records)
    with pytest.raises(LedgerError, match="with data="):
        Ledger(ledger.path, data=fingerprint(key, records + 1))
    with pytest.raises(TypeError, match="not the records"):
        Ledger(tmp_path / "b.ledger", epsilon=1.0, delta=DELTA, data=records)  # pyright: ignore


def test_the_guarantee_says_what_it_is_about(ledger):
    text = str(ledger.guarantee)
    assert "(ε = 1, δ = 1e-05)-differential privacy: adding or removing one record" in text
    assert "without this ledger is no part of the statement" in text
    ledger.reserve(dpvi.plan(epsilon=0.1, delta=DELTA, num_records=50))
    assert "blanking one record" in str(ledger.guarantee)


def test_a_run_that_was_released_while_it_went_on_gives_no_result(exact):
    """It would be published and not counted."""
    with pytest.raises(LedgerError) as raised, exact.charging(dpvi.plan(epsilon=0.5, delta=DELTA)) as name:
        exact.release(name or "run-1", because="it seemed to be dead")
    assert "withheld" in " ".join(raised.value.__notes__)


def test_a_carriage_return_does_not_free_what_was_spent(exact, tmp_path):
    exact.commit(exact.reserve(dpvi.plan(epsilon=0.9, delta=DELTA)))
    path = tmp_path / "exact.ledger"
    written = bytearray(path.read_bytes())
    written[len(written) // 2] = 0x0D
    path.write_bytes(bytes(written))
    with pytest.raises(LedgerError):
        Ledger(path).check(dpvi.plan(epsilon=0.5, delta=DELTA))


# of the accountant, far beyond any budget
@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
@pytest.mark.parametrize(("noise_multiplier", "rate"), [(1e5, 0.01), (0.03, 0.5)])
def test_plans_with_hardly_any_or_very_much_noise_are_charged_in_finite_time(ledger, noise_multiplier, rate):
    steps = {"sampling_rate": rate, "num_steps": 1, "clip_norm": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        plan = dpvi.plan(noise_multiplier=noise_multiplier, delta=DELTA, **steps)
    if noise_multiplier > 1:
        assert ledger.reserve(plan)
    else:
        with pytest.raises(LedgerError):
            ledger.reserve(plan)
