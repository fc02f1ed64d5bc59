"""Draws of a chunk: compiled once for all runs that draw alike."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.data.sampling import poisson_sampler
from dpvi.mechanism.rng import root_key, streams
from dpvi.train.draws import compiled_draws, make_draws

STEPS = np.arange(3, dtype=np.uint32)


def draw(function, seed=1):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, function(streams(root_key(seed)), STEPS))


def test_runs_that_draw_alike_share_one_program():
    first = compiled_draws(poisson_sampler(50, 0.2), 4, (1, 2), jnp.dtype("float32"))
    draw(first)
    again = compiled_draws(poisson_sampler(50, 0.2), 4, (1, 2), jnp.dtype("float32"))
    draw(again, seed=2)
    assert again is first
    assert first._cache_size() == 1
    plain = draw(make_draws(poisson_sampler.__wrapped__(50, 0.2), 4, (1, 2), jnp.dtype("float32")))
    for one, other in zip(jax.tree.leaves(draw(first)), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("sampler", "rest"),
    [
        ((51, 0.2), (4, (1, 2), "float32")),
        ((50, 0.25), (4, (1, 2), "float32")),
        ((50, 0.2, 3), (4, (1, 2), "float32")),
        ((50, 0.2), (5, (1, 2), "float32")),
        ((50, 0.2), (4, (2, 1), "float32")),
        ((50, 0.2), (4, (1, 2), "float64")),
    ],
)
def test_runs_that_draw_otherwise_do_not(sampler, rest):
    usual = compiled_draws(poisson_sampler(50, 0.2), 4, (1, 2), jnp.dtype("float32"))
    size, shape, dtype = rest
    assert compiled_draws(poisson_sampler(*sampler), size, shape, jnp.dtype(dtype)) is not usual
