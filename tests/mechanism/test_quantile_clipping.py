"""The count of unclipped records: bounded, unmoved by rounding, and followed by the clip norm."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpvi.core.clip import clip_ratio
from dpvi.core.clipping import QuantileClipping
from dpvi.mechanism.bounded_sum import bounded_sum_and_count
from dpvi.mechanism.quantile_clipping import next_clip_norm, unclipped

QUANTILES = {0.3: -0.5244, 0.5: 0.0, 0.8: 0.8416}  # of a standard normal


@given(ratio=st.floats(0, width=32))
def test_no_record_adds_more_than_a_half(ratio):
    assert abs(float(unclipped(jnp.asarray(ratio, "float32")))) <= 0.5


@pytest.mark.parametrize(("norm", "added"), [(0.0, 0.5), (0.85, 0.5), (1.0, 0.0), (1.05, -0.25), (1.2, -0.5)])
@pytest.mark.parametrize("clip_norm", [3.0, jnp.asarray(3.0)])
def test_what_a_record_adds(norm, added, clip_norm):
    release = jnp.asarray([[3 * norm, 0.0]])
    counted = bounded_sum_and_count(release, jnp.ones(1, bool), clip_norm).centred_count.value
    assert float(counted) == pytest.approx(added, abs=1e-5)
    empty = bounded_sum_and_count(release, jnp.zeros(1, bool), clip_norm).centred_count.value
    assert float(empty) == 0


def test_rounding_of_a_norm_hardly_moves_the_count():
    """A thousand records whose norm is the clip norm up to its last digits; a jump would count all or none of them."""
    digits = 1 + np.float32(1.2e-7) * np.arange(-40, 40)
    counts = [1000 * float(unclipped(clip_ratio(jnp.asarray([x], "float32"), jnp.asarray(1.0)))) for x in digits]
    assert max(counts) - min(counts) < 0.06
    jumps = [1000 * (0.5 if float(clip_ratio(jnp.asarray([x], "float32"), 1.0)) >= 1 else -0.5) for x in digits]
    assert max(jumps) - min(jumps) == 1000  # the named wrong answer


@pytest.mark.parametrize("target", [0.3, 0.5, 0.8])
def test_the_clip_norm_finds_the_quantile(target):
    """Norms are log-normal; batches are Poisson, counts noisy. Once settled, C is the quantile up to its own noise."""
    expected, noise, steps, rate = 100, 5.0, 600, 0.2
    clipping = QuantileClipping(target_quantile=target, learning_rate=rate, expected_batch=expected)
    keys = jax.random.split(jax.random.key(2), steps)

    def step(clip_norm, key):
        for_size, for_norms, for_count = jax.random.split(key, 3)
        included = jnp.arange(200) < jax.random.poisson(for_size, expected)
        norms = jnp.exp(jax.random.normal(for_norms, (200, 1)))
        count = bounded_sum_and_count(norms, included, clip_norm).centred_count.value
        return next_clip_norm(clipping, clip_norm, count + noise * jax.random.normal(for_count)), clip_norm

    _, path = jax.lax.scan(step, jnp.asarray(20.0), keys)
    settled = np.log(np.asarray(path)[200:])
    # log C drifts back to the quantile at rate η times the density there; the mean over the rest is that of n steps
    # of a noisy share with standard deviation s, divided by the density; the ramp adds its own width squared
    density = math.exp(-0.5 * QUANTILES[target] ** 2) / math.sqrt(2 * math.pi)
    share = math.sqrt(expected * 0.25 + noise**2) / expected
    error = share / density / math.sqrt(len(settled)) + rate * share**2 / density + 0.1**2 / 3
    assert abs(np.mean(settled) - QUANTILES[target]) < 4 * error
    others = [abs(np.mean(settled) - other) for key, other in QUANTILES.items() if key != target]
    assert min(others) > 8 * error  # the test could tell it from another quantile


def test_the_clip_norm_stays_one_that_a_plan_may_have():
    clipping = QuantileClipping(learning_rate=100.0, expected_batch=1.0)
    for count in (-1e9, 1e9):
        assert 0.99e-20 <= float(next_clip_norm(clipping, jnp.asarray(1.0), jnp.asarray(count))) <= 1.01e20
