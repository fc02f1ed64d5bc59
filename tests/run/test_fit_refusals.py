"""``dpvi.fit`` and bad input: one clear sentence, at once, with nothing written."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.small_models import RECORDS, location_model, private_plan

import dpvi
from dpvi.gradients import Vanilla

MODEL = location_model()
NUM_STEPS = 20
PLAN = private_plan(NUM_STEPS)


def fit(data=RECORDS, plan=PLAN, model=MODEL, **options):
    options.setdefault("seed", 1)
    return dpvi.fit(model, data, plan, progress=False, **options)


def _no_plate(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean, 1.0).expand([2]).to_event(1), obs=y[0])


@dataclasses.dataclass(frozen=True)
class _OfArrays(Vanilla):
    """An estimator of one's own with a setting that no file could hold."""

    weights: Any = None


class _Undescribed:
    """An estimator of one's own whose settings nobody can list."""

    num_draws = 1
    release = release_size = reconstruct = check = Vanilla().check


REFUSED = {
    "a setting that could not be saved": (
        {"estimator": _OfArrays(weights=np.ones(2))},
        TypeError,
        "the estimator of this run could not be",
    ),
    "settings that could not be saved": ({"estimator": _Undescribed()}, TypeError, "must be a dataclass"),
    "no arrays": ({"data": ()}, ValueError, "at least one array"),
    "no records": ({"data": np.zeros((0, 2))}, ValueError, "at least one record"),
    "leaves of different length": ({"data": (np.zeros((4, 2)), np.zeros(3))}, ValueError, "same number of rows"),
    "text": ({"data": np.array(["a", "b"])}, TypeError, "numbers or booleans"),
    "dates": ({"data": np.array(["2020-01-01"], "datetime64[D]")}, TypeError, "numbers or booleans"),
    "complex numbers": ({"data": np.zeros((3, 2), complex)}, TypeError, "numbers or booleans"),
    "a single number": ({"data": 3.0}, ValueError, "one row per record"),
    "a plan that is none": ({"plan": {"epsilon": 1.0}}, TypeError, r"plan must come from dpvi\.plan"),
    "no Fisher matrix": (
        {"family": dpvi.FullRank(), "estimator": dpvi.Natural()},
        ValueError,
        "exists for MeanField only",
    ),
    "none for low rank": (
        {"family": dpvi.LowRank(1), "estimator": dpvi.AlignedNatural()},
        ValueError,
        "exists for MeanField only",
    ),
    "1/T' of low rank": (
        {"family": dpvi.LowRank(1), "estimator": dpvi.Preconditioned()},
        ValueError,
        "exists for MeanField only",
    ),
    "beta of another length": ({"estimator": dpvi.Preconditioned(beta=(1.0,))}, ValueError, "expected 4, got 1"),
    "a model without record plate": ({"model": _no_plate}, dpvi.ModelError, "plate"),
    "a model that is none": ({"model": "logistic"}, TypeError, "model must be a NumPyro function"),
    "a number for an optimiser": ({"optimizer": 0.01}, TypeError, "optimizer must be an optax optimiser"),
    "microbatches of none": (
        {"microbatch_size": 0},
        ValueError,
        "microbatch_size must be a whole number of at least 1",
    ),
    "microbatches of a half": ({"microbatch_size": 2.5}, ValueError, "microbatch_size must be a whole number"),
    "a seed that is no whole number": ({"seed": 1.5}, TypeError, "seed must be a whole number"),
    "a seed that is a key": ({"seed": np.zeros(2, np.uint32)}, TypeError, "seed must be a whole number"),
    "a location of another length": ({"initial_location": [1.0, 2.0, 3.0]}, ValueError, "2 finite numbers or a dict"),
    "a location that is not finite": ({"initial_location": [1.0, np.nan]}, ValueError, "2 finite numbers or a dict"),
    "a location without a site": ({"initial_location": {"w": 1.0}}, ValueError, "'z' is missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_one_sentence_before_anything_runs(case, tmp_path, monkeypatch, capsys):
    options, kind, message = REFUSED[case]
    monkeypatch.chdir(tmp_path)

    def must_not_run(*_, **__):
        raise AssertionError("a step was taken")

    monkeypatch.setattr("dpvi.run.fitting.Run.__call__", must_not_run)
    with pytest.raises(kind, match=message) as caught:
        fit(**options)
    assert str(caught.value).rstrip().endswith(".")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert "".join(capsys.readouterr()) == ""


NUMPY_SETTINGS = {
    "a family": {"family": dpvi.LowRank(np.int64(1), initial_scale=np.float32(0.1))},
    "an estimator": {"estimator": dpvi.Vanilla(np.int64(2))},
    "a plan": {"plan": dataclasses.replace(PLAN, num_records=np.int64(len(RECORDS)))},
    "microbatches": {"microbatch_size": np.int64(4)},
}


@pytest.mark.parametrize("case", NUMPY_SETTINGS)
def test_a_run_with_numbers_from_arrays_is_saved(case, tmp_path):
    result = fit(**NUMPY_SETTINGS[case])
    result.save(tmp_path / "result.dpvi")
    loaded = dpvi.Result.load(tmp_path / "result.dpvi")
    assert (loaded.plan, loaded.family, loaded.estimator) == (result.plan, result.family, result.estimator)


@pytest.mark.parametrize("leaves", [(np.zeros((4127, 2)), np.zeros(4128)), np.array(["secret"] * 4127)])
def test_refusals_name_neither_values_nor_numbers_of_records(leaves):
    with pytest.raises((ValueError, TypeError)) as caught:
        fit(leaves)
    assert "412" not in str(caught.value)
    assert "secret" not in str(caught.value)
