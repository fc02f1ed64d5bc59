"""The count of unclipped records: bounded, added exactly, and followed by the clip norm."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.units import count as counted

from dpvi.declared.clipping import QuantileClipping
from dpvi.mechanism.bounded_sum import bounded_sum
from dpvi.mechanism.gaussian import COUNT_BITS
from dpvi.mechanism.quantile_clipping import next_clip_norm, unclipped

QUANTILES = {0.3: -0.5244, 0.5: 0.0, 0.8: 0.8416}  # of a standard normal


@given(ratio=st.floats(0, width=32))
def test_no_record_adds_more_than_a_half(ratio):
    assert abs(float(unclipped(jnp.asarray(ratio, "float32")))) <= 0.5


@pytest.mark.parametrize(("norm", "added"), [(0.0, 0.5), (0.85, 0.5), (1.0, 0.0), (1.05, -0.25), (1.2, -0.5)])
@pytest.mark.parametrize("clip_norm", [3.0, jnp.asarray(3.0)])
def test_what_a_record_adds(norm, added, clip_norm):
    release = jnp.asarray([[3 * norm, 0.0]])
    assert counted(bounded_sum(release, jnp.ones(1, bool), clip_norm)) == pytest.approx(added, abs=1e-5)
    assert counted(bounded_sum(release, jnp.zeros(1, bool), clip_norm)) == 0


def test_counts_are_whole_numbers_of_at_most_half_a_record_each():
    """Added exactly, so that one record moves the count by at most a half among however many others."""
    norms = np.random.default_rng(5).uniform(0.8, 1.2, size=(2**14, 1)).astype(np.float32)
    counts = jax.jit(lambda included: bounded_sum(jnp.asarray(norms), included, 1.0).centred_count)
    everyone = int(counts(jnp.ones(2**14, bool)))
    moved = [everyone - int(counts(jnp.arange(2**14) != index)) for index in range(0, 2**14, 97)]
    half = 2 ** (COUNT_BITS - 1)
    assert max(map(abs, moved)) == half
    assert sum(abs(each) < half for each in moved) > 30  # many count for a fraction
    some = jnp.arange(2**14) % 7 < 3
    assert int(counts(some)) + int(counts(~some)) == everyone


@pytest.mark.parametrize("target", [0.3, 0.5, 0.8])
def test_the_clip_norm_finds_the_quantile(target):
    """Norms are log-normal; batches are Poisson, counts noisy. Once settled, C is the quantile up to its own noise."""
    expected, noise, steps, rate = 100, 5.0, 600, 0.2
    clipping = QuantileClipping(target_quantile=target, learning_rate=rate, expected_batch=expected)
    keys = jax.random.split(jax.random.key(2), steps)

    def step(clip_norm, key):
        for_size, for_norms, for_count = jax.random.split(key, 3)
        included = jnp.arange(256) < jax.random.poisson(for_size, expected)
        norms = jnp.exp(jax.random.normal(for_norms, (256, 1)))
        count = bounded_sum(norms, included, clip_norm).centred_count.astype(jnp.float32) * 2.0**-COUNT_BITS
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
