"""The frozen plan: its fields, its checks, its file."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from dpvi.declared.clipping import PerLayer, QuantileClipping
from dpvi.declared.columns import Constant, Numeric
from dpvi.declared.plan import GaussianRelease, Plan

GRADIENTS = GaussianRelease("gradients", sampling_rate=0.1, count=100, noise_multiplier=4.0, clip_norm=2.0)
HISTOGRAM = GaussianRelease("histogram", sampling_rate=1.0, count=1, noise_multiplier=12.0, clip_norm=1.0)


def make(**changes):
    fields = {"epsilon": 1.0, "delta": 1e-5, "releases": (GRADIENTS, HISTOGRAM), "accountant": "test"}
    return Plan(**{**fields, **changes})


def test_gradients_are_the_plan_s_own_settings():
    plan = make()
    assert (plan.sampling_rate, plan.num_steps, plan.noise_multiplier, plan.clip_norm) == (0.1, 100, 4.0, 2.0)
    assert plan.noise_scale == 8.0
    assert plan.release("histogram") is HISTOGRAM
    with pytest.raises(KeyError, match="no release named 'quantile'"):
        plan.release("quantile")


def test_no_noise_with_an_infinite_clip_is_zero_and_not_nan():
    assert dataclasses.replace(GRADIENTS, noise_multiplier=0.0, clip_norm=math.inf).noise_scale == 0.0


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().epsilon = 2.0


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_records": 1000, "unit": "one küsitlus"},
        {"adjacency": "substitute"},
        {"clipping": PerLayer({"b*": 1.2, "*": 1.6})},
        {"clipping": QuantileClipping(), "num_records": 500},
    ],
)
def test_json_round_trip_is_exact(changes, tmp_path):
    plan = make(releases=(dataclasses.replace(GRADIENTS, noise_multiplier=math.pi / 3),), **changes)
    assert Plan.from_json(plan.to_json()) == plan
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan


def test_infinite_numbers_survive_strict_json():
    release = dataclasses.replace(GRADIENTS, noise_multiplier=0.0, clip_norm=math.inf)
    plan = make(epsilon=math.inf, delta=0.0, releases=(release,))
    json.loads(plan.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert Plan.from_json(plan.to_json()) == plan
    assert not plan.private


@pytest.mark.parametrize(
    ("changes", "sentence"), [({"sampling_rate": 1.1}, "sampling_rate"), ({"count": 0}, "num_steps")]
)
def test_impossible_releases_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=f"{sentence} must"):
        dataclasses.replace(GRADIENTS, **changes)


def test_whole_numbers_stay_whole_on_the_way_through_a_file():
    stored = make().to_dict()
    stored["releases"][0]["count"] = float(GRADIENTS.count)
    assert isinstance(Plan.from_dict(stored).num_steps, int)


def test_a_public_size_and_an_unusual_unit_are_assumptions():
    guarantee = make(num_records=100, unit="one patient").guarantee
    assert "privacy: blanking one patient" in str(guarantee)
    assert "adding or removing one patient" in str(make(unit="one patient").guarantee)
    sentences = guarantee.assumptions
    assert any("number of records is declared public" in sentence for sentence in sentences)
    assert any("one patient, is exactly one row" in sentence for sentence in sentences)
    with pytest.raises(TypeError, match="unit must name"):
        make(unit=3)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"releases": (HISTOGRAM,)}, "exactly one release named 'gradients'"),
        ({"releases": (GRADIENTS, HISTOGRAM, HISTOGRAM)}, "distinct names"),
        ({"releases": (dataclasses.replace(GRADIENTS, noise_multiplier=0.0),)}, "noise_multiplier must"),
        ({"releases": (dataclasses.replace(GRADIENTS, clip_norm=math.inf),)}, "clip_norm must"),
        ({"epsilon": math.nan}, "epsilon must"),
        ({"epsilon": -1.0}, "epsilon must"),
        ({"delta": 0.0}, "delta must"),
        ({"num_records": 0}, "num_records must"),
        ({"adjacency": "swap"}, "adjacency must"),
    ],
)
def test_impossible_plans_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(**changes)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "no", '{"format_version": 1}', '{"format_version": 1, "releases": [3]}']
)
def test_files_that_are_no_plans_get_a_sentence(text):
    with pytest.raises(ValueError, match=r"plan") as caught:
        Plan.from_json(text)
    assert "\n" not in str(caught.value)


def test_tampered_types_are_refused():
    content = make().to_dict()
    for change in ({"epsilon": "1.0"}, {"epsilon": float("nan")}, {"delta": None}, {"surprise": 1}):
        with pytest.raises(ValueError):
            Plan.from_dict({**content, **change})


def test_plans_of_the_first_format_are_read():
    content = make().to_dict()
    del content["clipping"]
    assert Plan.from_dict({**content, "format_version": 1}) == make()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clipping": PerLayer({"a": 1.0, "b": 1.0})}, "combine to 1.41421, but the plan states 2"),
        ({"clipping": QuantileClipping()}, "expected_batch"),
        (
            {
                "clipping": QuantileClipping(expected_batch=3.0),
                "covariates": (Numeric(0, 1), Constant()),
                "releases": (GRADIENTS, dataclasses.replace(HISTOGRAM, name="histograms")),
            },
            "score posterior alone",
        ),
    ],
)
def test_clipping_that_does_not_fit_the_plan_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(**changes)
    with pytest.raises(TypeError, match="clipping must be"):
        make(clipping=3.0)


def test_a_public_size_gives_the_expected_batch():
    assert make(clipping=QuantileClipping(), num_records=500).clipping.expected_batch == 50


def test_another_format_is_named():
    with pytest.raises(ValueError, match="plan of format 99"):
        Plan.from_dict({**make().to_dict(), "format_version": 99})
