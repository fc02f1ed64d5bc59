"""Layers and adaptive clip norms: what they cost, and that the clip norm finds the quantile."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpvi.core.plan import GaussianRelease
from dpvi.gradients.ghost import Layers, QuantileClipping
from dpvi.gradients.ghost.layers import check_clip_norm
from dpvi.privacy.accounting import plan_epsilon


@given(clip_norm=st.floats(1e-6, 1e6), shapes=st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=9))
def test_equal_layers_combine_to_the_clip_norm_and_never_more(clip_norm, shapes):
    layers = Layers.of_tree([np.zeros(shape) for shape in shapes], clip_norm)
    assert clip_norm * (1 - 1e-14) <= layers.sensitivity <= clip_norm
    assert layers.sizes == tuple(math.prod(shape) for shape in shapes)
    check_clip_norm(layers, clip_norm)


def test_the_worst_record_moves_all_layers():
    layers = Layers((1, 1), (3.0, 4.0))
    assert layers.sensitivity == 5.0
    assert layers.sensitivity > max(layers.clip_norms)  # the named wrong answer: the largest layer's
    with pytest.raises(ValueError, match=r"combine to 5, more than the plan's clip norm 4\.9"):
        check_clip_norm(layers, 4.9)


@pytest.mark.parametrize(
    ("sizes", "clip_norms", "message"),
    [
        ((3,), (1.0, 2.0), "one clip norm each"),
        ((), (), "one clip norm each"),
        ((3, 0), (1.0, 2.0), "at least 1"),
        ((3, 2), (1.0, -2.0), "clip_norm"),
    ],
)
def test_layers_that_are_none(sizes, clip_norms, message):
    with pytest.raises(ValueError, match=message):
        Layers(sizes, clip_norms)


def test_layers_that_do_not_fit_the_parameters():
    with pytest.raises(ValueError, match="Layers cover 5 parameters, but there are 6"):
        Layers((3, 2), (1.0, 1.0)).labels(6)


@given(noise_multiplier=st.floats(0.1, 100), spare=st.floats(1.001, 1e4))
def test_the_noise_of_gradients_and_count_add_up_to_the_plans(noise_multiplier, spare):
    clipping = QuantileClipping(1.0, count_noise=spare * noise_multiplier / 2, expected_batch=100.0)
    for_gradients = clipping.gradient_noise_multiplier(noise_multiplier)
    assert for_gradients >= noise_multiplier
    assert clipping.noise_multiplier(for_gradients) == pytest.approx(noise_multiplier, rel=1e-12)


def test_two_gaussian_releases_cost_what_the_plan_says():
    """By the closed form, an accountant that knows nothing of the formula: both releases against the one planned."""
    clipping = QuantileClipping(1.0, count_noise=2.0, expected_batch=100.0)

    def spent(*multipliers):
        return plan_epsilon([GaussianRelease(str(m), 1.0, 20, m, 1.0) for m in multipliers], 1e-6)

    planned = spent(1.5)
    assert spent(clipping.gradient_noise_multiplier(1.5), 2 * 2.0) == pytest.approx(planned, rel=1e-9)
    # the named wrong answers: the count for nothing, and a count whose sensitivity is taken for 1
    assert spent(1.5, 2 * 2.0) > 1.05 * planned
    assert spent(clipping.gradient_noise_multiplier(1.5), 2.0) > 1.05 * planned


def test_a_count_that_would_spend_everything_is_refused():
    with pytest.raises(ValueError, match=r"count_noise 0.7 is too small .* above 0.75"):
        QuantileClipping(1.0, count_noise=0.7, expected_batch=100.0).gradient_noise_multiplier(1.5)


@pytest.mark.parametrize("name", ["count_noise", "expected_batch", "learning_rate", "target_quantile"])
def test_settings_that_make_no_sense(name):
    settings = {"initial_clip_norm": 1.0, "count_noise": 2.0, "expected_batch": 10.0, name: 0.0}
    with pytest.raises(ValueError, match=name):
        QuantileClipping(**settings)


@pytest.mark.parametrize("target", [0.3, 0.5, 0.8])
def test_the_clip_norm_finds_the_quantile(target):
    """Norms are log-normal; batches are Poisson, counts noisy. Once settled, C is the quantile up to its own noise."""
    expected, noise, steps, rate = 100, 5.0, 600, 0.2
    clipping = QuantileClipping(20.0, noise, expected, target_quantile=target, learning_rate=rate)
    keys = jax.random.split(jax.random.key(2), steps)

    def step(clip_norm, key):
        for_size, for_norms, for_count = jax.random.split(key, 3)
        included = jnp.arange(200) < jax.random.poisson(for_size, expected)
        unclipped = jnp.exp(jax.random.normal(for_norms, (200,))) <= clip_norm
        count = jnp.sum(jnp.where(included, jnp.where(unclipped, 0.5, -0.5), 0))
        return clipping.update(clip_norm, count + noise * jax.random.normal(for_count)), clip_norm

    _, path = jax.lax.scan(step, jnp.asarray(clipping.initial_clip_norm), keys)
    settled = np.log(np.asarray(path)[200:])
    # log C drifts back to the quantile at rate η times the density there; the mean over the rest is that of n steps
    # of a noisy share with standard deviation s, divided by the density
    density = math.exp(-0.5 * QUANTILES[target] ** 2) / math.sqrt(2 * math.pi)
    share = math.sqrt(expected * 0.25 + noise**2) / expected
    error = share / density / math.sqrt(len(settled)) + rate * share**2 / density
    assert abs(np.mean(settled) - QUANTILES[target]) < 4 * error
    others = [abs(np.mean(settled) - other) for key, other in QUANTILES.items() if key != target]
    assert min(others) > 8 * error  # the test could tell it from another quantile


QUANTILES = {0.3: -0.5244, 0.5: 0.0, 0.8: 0.8416}
