"""The sum over a batch: the same on one device and on several, whatever the lengths of shards and passes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.data.sampling import poisson_sampler
from dpvi.data.sharding import AXIS, make_shards
from dpvi.mechanism.bounded_sum import Clipped, TwoFold, all_reduced, bounded_sum_and_count
from dpvi.mechanism.rng import root_key, streams
from dpvi.train.draws import compiled_draws, later_pass
from dpvi.train.passes import InMemory, noiseless_sum

ROWS = np.random.default_rng(1).normal(size=(57, 3))
CLIP_NORM = 1.0
SLOTS = 4  # of a device's window: draws of the longer shards take several


def summed(batch, included):
    return bounded_sum_and_count(batch, included, CLIP_NORM)


def sums(sampling_rate: float, lengths: list[int] | None, max_slots: int, careful: bool = True) -> np.ndarray:
    """The clipped sum and the count of six steps; with ``lengths`` as every device has it, (steps, devices, 4)."""
    sampler = poisson_sampler(len(ROWS), sampling_rate, max_slots)
    shards = None if lengths is None else make_shards(lengths, sampler, sampling_rate)._replace(slots=SLOTS)
    key = streams(root_key(3))
    steps = jnp.arange(6, dtype=jnp.uint32)
    draws, _ = compiled_draws(sampler, 1, (1, 1), jnp.dtype("float64"))(key, steps)

    def one(records, step):
        more = lambda index, start: later_pass(sampler, key.sampling, step, index, start)  # noqa: E731
        positions = draws.positions[step]
        total, count = noiseless_sum(sampler, summed, InMemory(records), positions, more if careful else None, shards)
        return jnp.append(total.value, count.value)

    if shards is None:
        return np.asarray(jax.jit(jax.vmap(one, (None, 0)))(jnp.asarray(ROWS), steps))
    parts = np.split(ROWS, shards.bounds[1:-1])
    padded = np.stack([np.pad(part, [(0, shards.longest - len(part)), (0, 0)], mode="edge") for part in parts])
    by_device = jax.vmap(one, (0, None), axis_name=AXIS)
    return np.asarray(jax.jit(lambda rows: jax.lax.map(lambda step: by_device(rows, step), steps))(jnp.asarray(padded)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("sampling_rate", "lengths", "max_slots"),
    [(0.3, [29, 28], 100), (0.3, [50, 3, 4], 7), (1.0, [50, 3, 4], 100), (1.0, [29, 28], 20)],
    ids=["one pass", "many passes", "all in one pass", "all in many"],
)
def test_devices_together_have_the_sum_of_one(sampling_rate, lengths, max_slots):
    expected = sums(sampling_rate, None, max_slots)
    found = sums(sampling_rate, lengths, max_slots)
    assert np.ptp(found, axis=1).max() == 0, "every device must hold the same sum"
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-12, atol=1e-12)
    if sampling_rate < 1:  # power: the comparison notices windows that were not read
        quick = sums(sampling_rate, lengths, max_slots, careful=False)
        assert np.abs(quick[:, 0] - expected).max() > 0.1


def test_the_sum_over_devices_keeps_twofold_precision():
    """A plain float32 all-reduce would lose the small part; the change of one record must survive next to 10⁷."""
    totals = TwoFold(jnp.array([[1e7], [-0.25], [-1e7]], jnp.float32), jnp.full((3, 1), 1e-3, jnp.float32))
    count = TwoFold(jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32))
    value = jax.vmap(lambda total: all_reduced(Clipped(total, count), AXIS).total.value, axis_name=AXIS)(totals)
    np.testing.assert_allclose(value, np.full((3, 1), -0.247), rtol=1e-5)
    plain = jax.vmap(lambda total: jax.lax.psum(total.high + total.low, AXIS), axis_name=AXIS)(totals)
    assert np.abs(np.asarray(plain) + 0.247).max() > 1e-3
