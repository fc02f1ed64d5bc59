"""Shards of any lengths: every drawn position is some device's own, once.

``vmap`` with an axis name stands in for devices: the functions see the same axis.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.records.sampling import poisson_sampler
from dpvi.records.sharding import (
    AXIS,
    Shards,
    even_lengths,
    make_shards,
    mesh_of,
    num_windows,
    one_window_is_enough,
    own_bounds,
    own_window,
    place_rows,
)


def on_devices(shards: Shards, function):
    """``function()`` as every device sees it, stacked."""
    number = len(shards.bounds) - 1
    return jax.vmap(lambda _: function(), axis_name=AXIS, axis_size=number)(jnp.arange(number))


def shards_of(lengths, slots) -> Shards:
    return Shards((0, *np.cumsum(lengths).tolist()), slots)


def found(shards: Shards, positions: np.ndarray) -> list[int]:
    """All positions that all windows of all devices include, in the numbering of all records."""
    bounds, slots = jnp.asarray(shards.bounds, jnp.int32), shards.slots
    numbers = on_devices(shards, lambda: num_windows(bounds, slots, jnp.asarray(positions)))
    together: list[int] = []
    for number in range(int(numbers.max())):
        window = on_devices(shards, lambda n=number: own_window(bounds, slots, jnp.asarray(positions), n))
        for device, (rows, included, _) in enumerate(zip(*map(np.asarray, window), strict=True)):
            length = shards.bounds[device + 1] - shards.bounds[device]
            assert np.all((rows >= 0) & (rows < length)), "a window must stay inside its shard"
            assert number < int(numbers[device]) or not included.any(), "nothing may be left for later windows"
            together += (rows[included] + shards.bounds[device]).tolist()
    return sorted(together)


@pytest.mark.parametrize(("lengths", "slots"), [([9], 4), ([3, 6, 1], 4), ([2, 1, 5, 2], 1)])
def test_every_position_is_included_once(lengths, slots):
    shards, random = shards_of(lengths, slots), np.random.default_rng(7)
    for probability in (0.0, 0.2, 0.5, 0.9, 1.0):
        drawn = np.flatnonzero(random.uniform(size=sum(lengths)) < probability).tolist()
        positions = np.array(drawn + [sum(lengths)] * (12 - len(drawn)), np.int32)
        assert found(shards, positions) == drawn
        counts = np.diff(np.searchsorted(drawn, shards.bounds))
        assert bool(one_window_is_enough(shards, jnp.asarray(positions)[:, None])) == bool(counts.max() <= slots)


def test_a_window_that_ignores_where_its_shard_begins_would_be_found_out():
    shards = shards_of([3, 4], 4)
    positions = np.array([0, 2, 3, 6], np.int32)
    assert found(shards, positions) == positions.tolist()
    shifted = shards._replace(bounds=(1, 4, 7))
    assert found(shifted, positions) != positions.tolist()


def test_every_device_knows_its_own_rows():
    """From bounds that are an argument of the program, which does not know how many records there are."""
    shards = shards_of([2, 4, 1], 4)
    start, stop = on_devices(shards, lambda: own_bounds(jnp.asarray(shards.bounds, jnp.int32)))
    np.testing.assert_array_equal(start, [0, 2, 6])
    np.testing.assert_array_equal(stop, [2, 6, 7])


def test_shards_are_filled_up_to_whole_tiles_with_their_last_row():
    """A made-up row might not be finite where every real one is."""
    shards = shards_of([70], 64)
    assert shards.rows == 128
    rows = np.arange(140.0).reshape(70, 2)
    placed = np.asarray(place_rows(mesh_of(jax.devices()[:1]), shards, {"x": rows})["x"])
    np.testing.assert_array_equal(placed[:70], rows)
    np.testing.assert_array_equal(placed[70:], np.tile(rows[-1:], (58, 1)))
    assert shards_of([3, 65, 2], 64).rows == 128


def test_one_short_window_in_one_step_is_enough_to_be_careful():
    shards = shards_of([5, 5], 2)
    steps = jnp.asarray([[0, 6, 10], [0, 1, 2]], jnp.int32).T  # the second step has three in the first shard
    assert bool(one_window_is_enough(shards, steps[:, :1]))
    assert not bool(one_window_is_enough(shards, steps))


def test_slots_cover_the_longest_shard():
    assert make_shards([900, 100], poisson_sampler(1000, 0.1), 0.1).slots == poisson_sampler(900, 0.1).slots == 192
    assert make_shards([900, 100], poisson_sampler(1000, 1.0), 1.0).slots == 960
    # a batch of about 1,000 in passes of 500: the longest shard has about 450 of each
    assert 450 < make_shards([9000, 1000], poisson_sampler(10_000, 0.1, 500), 0.1).slots <= 576


def test_even_lengths_cover_all_rows():
    assert even_lengths(8, 4) == [2, 2, 2, 2]
    assert sum(even_lengths(1003, 7)) == 1003
    with pytest.raises(ValueError, match="more devices than records"):
        even_lengths(3, 4)
