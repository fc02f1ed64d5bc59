"""Layers of a release: which coordinates belong where, and that each is clipped on its own."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.mechanism.bounded_sum import bounded_sum, bounded_sum_and_count
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


@pytest.mark.parametrize("count", [40, 5000])
def test_every_layer_is_the_clipped_sum_of_its_columns(count):
    releases, included = jnp.asarray(rows(count)), jnp.arange(count) % 3 != 0
    total = np.asarray(bounded_sum(releases, included, 1e9, layers=LAYERS).value)
    for layer, columns in enumerate(([0, 1, 5], [2, 3, 4])):
        alone = bounded_sum(releases[:, columns], included, LAYERS.clip_norms[layer]).value
        np.testing.assert_allclose(total[columns], alone, rtol=0, atol=1e-6 * count)
    flat = bounded_sum(releases, included, float(np.hypot(0.5, 2.0))).value
    assert np.max(np.abs(total - np.asarray(flat))) > 0.05  # one clip for all is another mechanism


def test_one_record_adds_at_most_every_layers_norm():
    releases = rows(200) * 10 ** np.random.default_rng(3).uniform(-3, 6, (200, 1)).astype("float32")
    for index in range(200):
        alone = np.asarray(bounded_sum(jnp.asarray(releases), jnp.arange(200) == index, 1.0, layers=LAYERS).value)
        for layer, columns in enumerate(([0, 1, 5], [2, 3, 4])):
            assert np.linalg.norm(alone[columns].astype(np.float64)) <= LAYERS.clip_norms[layer]


@pytest.mark.parametrize("broken", [np.nan, np.inf, 3e38])
def test_a_record_that_is_broken_in_one_layer_adds_to_none(broken):
    releases, everyone = rows(5), jnp.ones(5, bool)
    dirty = releases.copy()
    dirty[1, 0] = broken
    summed = bounded_sum_and_count(jnp.asarray(dirty), everyone, 1.0, layers=LAYERS)
    expected = bounded_sum_and_count(jnp.asarray(releases), jnp.arange(5) != 1, 1.0, layers=LAYERS)
    np.testing.assert_array_equal(summed.total.value, expected.total.value)
    assert float(summed.centred_count.value) == float(expected.centred_count.value) - 0.5
    quick = bounded_sum(jnp.asarray(dirty), everyone, 1.0, careful=False, layers=LAYERS).value
    if np.isfinite(broken):  # its square overflows, so it is worth nothing, and nothing is disturbed
        np.testing.assert_array_equal(quick, expected.total.value)
    else:
        assert not np.all(np.isfinite(quick))  # which is how the quick step notices
