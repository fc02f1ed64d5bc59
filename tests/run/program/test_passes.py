"""The sum over a batch: the same on one device and on several, whatever the lengths of shards and passes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.mechanism.bounded_sum import Clipped, all_reduced, bounded_sum
from dpvi.mechanism.rng import root_key, streams
from dpvi.records.arrays import filled_up
from dpvi.records.sampling import poisson_sampler, whole_tiles
from dpvi.records.sharding import AXIS, Records, make_shards
from dpvi.run.program.draws import compiled_draws, later_pass
from dpvi.run.program.passes import InMemory, noiseless_sum

CLIP_NORM = 1.0


def rows_of(num_records: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(num_records, 3))


def summed(batch, included):
    return bounded_sum(batch, included, CLIP_NORM)


def sums(
    sampling_rate: float, lengths: list[int] | None, max_slots: int, num_records: int, slots: int, careful: bool = True
) -> np.ndarray:
    """The clipped sum and the count of six steps; with ``lengths`` as every device has it, (steps, devices, 4)."""
    rows, dtype = rows_of(num_records), jnp.zeros(()).dtype
    sampler = poisson_sampler(num_records, sampling_rate, max_slots)
    shards = None if lengths is None else make_shards(lengths, sampler, sampling_rate)._replace(slots=slots)
    key = streams(root_key(3))
    with jax.enable_x64(True):
        draws, _ = compiled_draws(sampler, 1, (1, 1), dtype)(key, jnp.arange(6, dtype=jnp.uint32))
    steps = jnp.arange(6, dtype=jnp.uint32)

    def one(held, bounds, step):
        more = lambda index, start: later_pass(sampler, key.sampling, step, index, start)  # noqa: E731
        found = InMemory(Records(held, bounds))
        total = noiseless_sum(sampler, summed, found, draws.positions[step], more if careful else None, shards)
        with jax.enable_x64(True):
            return jnp.append(total.total, total.centred_count)

    if shards is None:
        held, bounds = filled_up(rows, whole_tiles(num_records)), jnp.array([0, num_records], jnp.int32)
        compiled = jax.jit(lambda rows, bounds: jax.lax.map(lambda step: one(rows, bounds, step), steps))
        return np.asarray(compiled(jnp.asarray(held, dtype), bounds))
    padded = np.stack([filled_up(part, shards.rows) for part in np.split(rows, shards.bounds[1:-1])])
    by_device = jax.vmap(one, (0, None, None), axis_name=AXIS)
    compiled = jax.jit(lambda rows, bounds: jax.lax.map(lambda step: by_device(rows, bounds, step), steps))
    return np.asarray(compiled(jnp.asarray(padded, dtype), jnp.asarray(shards.bounds, jnp.int32)))


def check(sampling_rate, lengths, max_slots, num_records, slots):
    expected = sums(sampling_rate, None, max_slots, num_records, slots)
    found = sums(sampling_rate, lengths, max_slots, num_records, slots)
    assert found.dtype == expected.dtype == np.int64
    np.testing.assert_array_equal(found, np.broadcast_to(expected[:, None], found.shape))  # to the last bit, on all
    if sampling_rate < 1:  # power: the comparison notices windows that were not read
        quick = sums(sampling_rate, lengths, max_slots, num_records, slots, careful=False)
        assert np.abs(quick[:, 0] - expected).max() > 0.1 * 2**29


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("sampling_rate", "lengths", "max_slots"),
    [(0.3, [29, 28], 100), (0.3, [50, 3, 4], 7), (1.0, [50, 3, 4], 100), (1.0, [29, 28], 20)],
    ids=["one pass", "many passes", "all in one pass", "all in many"],
)
def test_devices_together_have_the_sum_of_one(sampling_rate, lengths, max_slots):
    check(sampling_rate, lengths, max_slots, num_records=57, slots=4)


@pytest.mark.parametrize(
    ("sampling_rate", "lengths", "max_slots"),
    [(0.5, [250, 250], 1000), (0.5, [401, 2, 97], 100), (1.0, [401, 2, 97], 1000)],
    ids=["several windows", "many passes", "all in one pass"],
)
def test_so_they_have_in_single_precision(sampling_rate, lengths, max_slots):
    """In whole tiles of slots, where what a record adds depends on nothing but that record."""
    check(sampling_rate, lengths, max_slots, num_records=500, slots=64)


def test_the_sum_over_devices_is_exact():
    """A plain float32 all-reduce would lose the small part; the change of one record must survive next to 10¹⁵."""
    with jax.enable_x64(True):
        totals = jnp.array([[10**15], [-1], [-(10**15)]], jnp.int64)
        count = jnp.zeros((), jnp.int64)
    reduce = jax.vmap(lambda total: all_reduced(Clipped(total, count), AXIS).total, axis_name=AXIS)
    np.testing.assert_array_equal(reduce(totals), np.full((3, 1), -1))
    plain = jax.vmap(lambda total: jax.lax.psum(total.astype(jnp.float32), AXIS), axis_name=AXIS)(totals)
    assert np.all(np.asarray(plain) != -1)
