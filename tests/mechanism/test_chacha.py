"""ChaCha20 against the vectors of RFC 8439, and as a JAX random-number implementation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.statistics import assert_frequencies, tolerance

from dpvi.mechanism.chacha import _MESSAGE, _TILE, _random_bits, chacha20, chacha20_blocks, chacha20_messages

ZERO_KEY = "00" * 32
# RFC 8439, section 2.3.2 and appendix A.1: key, nonce, counter, key stream
VECTORS = {
    "2.3.2": (
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "000000090000004a00000000",
        1,
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    "A.1 #1": (
        ZERO_KEY,
        "00" * 12,
        0,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    "A.1 #2": (
        ZERO_KEY,
        "00" * 12,
        1,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    "A.1 #3": (
        "00" * 31 + "01",
        "00" * 12,
        1,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    "A.1 #4": (
        "00ff" + "00" * 30,
        "00" * 12,
        2,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    "A.1 #5": (
        ZERO_KEY,
        "00" * 11 + "02",
        0,
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
}


@pytest.fixture(params=[False, True], ids=["32-bit", "64-bit"], autouse=True)
def precision(request):
    with jax.enable_x64(request.param):
        yield


def words(text: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(text), dtype="<u4")


def key_of(*numbers: int) -> jax.Array:
    return jax.random.wrap_key_data(jnp.asarray(np.array(numbers, np.uint32)), impl=chacha20)


KEY_WORDS = (1, 2, 3, 4, 5, 6, 7, 8)
compiled = jax.jit(chacha20_blocks)


@pytest.mark.parametrize("name", VECTORS)
def test_rfc_8439_vectors(name):
    key, nonce, counter, stream = VECTORS[name]
    # the block stands in the middle of a vector of counters, as it does in use
    counters = jnp.asarray(np.array([7, counter, 9], np.uint32))
    blocks = compiled(jnp.asarray(words(key)), counters, tuple(jnp.asarray(words(nonce))))
    assert blocks.dtype == jnp.uint32
    assert blocks.shape == (16, 3)
    assert np.asarray(blocks[:, 1]).astype("<u4").tobytes().hex() == stream


@pytest.mark.parametrize("name", VECTORS)
def test_rfc_8439_vectors_among_many_blocks(name):
    key, nonce, counter, stream = VECTORS[name]
    counters = np.arange(2 * _TILE + 9, dtype=np.uint32)  # the last tile is not full
    for place in (0, _TILE + 1, counters.size - 1):
        given = jnp.asarray(np.where(np.arange(counters.size) == place, counter, counters + 5).astype(np.uint32))
        blocks = compiled(jnp.asarray(words(key)), given, tuple(jnp.asarray(words(nonce))))
        assert np.asarray(blocks[:, place]).astype("<u4").tobytes().hex() == stream


def test_many_blocks_are_each_what_it_is_among_few():
    keys = jnp.asarray(np.arange(48, dtype=np.uint32).reshape(2, 3, 8) * 0x9E3779B9)  # keys, counters and parts differ
    counters = jnp.asarray(np.arange(2 * 3 * 2 * _TILE, dtype=np.uint32).reshape(-1, 2, 3))
    parts = jnp.asarray(np.array([[5], [7]], np.uint32))
    many = np.asarray(chacha20_blocks(keys, counters, (1, parts, 4)))
    assert many.shape == (16, *counters.shape)
    for row in (0, 1, _TILE, 2 * _TILE - 1):
        few = np.asarray(chacha20_blocks(keys, counters[row], (1, parts, 4)))
        np.testing.assert_array_equal(many[:, row], few)
    assert not np.any(many[:, 0, 0] == many[:, 0, 1])  # the wrong answer: one key or part for all


def test_one_wrong_bit_of_the_key_is_caught():
    _, nonce, counter, stream = VECTORS["A.1 #1"]
    wrong = jnp.asarray(words("01" + "00" * 31))
    blocks = compiled(wrong, jnp.asarray(np.array([7, counter, 9], np.uint32)), tuple(jnp.asarray(words(nonce))))
    assert np.asarray(blocks[:, 1]).astype("<u4").tobytes().hex() != stream


def test_bits_splits_and_folds_of_a_key_never_coincide():
    key = key_of(*KEY_WORDS)
    size = 64
    sources = {
        "key": jax.random.key_data(key),
        "bits": jax.random.bits(key, (8 * size,), jnp.uint32),
        "splits": jax.random.key_data(jax.random.split(key, size)),
        "folds": jax.random.key_data(jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(size))),
    }
    everything = np.concatenate([np.asarray(source).reshape(-1) for source in sources.values()])
    assert everything.size == 8 + 3 * 8 * size
    # equal 32-bit words by chance: about 3e-4 expected in all
    assert np.unique(everything).size == everything.size


def test_messages_are_the_key_stream_under_their_nonce():
    key, messages = jnp.asarray(np.array(KEY_WORDS, np.uint32)), jnp.array([0, 3, 2**31 - 1])
    streams = np.asarray(chacha20_messages(key, messages, 37, 2))
    assert streams.shape == (37, 3)
    for column, message in zip(streams.T, messages, strict=True):
        nonce = tuple(jnp.asarray(np.array([_MESSAGE, int(message), 2], np.uint32)))
        blocks = np.asarray(compiled(key, jnp.arange(3, dtype=jnp.uint32), nonce))  # word, block
        np.testing.assert_array_equal(column, blocks.reshape(-1)[:37])


def test_a_split_does_not_depend_on_how_many_children_are_taken():
    key = key_of(*KEY_WORDS)
    few, many = (np.asarray(jax.random.key_data(jax.random.split(key, n))) for n in (3, 40))
    np.testing.assert_array_equal(few, many[:3])
    grid = jax.random.split(key, (5, 8))
    np.testing.assert_array_equal(np.asarray(jax.random.key_data(grid)).reshape(40, 8), many)


def test_every_width_and_shape():
    widths = (8, 16, 32, 64) if jax.config.read("jax_enable_x64") else (8, 16, 32)
    for width in widths:
        for shape in [(), (3, 11)]:
            bits = jax.random.bits(key_of(*KEY_WORDS), shape, f"uint{width}")
            assert bits.dtype == jnp.dtype(f"uint{width}")
            assert bits.shape == shape
        many = np.asarray(jax.random.bits(key_of(*KEY_WORDS), (256,), f"uint{width}"))
        for position in range(width):  # every bit moves: 256 fair coins
            ones = int(np.sum((many >> many.dtype.type(position)) & many.dtype.type(1)))
            assert abs(ones - 128) <= tolerance(8 + 16 + 32 + 64) * 8


def test_widths_other_than_a_machine_word_are_refused():
    with pytest.raises(ValueError, match="bit_width must be 8, 16, 32 or 64, got 12"):
        _random_bits(jnp.zeros(8, jnp.uint32), 12, (3,))


def test_no_bits_at_all():
    assert jax.random.bits(key_of(*KEY_WORDS), (0,), jnp.uint32).shape == (0,)


def test_the_same_bits_plain_compiled_and_batched():
    keys = jax.random.split(key_of(*KEY_WORDS), 5)

    def draw(key):
        return jax.random.bits(jax.random.fold_in(key, 3), (50,), jnp.uint32)

    plain = np.stack([np.asarray(draw(key)) for key in keys])
    np.testing.assert_array_equal(np.asarray(jax.jit(jax.vmap(draw))(keys)), plain)
    assert len({row.tobytes() for row in plain}) == 5


def test_precision_does_not_change_the_bits():
    here = np.asarray(jax.random.bits(key_of(*KEY_WORDS), (33,), jnp.uint32))
    with jax.enable_x64(not jax.config.read("jax_enable_x64")):
        there = np.asarray(jax.random.bits(key_of(*KEY_WORDS), (33,), jnp.uint32))
    np.testing.assert_array_equal(here, there)


def test_it_serves_jax_random():
    key = jax.random.key(3, impl=chacha20)
    draws = jax.random.uniform(key, (20_000,))
    counts, _ = np.histogram(np.asarray(draws), bins=50, range=(0, 1))
    assert_frequencies(counts, np.full(50, 1 / 50))


def test_bytes_are_uniform_and_a_stuck_bit_is_caught():
    bits = np.asarray(jax.random.bits(key_of(*KEY_WORDS), (100_000,), jnp.uint32))
    uniform = np.full(256, 1 / 256)
    for shift in (0, 8, 16, 24):
        assert_frequencies(np.bincount((bits >> shift) & 0xFF, minlength=256), uniform)
    sometimes_stuck = np.where(np.arange(bits.size) % 20 == 0, bits & 0xFFFFFFFE, bits)
    with pytest.raises(AssertionError):
        assert_frequencies(np.bincount(sometimes_stuck & 1, minlength=2), [0.5, 0.5])
