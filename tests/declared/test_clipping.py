"""Clipping by layers and by quantiles: what the settings mean, what they cost, what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpvi.declared.clipping import PerLayer, QuantileClipping, clipping_from_dict, clipping_to_dict
from dpvi.declared.plan import GaussianRelease
from dpvi.privacy.accounting import plan_epsilon

NORMS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6)


def shift(norms, scales):
    """How far a record that is clipped in every layer moves the sum, in units of the noise."""
    return math.sqrt(sum((norm / scale) ** 2 for norm, scale in zip(norms, scales, strict=True)))


@given(norms=NORMS, noise_multiplier=st.floats(0.1, 100))
def test_the_worst_record_moves_all_layers_and_no_further_than_the_plan_says(norms, noise_multiplier):
    layers = PerLayer({f"layer {i}*": norm for i, norm in enumerate(norms)})
    scales = layers.noise_scales(noise_multiplier)
    assert shift(norms, scales) == pytest.approx(1 / noise_multiplier, rel=1e-12)
    assert layers.clip_norm == pytest.approx(math.sqrt(sum(norm**2 for norm in norms)), rel=1e-12)
    if len(norms) > 1:  # the named wrong answer: every layer noised as if it were alone
        alone = [noise_multiplier * norm for norm in norms]
        assert shift(norms, alone) > 1.4 / noise_multiplier


@given(noise_multiplier=st.floats(0.1, 100), share=st.floats(1e-4, 0.9))
def test_the_noise_of_gradients_and_count_add_up_to_the_plans(noise_multiplier, share):
    clipping = QuantileClipping(count_share=share)
    gradients, count = clipping.gradient_noise_multiplier(noise_multiplier), clipping.count_noise(noise_multiplier)
    assert gradients >= noise_multiplier
    assert 1 / gradients**2 + 1 / (2 * count) ** 2 == pytest.approx(1 / noise_multiplier**2, rel=1e-12)


def test_two_gaussian_releases_cost_what_the_plan_says():
    """By the closed form, an accountant that knows nothing of the formula: both releases against the one planned."""
    clipping = QuantileClipping(count_share=0.15)
    gradients, count = clipping.gradient_noise_multiplier(1.5), clipping.count_noise(1.5)

    def spent(*multipliers):
        return plan_epsilon([GaussianRelease(str(m), 1.0, 20, m, 1.0) for m in multipliers], 1e-6)

    planned = spent(1.5)
    assert spent(gradients, 2 * count) == pytest.approx(planned, rel=1e-9)
    # the named wrong answers: the count for nothing, and a count that is not centred, whose sensitivity is 1
    assert spent(1.5, 2 * count) > 1.05 * planned
    assert spent(gradients, count) > 1.05 * planned


def test_a_parameter_belongs_to_the_first_pattern_that_fits():
    layers = PerLayer({"encoder*": 1.0, "decoder/bias": 2.0, "*": 3.0})
    names = ["encoder", "encoder/Dense_0/kernel", "decoder/bias", "decoder/weight", "shift"]
    assert layers.layers_of(names) == (0, 0, 1, 2, 2)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["encoder", "decoder", "shift"], r"fits \['shift'\]"),
        (["encoder"], r"nothing left for \['decoder\*'\], whose share"),
        (["Encoder", "decoder"], r"fits \['Encoder'\]"),
    ],
)
def test_parameters_and_patterns_must_fit(names, sentence):
    with pytest.raises(ValueError, match=sentence):
        PerLayer({"encoder*": 1.0, "decoder*": 2.0}).layers_of(names)


@pytest.mark.parametrize(
    ("clip_norms", "sentence"),
    [
        ({}, "pattern"),
        ({"": 1.0}, "pattern"),
        ({"a": 0.0}, "clip_norm must"),
        ({"a": math.inf}, "clip_norm must"),
        ({"a": 1e20, "b": 1e20}, "clip_norm must"),
        ((("a", 1.0), ("a", 2.0)), "every pattern once"),
    ],
)
def test_layers_that_are_none(clip_norms, sentence):
    with pytest.raises(ValueError, match=sentence):
        PerLayer(clip_norms)


@pytest.mark.parametrize("name", ["target_quantile", "learning_rate", "count_share", "expected_batch"])
@pytest.mark.parametrize("value", [0.0, math.inf, math.nan, -1.0])
def test_settings_that_make_no_sense(name, value):
    with pytest.raises(ValueError, match=name):
        QuantileClipping(**{name: value})


def test_the_expected_batch_is_public_or_given():
    assert QuantileClipping().with_batch(0.1, 500).expected_batch == 50
    assert QuantileClipping(expected_batch=7.0).with_batch(0.1, None).expected_batch == 7
    with pytest.raises(ValueError, match="expected_batch"):
        QuantileClipping().with_batch(0.1, None)


@pytest.mark.parametrize("clipping", [PerLayer({"b*": 2.0, "a": 1.0}), QuantileClipping(expected_batch=3.0)])
def test_a_round_trip_keeps_everything_and_the_order_of_patterns(clipping):
    stored = clipping_to_dict(clipping)
    assert clipping_from_dict(stored) == clipping
    assert hash(clipping_from_dict(stored)) == hash(clipping)
