"""Layers of a release: which coordinates belong where, and that each is clipped on its own."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from support.units import count as counted
from support.units import exact_norm_squared, limit_squared, same_bits, values

from dpvi.mechanism.bounded_sum import bounded_sum
from dpvi.mechanism.layers import Layers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((3,), (1.0, 2.0)), "one clip norm each"),
        (((), ()), "one clip norm each"),
        (((3, 2), (1.0, 2.0), (0, 0)), "one clip norm each"),
        (((3, 2), (1.0, 2.0), (0,)), "every run a layer"),
        (((3, 0), (1.0, 2.0)), "at least 1"),
        (((3, 2), (1.0, -2.0)), "clip_norm"),
    ],
)
def test_layers_that_are_none(arguments, message):
    with pytest.raises(ValueError, match=message):
        Layers(*arguments)


def test_layers_that_do_not_fit_the_release():
    with pytest.raises(ValueError, match="Layers cover 5 coordinates, but there are 6"):
        Layers((3, 2), (1.0, 1.0)).labels(6)


LAYERS = Layers((2, 3, 1), (0.5, 2.0), owners=(0, 1, 0))


def rows(count, dtype="float32"):
    return np.random.default_rng(2).standard_normal((count, 6)).astype(dtype) * 2


COLUMNS = ([0, 1, 5], [2, 3, 4])
NORMS = np.array([0.5, 0.5, 2.0, 2.0, 2.0, 0.5])


@pytest.mark.parametrize("count", [64, 4992])
def test_every_layer_is_the_clipped_sum_of_its_columns(count):
    releases, included = jnp.asarray(rows(count)), jnp.arange(count) % 3 != 0
    together = bounded_sum(releases, included, 1e9, layers=LAYERS)
    for layer, columns in enumerate(COLUMNS):
        alone = bounded_sum(releases[:, columns], included, LAYERS.clip_norms[layer])
        np.testing.assert_array_equal(together.total[np.array(columns)], alone.total)
    flat = values(bounded_sum(releases, included, 2.0), 2.0)
    assert np.max(np.abs(values(together, NORMS) - flat)) > 0.05  # one clip for all is another mechanism


def test_one_record_adds_at_most_every_layers_norm():
    releases = rows(192) * 10 ** np.random.default_rng(3).uniform(-3, 6, (192, 1)).astype("float32")
    for index in range(192):
        alone = np.asarray(bounded_sum(jnp.asarray(releases), jnp.arange(192) == index, 1.0, layers=LAYERS).total)
        for layer, columns in enumerate(COLUMNS):
            assert exact_norm_squared(alone[columns]) <= limit_squared(LAYERS.clip_norms[layer])


@pytest.mark.parametrize("broken", [np.nan, np.inf, 3e38])
def test_a_record_that_is_broken_in_one_layer_adds_to_none(broken):
    releases, everyone = rows(64), jnp.ones(64, bool)
    dirty = releases.copy()
    dirty[1, 0] = broken
    summed = bounded_sum(jnp.asarray(dirty), everyone, 1.0, layers=LAYERS)
    expected = bounded_sum(jnp.asarray(releases), jnp.arange(64) != 1, 1.0, layers=LAYERS)
    assert counted(summed) == counted(expected) - 0.5
    same_bits(summed._replace(centred_count=expected.centred_count), expected)
