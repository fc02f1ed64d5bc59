"""Draws of a chunk: compiled once for all runs that draw alike, part by part."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.mechanism.rng import root_key, streams
from dpvi.records.sampling import poisson_sampler
from dpvi.run.program.draws import compiled_draws, make_draws

STEPS = np.arange(3, dtype=np.uint32)
USUAL = ((50, 0.2), 4, (1, 2), "float32")


def draw(function, seed=1):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, function(streams(root_key(seed)), STEPS))


def compiled(sampler, noise_size, eta_shape, dtype):
    return compiled_draws(poisson_sampler(*sampler), noise_size, eta_shape, jnp.dtype(dtype))


def test_runs_that_draw_alike_share_their_programs():
    first = draw(compiled(*USUAL))
    with jax.no_tracing(True):
        again, other = draw(compiled(*USUAL)), draw(compiled(*USUAL), seed=2)
    plain = draw(jax.jit(make_draws(poisson_sampler.__wrapped__(50, 0.2), 4, (1, 2), jnp.dtype("float32"))))
    for one, same, expected in zip(*map(jax.tree.leaves, (first, again, plain)), strict=True):
        np.testing.assert_array_equal(one, expected)
        np.testing.assert_array_equal(same, expected)
    assert not np.any(first[0].noise == other[0].noise)


@pytest.mark.parametrize(
    "otherwise",
    [
        ((51, 0.2), 4, (1, 2), "float32"),
        ((50, 0.25), 4, (1, 2), "float32"),
        ((50, 0.2, 3), 4, (1, 2), "float32"),
        ((50, 0.2), 5, (1, 2), "float32"),
        ((50, 0.2), 4, (2, 1), "float32"),
        ((50, 0.2), 4, (1, 2), "float64"),
    ],
)
def test_runs_that_draw_otherwise_do_not(otherwise):
    draw(compiled(*USUAL))
    with jax.no_tracing(True), pytest.raises(RuntimeError, match="no_tracing"):
        draw(compiled(*otherwise))


def test_noise_does_not_depend_on_the_number_of_records():
    """And neither do variational draws, nor positions on the noise: the parts of a step have streams of their own."""
    few, many = (draw(compiled((number, 0.2), 4, (1, 2), "float32"))[0] for number in (50, 51))
    np.testing.assert_array_equal(few.noise, many.noise)
    np.testing.assert_array_equal(few.eta, many.eta)
    wider = draw(compiled((50, 0.2), 5, (2, 1), "float32"))[0]
    np.testing.assert_array_equal(few.positions, wider.positions)
