"""Declared columns and schedules: what is refused, and that plans keep them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from support.small_models import histogram_plan

import dpvi
from dpvi.declared.columns import Constant, Levels, Numeric, OneHot, counted
from dpvi.declared.plan import GaussianRelease, Plan

COLUMNS = (Numeric(0, 100, bins=10), Levels((2.0, 0.0, 1.0)), OneHot(5), OneHot(5, reference=True), Constant(1.0))


def test_widths_and_bins():
    assert [column.width for column in COLUMNS] == [1, 1, 5, 4, 1]
    assert [column.bins for column in COLUMNS] == [10, 3, 5, 5, 0]
    assert counted(COLUMNS) == 4
    assert counted((Constant(),)) == 1  # the total alone


def test_a_plan_with_columns_and_a_schedule_comes_back_from_its_file(tmp_path):
    plan = histogram_plan(COLUMNS, schedule=dpvi.Schedule(0.5, 3))
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan


NUMPY_SETTINGS = {
    "bounds": lambda: Numeric(*np.array([0, 120]), bins=np.int64(8)),
    "levels": lambda: Levels(tuple(np.arange(3, dtype=np.float32))),
    "indicators": lambda: OneHot(np.int32(5), reference=np.bool_(True)),
    "a constant": lambda: Constant(np.float32(1)),
}


@pytest.mark.parametrize("case", NUMPY_SETTINGS)
def test_numbers_from_arrays_are_stored_as_plain_ones(case, tmp_path):
    """They pass the checks, so they must also pass into a file: otherwise a run is paid for and cannot be kept."""
    plan = histogram_plan((NUMPY_SETTINGS[case](),), num_records=np.int64(5000))
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": dpvi.Schedule(np.float32(0.5), np.int64(3), np.float32(2))},
        {"epsilon": np.float32(1), "delta": np.float32(1e-5)},
        {"releases": (GaussianRelease("gradients", np.float32(0.1), np.int64(100), np.float32(1), np.array(1)),)},
        {"clipping": dpvi.QuantileClipping(np.float32(0.5), np.float32(0.2), np.float32(0.01), np.int64(50))},
    ],
)
def test_a_plan_of_numbers_from_arrays_is_written(settings):
    release = GaussianRelease("gradients", 0.1, 100, 1.0, 1.0)
    plan = Plan(**{"epsilon": 1.0, "delta": 1e-5, "releases": (release,), "accountant": "a label", **settings})
    assert Plan.from_dict(json.loads(plan.to_json())) == plan


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Numeric(1, 1), "lower below upper"),
        (lambda: Numeric(0, math.inf), "finite bounds"),
        (lambda: Numeric(0, 1, bins=0), "bins must be"),
        (lambda: Levels(()), "one or more distinct"),
        (lambda: Levels((1, 1)), "one or more distinct"),
        (lambda: OneHot(1, reference=True), "levels must be"),
        (lambda: OneHot(3, reference="no"), "True or False"),
        (lambda: OneHot(np.float64(5)), "levels must be a whole number"),
        (lambda: OneHot(np.bool_(True)), "levels must be a whole number"),
        (lambda: Constant(math.nan), "finite value"),
        (lambda: dpvi.Schedule(move_share=1.5), "move_share"),
        (lambda: dpvi.Schedule(num_blocks=0), "num_blocks"),
        (lambda: histogram_plan(COLUMNS, schedule=dpvi.Schedule(0.5, 60)), "too few to move"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_histograms_and_covariates_come_together():
    gradients = GaussianRelease("gradients", 0.1, 100, 1.0, 1.0)
    with pytest.raises(ValueError, match="only there"):
        Plan(1.0, 1e-5, (gradients,), "a label", covariates=COLUMNS)
    too_small = GaussianRelease("histograms", 1.0, 1, 10.0, 1.0)
    with pytest.raises(ValueError, match="once in each of 4 columns"):
        Plan(1.0, 1e-5, (gradients, too_small), "a label", covariates=COLUMNS)


def test_planning_pays_for_histograms():
    with_columns = dpvi.plan(1.0, 1e-5, 0.1, 1000, 1.0, covariates=COLUMNS, covariate_share=0.1)
    without = dpvi.plan(1.0, 1e-5, 0.1, 1000, 1.0)
    release = with_columns.release("histograms")
    assert release.clip_norm == 2.0
    # a tenth of the squared signal is gone: the gradients' noise grows by 1/√0.9
    assert with_columns.noise_multiplier / without.noise_multiplier == pytest.approx(0.9**-0.5, rel=0.02)
    assert with_columns.schedule == dpvi.Schedule()
    assert without.schedule is None
    from_noise = dpvi.plan(
        delta=1e-5, sampling_rate=0.1, num_steps=1000, clip_norm=1.0, noise_multiplier=with_columns.noise_multiplier,
        covariates=COLUMNS, covariate_share=0.1,
    )  # fmt: skip
    assert from_noise.epsilon == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0])
def test_a_share_is_a_share(share):
    with pytest.raises(ValueError, match="covariate_share"):
        dpvi.plan(1.0, 1e-5, 0.1, 1000, 1.0, covariates=COLUMNS, covariate_share=share)


def test_covariates_are_columns():
    with pytest.raises(TypeError, match="Numeric, Levels, OneHot, Constant"):
        dpvi.plan(1.0, 1e-5, 0.1, 1000, 1.0, covariates=[(0, 1)])
