"""Units of several rows: one row as before, k times the sensitivity without sampling, and independent numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

import dpvi
from dpvi.declared.columns import Levels
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.privacy import accounting, joint_guarantee, plan, plan_together, verify
from dpvi.privacy.trade_off import trade_off

SAMPLED = {"sampling_rate": 0.02, "num_steps": 200, "clip_norm": 1.0}


def release(multiplier, rate, count, rows):
    return GaussianRelease("gradients", rate, count, multiplier, 1.0, rows)


def hockey_stick(multiplier, rate, rows, epsilon):
    """δ(ε) of one step by quadrature of max(0, p - exp(ε) q), the worse of both directions."""
    outputs = np.linspace(-14 * multiplier, rows + 14 * multiplier, 400_001)
    drawn = binom.pmf(np.arange(rows + 1), rows, rate)
    with_unit = sum(weight * norm.pdf(outputs, j, multiplier) for j, weight in enumerate(drawn))
    without = norm.pdf(outputs, 0, multiplier)
    return max(
        np.trapezoid(np.maximum(0, with_unit - math.exp(epsilon) * without), outputs),
        np.trapezoid(np.maximum(0, without - math.exp(epsilon) * with_unit), outputs),
    )


@pytest.mark.parametrize("settings", [SAMPLED, {**SAMPLED, "adjacency": "substitute"}, {}])
def test_one_row_is_what_was_before(settings):
    one = plan(epsilon=1.0, delta=1e-5, rows_per_unit=1, **settings)
    assert one == plan(epsilon=1.0, delta=1e-5, **settings)
    assert "rows_per_unit" not in one.to_json()
    assert "rows" not in str(one.guarantee).partition("Assumes")[0]


@pytest.mark.parametrize("adjacency", ["add_remove", "substitute"])
def test_without_sampling_two_rows_double_the_sensitivity(adjacency):
    for count in (1, 30):
        found = accounting.plan_epsilon([release(6.0, 1.0, count, 2)], 1e-6, adjacency)
        assert found == pytest.approx(
            accounting.plan_epsilon([release(3.0, 1.0, count, 1)], 1e-6, adjacency), rel=1e-12
        )
    several = plan(epsilon=1.0, delta=1e-6, covariates=[Levels((0, 1))], adjacency=adjacency, rows_per_unit=3)
    one = plan(epsilon=1.0, delta=1e-6, covariates=[Levels((0, 1))], adjacency=adjacency)
    for name in ("gradients", "histograms"):
        ratio = several.release(name).noise_multiplier / one.release(name).noise_multiplier
        assert ratio == pytest.approx(3, rel=1e-9)


@pytest.mark.parametrize(
    ("multiplier", "rate", "rows", "epsilon"),
    [(1.0, 0.1, 2, 0.3), (2.0, 0.05, 5, 0.1), (0.7, 0.3, 3, 1.0), (1.0, 0.01, 20, 0.2), (3.0, 0.999, 4, 0.5)],
)
def test_one_sampled_step_is_its_hockey_stick_divergence(multiplier, rate, rows, epsilon):
    found = accounting.plan_delta([release(multiplier, rate, 1, rows)], epsilon)
    exact = hockey_stick(multiplier, rate, rows, epsilon)
    assert exact * (1 - 1e-8) <= found <= exact * (1 + 1e-4)
    assert hockey_stick(multiplier, rate, rows - 1, epsilon) < 0.95 * exact  # one row less is another number


def test_many_sampled_steps_agree_with_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution

    rows, rate = 3, 0.02
    step = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        standard_deviation=2.0,
        sensitivities=list(range(rows + 1)),
        sampling_probs=list(binom.pmf(np.arange(rows + 1), rows, rate)),
        value_discretization_interval=1e-3,
    )
    theirs = step.self_compose(300).get_epsilon_for_delta(1e-6)
    assert accounting.plan_epsilon([release(2.0, rate, 300, rows)], 1e-6) == pytest.approx(theirs, rel=1e-3)


def test_rare_counts_of_rows_are_left_out_as_an_infinite_loss():
    fifty = accounting.plan_epsilon([release(8.0, 0.01, 20, 50)], 1e-6)
    forty = accounting.plan_epsilon([release(8.0, 0.01, 20, 40)], 1e-6)
    everything = accounting.plan_epsilon([release(8.0, 1.0, 20, 50)], 1e-6)
    assert forty < fifty < everything / 5


def test_a_sampled_plan_of_several_rows_meets_its_budget_and_is_stored():
    made = plan(epsilon=1.0, delta=1e-5, rows_per_unit=4, covariates=[Levels((0, 1))], **SAMPLED)
    assert 0.999 < accounting.plan_epsilon(made.releases, 1e-5) <= 1.0 + 1e-9
    stored = Plan.from_json(made.to_json())
    assert stored == made
    assert stored.rows_per_unit == 4
    assert verify(stored) <= 1.0 + 1e-6
    # a file that claims the same budget for more rows is found out
    with pytest.raises(ValueError, match="its releases spend"):
        verify(Plan.from_json(made.to_json().replace('"rows_per_unit": 4', '"rows_per_unit": 5')))
    curve = trade_off(made.releases)
    assert float(curve.false_negative_rate(1e-5)) >= 1 - 1e-5 - math.e * 1e-5 - 1e-9


def test_the_guarantee_names_the_unit_and_whose_duty_its_rows_are():
    text = str(plan(epsilon=1.0, delta=1e-6, rows_per_unit=2).guarantee)
    assert "adding or removing one unit with at most 2 rows changes" in text
    assert "No unit has more than 2 rows of the data. Nothing here checks that" in text
    patient = plan(epsilon=1.0, delta=1e-6, rows_per_unit=2, unit="one patient", num_records=50).guarantee
    assert "blanking one patient with at most 2 rows (putting empty records" in str(patient)
    assert "exactly one row" not in str(patient)


def test_mixed_or_unknown_worst_cases_are_refused():
    with pytest.raises(ValueError, match="needs adjacency 'add_remove'"):
        plan(epsilon=1.0, delta=1e-6, rows_per_unit=2, adjacency="substitute", **SAMPLED)
    with pytest.raises(ValueError, match="rows_per_unit must be a whole number"):
        plan(epsilon=1.0, delta=1e-6, rows_per_unit=0)
    with pytest.raises(ValueError, match="rows_per_unit differs"):
        plan(epsilon=1.0, delta=1e-6, rows_per_unit=2, other_releases=[GaussianRelease("mean", 1.0, 1, 9.0, 1.0, 3)])
    taken = plan(epsilon=1.0, delta=1e-6, rows_per_unit=2, other_releases=[GaussianRelease("mean", 1.0, 1, 90.0, 1.0)])
    assert taken.release("mean").rows_per_unit == 2
    one, two = plan(epsilon=1.0, delta=1e-6), plan(epsilon=1.0, delta=1e-6, rows_per_unit=2)
    with pytest.raises(ValueError, match="different changes of the records"):
        joint_guarantee([one, two], [one.guarantee, two.guarantee])
    with pytest.raises(ValueError, match="one row"):
        dpvi.audit(plan(epsilon=1.0, delta=1e-5, rows_per_unit=2, **SAMPLED))


def test_several_runs_share_a_budget_for_units_of_several_rows():
    settings = {**SAMPLED, "rows_per_unit": 2}
    plans = plan_together(1.0, 1e-5, {"a": settings, "b": settings}, {"a": 0.5})
    assert [one.rows_per_unit for one in plans.values()] == [2, 2]
    assert all(verify(one) <= 1.0 + 1e-6 for one in plans.values())
