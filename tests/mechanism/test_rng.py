"""Root keys, streams and normals: nothing shared, nothing lost, no holes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from support.statistics import assert_normal

from dpvi.mechanism import chacha, rng
from dpvi.mechanism.chacha_kernel import LANES, message_blocks, works
from dpvi.mechanism.normals import normals_from_words
from dpvi.mechanism.rng import root_key, step_normals, step_words, streams


def data_of(key: jax.Array) -> bytes:
    return np.asarray(jax.random.key_data(key)).tobytes()


def test_without_a_seed_every_key_is_new():
    assert len({data_of(root_key(None)) for _ in range(20)}) == 20


def test_all_digits_of_a_seed_count():
    seeds = [0, 7, -7, 7 + 2**31, 7 + 2**32, 7 + 2**40, 7 + 2**64, 7 + 2**300]
    assert len({data_of(root_key(seed)) for seed in seeds}) == len(seeds)
    assert data_of(root_key(7)) == data_of(root_key(7)) == data_of(root_key(np.int64(7)))


@pytest.mark.parametrize("seed", [True, False, 7.0, 7.5, "7", (7,), np.float32(7), np.bool_(True)])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(TypeError, match="seed must be a whole number or None"):
        root_key(seed)


def test_streams_are_distinct_and_none_is_the_root():
    root = root_key(7)
    keys = [root, *streams(root)]
    assert len({data_of(key) for key in keys}) == 4
    draws = [np.asarray(jax.random.bits(key, (1000,), jnp.uint32)) for key in keys]
    assert np.unique(np.concatenate(draws)).size >= 4000 - 1  # 2e-3 equal words expected by chance


@pytest.mark.parametrize("wide", [False, True], ids=["32-bit", "64-bit"])
def test_a_step_draws_the_same_words_however_steps_are_grouped(wide):
    with jax.enable_x64(wide):
        stream = streams(root_key(7)).noise
        together = np.asarray(step_words(stream, jnp.arange(10), 37))
        assert together.shape == (37, 10)
        assert np.unique(together).size == together.size
        some = jax.jit(step_words, static_argnums=2)(stream, jnp.array([9, 5], jnp.uint32), 37)
        np.testing.assert_array_equal(np.asarray(some), together[:, [9, 5]])
        fewer = np.asarray(step_words(stream, jnp.arange(5, 6), 37))
        np.testing.assert_array_equal(fewer, together[:, 5:6])
        another_part = step_words(stream, jnp.arange(10), 37, 1)
        assert np.intersect1d(np.asarray(another_part), together).size == 0


def test_words_of_steps_are_none_of_the_keys_or_bits_of_their_stream():
    stream = streams(root_key(7)).sampling
    words = np.asarray(step_words(stream, jnp.arange(20), 48))
    bits = np.asarray(jax.random.bits(stream, (960,), jnp.uint32))
    children = np.asarray(jax.random.key_data(jax.random.split(stream, 120)))
    everything = np.concatenate([words.reshape(-1), bits, children.reshape(-1)])
    assert np.unique(everything).size == everything.size  # 1e-3 equal words expected by chance


def test_no_words_where_none_are_needed():
    assert step_words(root_key(7), jnp.arange(3), 0).shape == (0, 3)


@pytest.fixture(scope="module")
def million_words() -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(step_words(streams(root_key(7)).noise, jnp.arange(1000), 2000))


@pytest.fixture(scope="module")
def million(million_words) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(normals_from_words(jnp.asarray(million_words)))


def test_noise_is_standard_normal_and_wrong_scales_are_caught(million):
    draws = million[:20].reshape(-1)
    assert_normal(draws)
    assert_normal(million)
    for wrong in (2 / 3, 3 / 2):
        with pytest.raises(AssertionError):
            assert_normal(wrong * draws)
    with pytest.raises(AssertionError):  # a hundredth of a standard deviation off centre
        assert_normal(million + 0.01)


def test_tails_weigh_the_same_on_both_sides(million):
    for level in (2.0, 3.0, 4.0):
        above, below = int(np.sum(million > level)), int(np.sum(million < -level))
        expected = million.size * scipy.special.ndtr(-level)
        assert abs(above - below) <= 4 * np.sqrt(2 * expected)
        assert abs(above + below - 2 * expected) <= 4 * np.sqrt(2 * expected)


def test_no_holes_where_float32_normals_have_them(million):
    assert million.dtype == np.float64
    assert np.unique(million).size == million.size  # at least 2^53 values: 6e-5 repetitions expected
    coarse = np.asarray(jax.random.normal(jax.random.key(0), (million.size,), jnp.float32))
    assert np.unique(coarse).size < 0.96 * coarse.size  # 2^23 values


def test_consecutive_normals_are_unrelated(million):
    for products in (million[1:] * million[:-1], (million[:, 1:] * million[:, :-1]).T):  # within and between steps
        assert_normal(np.mean(products, axis=0) * np.sqrt(len(products)))
        with pytest.raises(AssertionError):
            assert_normal(np.mean(products + 0.01, axis=0) * np.sqrt(len(products)))


def test_extreme_words_give_finite_normals_in_exact_pairs(x64):
    highs, lows = [0, 1, 2**31 - 1, 2**31, 2**32 - 1], [0, 1, 2**11 - 1, 2**11, 2**32 - 1]
    words = np.array([*(high for high in highs for _ in lows), *lows * len(highs)], np.uint32)
    values = np.asarray(normals_from_words(jnp.asarray(words)))
    assert np.all(np.isfinite(values))
    assert np.max(np.abs(values)) < 9.16
    sign = np.repeat(np.array([2**31, 0], np.uint32), values.size)
    mirrored = np.asarray(normals_from_words(jnp.asarray(words ^ sign)))
    np.testing.assert_array_equal(mirrored, -values)
    assert np.all(values != 0)


def test_the_farthest_normals(x64):
    words = jnp.asarray(np.array([0, 2**31, 0, 0], np.uint32))
    farthest = scipy.special.ndtri(2.0**-65)
    np.testing.assert_allclose(np.asarray(normals_from_words(words)), [farthest, -farthest], rtol=1e-12)
    assert 9.15 < -farthest < 9.16


def test_why_the_uniform_is_folded():
    """The named wrong answer: (k + ½)·2⁻⁶⁴ rounds to 1 at the largest k, and that noise would be infinite."""
    assert np.isinf(scipy.special.ndtri((float(2**64 - 1) + 0.5) * 2.0**-64))


def test_uniforms_of_the_tail_keep_all_their_digits(x64):
    """Words that differ in their last digit give different normals there; near the centre they may not."""
    high, low = np.zeros(1000, np.uint32), np.arange(1000, dtype=np.uint32)
    tail = np.asarray(normals_from_words(jnp.asarray(np.concatenate([high, low]))))
    assert np.all(np.diff(tail) > 0)


def test_normals_invert_their_words(million_words, million):
    """The 63 bits below the sign are the position of |draw| in the tail."""
    high, low = million_words[:1000].astype(np.float64), million_words[1000:].astype(np.float64)
    tail = (high % 2**31 * 2**32 + low) * 2.0**-64
    np.testing.assert_allclose(scipy.special.ndtr(-np.abs(million)), tail, rtol=1e-12, atol=1e-18)
    np.testing.assert_array_equal(million > 0, high >= 2**31)


def test_every_quantile_is_exact_to_fourteen_digits(x64):
    random = np.random.default_rng(3)
    high = random.integers(2**31, size=200_000) >> random.integers(0, 31, size=200_000)  # every octave alike
    high[:2], low = (0, 2**31 - 1), random.integers(2**32, size=200_000)
    words = jnp.asarray(np.concatenate([high, low]).astype(np.uint32))
    uniforms = np.minimum((high * 2.0**32 + low + 0.5) * 2.0**-64, 0.5 - 2.0**-54)
    exact = scipy.special.ndtri(uniforms)
    np.testing.assert_allclose(np.asarray(normals_from_words(words)), exact, rtol=4e-15)  # 2e-15, and those of SciPy


def long_noise(steps: list[int], size: int) -> np.ndarray:
    with jax.enable_x64(True):
        stream = streams(root_key(7)).noise
        return np.asarray(step_normals(stream, jnp.array(steps, jnp.uint32), size))


def test_many_normals_are_drawn_in_parts_that_share_nothing():
    size = 2 * rng.NORMALS_PER_PART + 77
    together = long_noise([3, 8], size)
    assert together.shape == (2, 3 * rng.NORMALS_PER_PART)  # the last part is given whole
    assert together.dtype == np.float64
    np.testing.assert_array_equal(long_noise([8], size)[0], together[1])
    np.testing.assert_array_equal(long_noise([8], size + 1000)[0], together[1])
    assert_normal(together.reshape(-1))
    parts = together[:, : 2 * rng.NORMALS_PER_PART].reshape(4, -1)
    correlations = np.corrcoef(parts)[np.triu_indices(4, 1)]
    assert np.max(np.abs(correlations)) < 5 / np.sqrt(rng.NORMALS_PER_PART)
    assert np.abs(np.corrcoef(parts[0], parts[0])[0, 1]) > 5 / np.sqrt(
        rng.NORMALS_PER_PART
    )  # the wrong answer: a part twice


def test_an_accelerator_draws_the_same_parts(monkeypatch):
    expected = long_noise([3, 8], rng.NORMALS_PER_PART + 5)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    # the same words; what is computed of them may round otherwise in another program
    np.testing.assert_allclose(long_noise([3, 8], rng.NORMALS_PER_PART + 5), expected, rtol=1e-15)


@pytest.mark.parametrize("backend", ["cpu", "tpu"])
def test_lanes_draw_what_each_would_alone(x64, monkeypatch, backend):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    keys, size = jax.random.split(root_key(7), 2), rng.NORMALS_PER_PART + 5
    both, alone = (np.asarray(step_normals(stream, jnp.arange(2), size)) for stream in (keys, keys[1]))
    np.testing.assert_array_equal(both[1], alone)
    assert not np.any(both[0] == both[1])


def test_the_kernel_for_graphics_processors_is_the_same_cipher():
    keys = jax.random.key_data(jax.random.split(root_key(7), 3))
    messages, parts = jnp.array([[0, 5, 2**31], [9, 0, 2**32 - 1]], jnp.uint32)
    plain = chacha._plain_rows(keys, messages, parts, 2 * LANES)
    cipher = (chacha._initial, chacha._permuted)
    kernel = message_blocks(*cipher, keys, messages, parts, 2 * LANES, chacha._MESSAGE, interpret=True)
    np.testing.assert_array_equal(np.asarray(kernel), np.asarray(plain))
    rows = np.asarray(chacha.chacha20_long_messages(keys, messages, parts, chacha.LONG_MESSAGE))
    for row, key, message, part in zip(rows, keys, messages, parts, strict=True):
        words = chacha.chacha20_messages(key, message[None], chacha.LONG_MESSAGE, part)
        np.testing.assert_array_equal(row, np.asarray(words)[:, 0])


def test_a_kernel_that_gives_other_words_or_fails_is_not_used(monkeypatch):
    assert not works(chacha._kernel_rows, chacha._plain_rows)  # no such device here
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def wrong(*arguments):
        return chacha._plain_rows(*arguments).at[1, 3, LANES].add(1)

    def failing(*arguments):
        raise NotImplementedError

    def same(*arguments):
        return chacha._plain_rows(*arguments)

    assert [works(kernel, chacha._plain_rows) for kernel in (same, wrong, failing)] == [True, False, False]


def test_long_messages_have_whole_groups_of_blocks():
    keys, numbers = jax.random.key_data(root_key(7))[None], jnp.zeros(1, jnp.uint32)
    with pytest.raises(ValueError, match="num_words must be a multiple of 4096"):
        chacha.chacha20_long_messages(keys, numbers, numbers, 100)
