"""Lanes in parts: every lane gets what it would get alone, however many are taken at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.mechanism.rng import Streams, root_key, streams
from dpvi.records.sampling import poisson_sampler
from dpvi.run.program import draws
from dpvi.run.program.lanes import in_parts, lanes_at_once


@pytest.mark.parametrize(
    ("num_lanes", "most", "expected"),
    [(1000, 51, 50), (1000, 45, 40), (7, 10, 7), (7, 7, 7), (997, 40, 37), (5, 0, 1), (6, 1, 1), (11, 4, 4)],
)
def test_parts_are_large_and_few_lanes_are_taken_twice(num_lanes, most, expected):
    assert lanes_at_once(num_lanes, most) == expected


@pytest.mark.parametrize("num_lanes", [5, 6, 7, 8])
def test_every_lane_is_taken_whether_or_not_parts_come_out_even(num_lanes):
    given = {"x": jnp.arange(3.0 * num_lanes).reshape(num_lanes, 3), "y": jnp.arange(1.0 * num_lanes)}
    sizes = []

    def function(tree, none):
        sizes.append(tree["y"].shape[0])
        assert none is None
        return tree["x"].sum(axis=1) + tree["y"], tree["y"] % 2 == 0

    in_one = function(given, None)
    sizes.clear()
    parted = jax.jit(lambda tree: in_parts(function, (tree, None), bytes_per_lane=100, cache_bytes=399))(given)
    jax.tree.map(np.testing.assert_array_equal, parted, in_one)
    assert set(sizes) == {lanes_at_once(num_lanes, 3)}
    assert lanes_at_once(num_lanes, 3) < num_lanes


@pytest.mark.parametrize("cache_bytes", [1, 20_000, 2**30])
def test_lanes_in_parts_draw_what_each_would_alone(monkeypatch, cache_bytes):
    monkeypatch.setattr(draws, "_CACHE_BYTES", cache_bytes)
    draw = jax.jit(draws.make_draws(poisson_sampler(40, 0.2, 12), 3, (1, 2), jnp.dtype("float32")))
    each = [streams(root_key(seed)) for seed in range(5)]
    steps = np.arange(50, dtype=np.uint32)
    with jax.enable_x64(True):
        side_by_side, complete = draw(Streams(*map(jnp.stack, zip(*each, strict=True))), steps)
        for lane, of_lane in enumerate(each):
            alone, of_it = draw(of_lane, steps)
            jax.tree.map(lambda many, one, i=lane: np.testing.assert_array_equal(many[i], one), side_by_side, alone)
            assert complete[lane] == of_it
    assert set(complete.tolist()) == {True, False}  # both kinds of lanes are there
