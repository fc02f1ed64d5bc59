"""Plans: calibrated, checked at once, stored, run without the accountant, and verified."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest

from dpvi.declared.clipping import PerLayer, QuantileClipping
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.privacy import Guarantee, PrivacyWarning, plan, plan_nonprivate, verify
from dpvi.privacy.accounting import plan_epsilon
from dpvi.privacy.planning import warn_about_delta

GOOD = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.1, "num_steps": 100, "clip_norm": 3.0}
HISTOGRAM = GaussianRelease("histogram", sampling_rate=1.0, count=1, noise_multiplier=12.0, clip_norm=1.0)


def test_the_whole_plan_meets_the_budget():
    made = plan(**GOOD, other_releases=[HISTOGRAM])
    assert [release.name for release in made.releases] == ["gradients", "histogram"]
    assert 1 - 1e-4 < plan_epsilon(made.releases, 1e-5) <= 1.0
    assert made.noise_multiplier > plan(**GOOD).noise_multiplier
    assert made.noise_scale == made.noise_multiplier * 3.0


def test_noise_given_epsilon_computed():
    settings = {**GOOD, "epsilon": None}
    made = plan(**settings, noise_multiplier=5.0)
    assert made.noise_multiplier == 5.0
    assert verify(made) == made.epsilon
    assert plan(**{**GOOD, "epsilon": made.epsilon}).noise_multiplier == pytest.approx(5.0, rel=1e-4)


def test_positional_arguments_follow_the_documented_order():
    assert plan(1.0, 1e-5, 0.1, 100, 3.0) == plan(**GOOD)


@pytest.mark.parametrize("extra", [{"noise_multiplier": 1.0}, {"epsilon": None}])
def test_exactly_one_of_epsilon_and_noise(extra):
    with pytest.raises(ValueError, match="exactly one of epsilon"):
        plan(**{**GOOD, **extra})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("epsilon", math.inf),
        ("epsilon", "1"),
        ("delta", 0.0),
        ("delta", 1.0),
        ("delta", -1e-05),
        ("delta", math.nan),
        ("delta", None),
        ("delta", 1e-13),
        ("sampling_rate", 0.0),
        ("sampling_rate", 1.5),
        ("sampling_rate", math.nan),
        ("sampling_rate", "0.1"),
        ("num_steps", 0),
        ("num_steps", -5),
        ("num_steps", 2.5),
        ("num_steps", math.nan),
        ("num_steps", "many"),
        ("clip_norm", 0.0),
        ("clip_norm", -1.0),
        ("clip_norm", math.inf),
        ("clip_norm", math.nan),
        ("clip_norm", True),
        ("adjacency", "fixed_size"),
        ("num_records", 0),
        ("num_records", 2.5),
    ],
)
def test_bad_settings_get_one_sentence_that_names_them(name, value):
    with pytest.raises((ValueError, TypeError), match=f"^{name} must ") as caught:
        plan(**{**GOOD, name: value})
    assert "\n" not in str(caught.value)


def test_bad_settings_are_refused_before_any_accounting(monkeypatch):
    monkeypatch.setattr("dpvi.privacy.planning.release_noise_multiplier", None)
    with pytest.raises(ValueError, match="clip_norm"):
        plan(**{**GOOD, "clip_norm": -1.0})
    with pytest.raises(ValueError, match="noise_multiplier"):
        plan(**GOOD, other_releases=[replace(HISTOGRAM, noise_multiplier=0.0)])
    with pytest.raises(ValueError, match="distinct names"):
        plan(**GOOD, other_releases=[HISTOGRAM, HISTOGRAM])


def test_nonprivate_plan_says_so():
    made = plan_nonprivate(0.1, 100)
    assert made.epsilon == math.inf
    assert made.noise_scale == 0.0
    assert str(made.guarantee).startswith("NOT PRIVATE")
    assert verify(made) == math.inf
    assert Plan.from_json(made.to_json()) == made
    with pytest.raises(ValueError, match="clip_norm"):
        plan_nonprivate(0.1, 100, clip_norm=-1.0)


def test_guarantee_reads_as_a_sentence():
    made = plan(**GOOD, adjacency="substitute", unit="one patient")
    assert isinstance(made.guarantee, Guarantee)
    assert "replacing one patient by another" in str(made.guarantee)
    assert "privacy loss distributions" in str(made.guarantee)
    assert "closed form" in str(plan(**{**GOOD, "sampling_rate": 1.0}).guarantee)


LAYERS = PerLayer({"encoder*": 3.0, "*": 4.0})
ADAPTIVE = QuantileClipping(expected_batch=20.0)


def test_layers_and_quantiles_cost_what_one_clip_norm_costs():
    plain = plan(**GOOD)
    layers = plan(**{**GOOD, "clip_norm": None}, clipping=LAYERS)
    adaptive = plan(**GOOD, clipping=ADAPTIVE)
    assert plain.noise_multiplier == layers.noise_multiplier == adaptive.noise_multiplier
    assert layers.clip_norm == 5.0
    assert verify(layers) == verify(adaptive) == verify(plain)
    # the noise that the gradients of an adaptive plan get is more than the plan's, by what the count costs
    for_gradients = ADAPTIVE.gradient_noise_multiplier(plain.noise_multiplier)
    assert for_gradients / plain.noise_multiplier == pytest.approx(1.00504, abs=1e-5)
    naive = replace(adaptive.gradients, noise_multiplier=for_gradients)  # the named wrong answer: the count for free
    assert plan_epsilon([naive], GOOD["delta"]) < 0.999 * adaptive.epsilon


def test_a_plan_that_adapts_does_not_measure_and_an_edited_file_keeps_its_promise():
    adaptive = plan(**GOOD, clipping=QuantileClipping(), num_records=500)
    assert adaptive.schedule is None
    assert adaptive.clipping.expected_batch == 500 * GOOD["sampling_rate"]
    stored = adaptive.to_dict()
    stored["clipping"] = {**stored["clipping"], "count_share": 0.9}  # gradients then get the noise that goes with it
    edited = Plan.from_dict(stored)
    assert verify(edited) == verify(adaptive)
    assert edited.clipping.gradient_noise_multiplier(1.0) > 3


def test_one_clip_norm_beside_layers_is_refused():
    with pytest.raises(ValueError, match="combine to 5; leave clip_norm out, got 2"):
        plan(**{**GOOD, "clip_norm": 2.0}, clipping=LAYERS)
    with pytest.raises(TypeError, match="clip_norm must be a number"):
        plan_nonprivate(0.1, 10, clipping=ADAPTIVE)
    assert plan_nonprivate(0.1, 10, clipping=LAYERS).clip_norm == 5.0
    assert plan_nonprivate(0.1, 10).clip_norm == math.inf


def test_verify_catches_a_tampered_plan():
    made = plan(**GOOD)
    assert verify(made) <= 1.0
    gradients = made.gradients
    forgeries = [
        replace(made, epsilon=0.9),
        replace(made, delta=1e-6),
        replace(made, adjacency="substitute"),
        replace(made, releases=(replace(gradients, count=200),)),
        replace(made, releases=(replace(gradients, noise_multiplier=0.99 * gradients.noise_multiplier),)),
        replace(made, releases=(gradients, HISTOGRAM)),
    ]
    for forgery in forgeries:
        with pytest.raises(ValueError, match="The plan claims epsilon"):
            verify(forgery)


def test_a_stored_plan_runs_with_the_accountant_blocked(tmp_path):
    made = plan(**GOOD, other_releases=[HISTOGRAM])
    made.save(tmp_path / "plan.json")
    script = (
        "import sys; sys.modules['dp_accounting'] = None\n"
        "from dpvi.declared.plan import Plan\n"
        f"plan = Plan.load({str(tmp_path / 'plan.json')!r})\n"
        "print(plan.guarantee); print(repr(plan.noise_scale))\n"
        "assert 'jax' not in sys.modules and 'scipy' not in sys.modules"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [str(made.guarantee), repr(made.noise_scale)]


def test_a_large_epsilon_earns_a_warning_that_says_why():
    with pytest.warns(PrivacyWarning, match=r"epsilon = 12 is above 10: .* guarantee says little"):
        plan(**{**GOOD, "epsilon": 12.0, "sampling_rate": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan(**{**GOOD, "epsilon": 10.0, "sampling_rate": 1.0})


@pytest.mark.parametrize(("declared", "mark"), [(None, "SENSITIVE (tells of the number of records"), (1234, "delta")])
def test_a_large_delta_earns_a_warning_without_the_number_of_records(declared, mark):
    """That it is there tells whether there are 1/δ records, so it is marked where that is private."""
    large = plan(**{**GOOD, "delta": 1e-3, "num_records": declared})
    with pytest.warns(PrivacyWarning, match="one over the number of records") as caught:
        warn_about_delta(large, 1234)
    assert str(caught[0].message).startswith(mark)
    assert "1234" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_about_delta(plan(**{**GOOD, "delta": 1e-4}), 1234)


def test_privacy_loads_no_jax():
    script = "import sys, dpvi.privacy; assert not {'jax', 'dp_accounting'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
