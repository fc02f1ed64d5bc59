"""What a step makes of its batch, however the batch is cut, and what it releases."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.small_models import RECORDS, clipped, location_model, private_plan
from support.units import exact_norm_squared, grid, limit_squared, same_bits, unit

from dpvi.declared.clipping import QuantileClipping
from dpvi.families import MeanField
from dpvi.gradients import Aligned
from dpvi.models.functions import from_functions
from dpvi.records.arrays import filled_up
from dpvi.records.sampling import poisson_sampler, whole_tiles
from dpvi.records.sharding import Records
from dpvi.run.program.draws import Draws
from dpvi.run.program.step import Algorithm, clipped_sum, noise_of, private_step

NUM_RECORDS = 50_048


def test_a_large_batch_in_small_parts_is_the_same_sum():
    """To the last bit; and a record that leaves takes with it what it would have added alone."""
    model = from_functions(
        log_prior=lambda z: -0.5 * jnp.sum(z["mean"] ** 2),
        log_likelihood=lambda z, record: jnp.dot(record, z["mean"]),  # a record is its own release
        parameters={"mean": (2,)},
    )
    plan = private_plan(1, sampling_rate=1.0, clip_norm=1.0)
    sampler = poisson_sampler(NUM_RECORDS, 1.0)
    xi, eta = MeanField().initial(jnp.zeros(2)), jnp.zeros((1, 2))

    def summed(size):
        algorithm = Algorithm(model, MeanField(), Aligned(), optax.sgd(0.01), plan, sampler, microbatch_size=size)
        return jax.jit(clipped_sum(algorithm, xi, eta, eta))

    rows = np.abs(np.random.default_rng(0).normal(size=(NUM_RECORDS, 2))).astype(np.float32) + 2  # all are clipped
    shorter = np.concatenate([rows[1:], rows[-1:]])
    everyone, all_but_one = jnp.ones(NUM_RECORDS, bool), jnp.arange(NUM_RECORDS) < NUM_RECORDS - 1
    whole = summed(None)(jnp.asarray(rows), everyone)
    alone = np.asarray(summed(None)(jnp.asarray(rows), jnp.arange(NUM_RECORDS) == 0).total)
    assert exact_norm_squared(alone) <= limit_squared(1.0)
    for size in (250, 1000):
        parts = summed(size)
        same_bits(parts(jnp.asarray(rows), everyone), whole)
        without = parts(jnp.asarray(shorter), all_but_one)
        np.testing.assert_array_equal(np.asarray(whole.total) - np.asarray(without.total), alone)


def step(noise_multiplier, noise, clipping=None, clip_norm=0.7):
    """One step over all of nine records at the origin."""
    plan = private_plan(1, 1.0, noise_multiplier, clip_norm)
    if clipping is not None:
        plan = type(plan)(plan.epsilon, plan.delta, plan.releases, plan.accountant, clipping=clipping)
    sampler = poisson_sampler(len(RECORDS), 1.0)
    algorithm = Algorithm(location_model(), MeanField(), Aligned(), optax.sgd(0.1), plan, sampler)
    dtype = jnp.zeros(()).dtype
    records = Records(
        jnp.asarray(filled_up(RECORDS, whole_tiles(len(RECORDS))), dtype), jnp.array([0, len(RECORDS)], jnp.int32)
    )
    with jax.enable_x64(True):
        drawn = Draws(jnp.zeros(0, jnp.int32), jnp.asarray(np.asarray(noise, np.float64)), jnp.zeros((1, 2), dtype))
    state = algorithm.initial(jnp.zeros(2, dtype))
    return private_step(algorithm, records, state, drawn, noise_of(algorithm), None, None)


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("noise_multiplier", [0.5, 2.0, 300.0])
def test_a_step_releases_its_sum_plus_noise_on_the_grid(wide, noise_multiplier):
    with jax.enable_x64(wide):
        _, row = step(noise_multiplier, [0.3, -1.2])
    spacing = grid(noise_multiplier * 0.7, 0.7)
    exact = clipped(RECORDS, 0.7).sum(axis=0) + noise_multiplier * 0.7 * np.array([0.3, -1.2])
    released = np.asarray(row.noisy_sum, np.float64)
    np.testing.assert_array_equal(released / spacing, np.round(released / spacing))
    assert np.max(np.abs(released - exact)) <= 0.51 * spacing + 1e-5
    assert row.noisy_sum.dtype == (np.float64 if wide else np.float32)


def test_empty_slots_do_not_count():
    """Nine records stand in 64 slots; those that fill up are copies of the last one."""
    with jax.enable_x64(True):
        _, row = step(2.0**-40, [0.0, 0.0])
    exact = clipped(RECORDS, 0.7).sum(axis=0)
    np.testing.assert_allclose(np.asarray(row.noisy_sum), exact, rtol=0, atol=10 * float(unit(0.7)))


@pytest.mark.usefixtures("x64")
def test_a_clip_norm_that_adapts_follows_its_noisy_count():
    clipping = QuantileClipping(expected_batch=9.0, learning_rate=0.2)
    after, row = step(3.0, [0.1, 0.2, -0.4], clipping, clip_norm=1.5)
    norms = np.linalg.norm(RECORDS, axis=1)
    counted = np.clip((1 - norms / 1.5) / 0.2, -0.5, 0.5).sum()
    noise = clipping.count_noise(3.0)
    share = 0.5 + (counted + noise * -0.4) / 9.0
    expected = 1.5 * np.exp(-0.2 * (share - clipping.target_quantile))
    np.testing.assert_allclose(float(after.clip_norm), expected, rtol=noise / 1024)
    assert float(row.clip_norm) == 1.5
    wrong = 1.5 * np.exp(-0.2 * (0.5 + counted / 9.0 - clipping.target_quantile))  # no noise
    assert abs(float(after.clip_norm) - wrong) > 2 * noise / 1024 * wrong
