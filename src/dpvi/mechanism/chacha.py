"""ChaCha20 (RFC 8439) as a JAX random-number implementation, in pure ``jax.numpy``.

Sampling and noise are privacy-critical, so their bits come from a cipher with a 256-bit key rather than from a
statistical generator. ``jax.random.bits``, ``split`` and ``fold_in`` work on keys of this implementation, under
``jit`` and ``vmap`` and on every backend.

Children of a key are blocks of its own key stream under a nonce that no other purpose uses, so a key's bits, its
splits and its folds never overlap.

References
----------
Y. Nir, A. Langley, *ChaCha20 and Poly1305 for IETF Protocols*, RFC 8439, 2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.random import define_prng_impl

from dpvi.mechanism import chacha_kernel

KEY_WORDS = 8
BLOCK_WORDS = 16
LONG_MESSAGE = BLOCK_WORDS * chacha_kernel.LANES
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_TILE = 256  # blocks that a processor makes at a time: they and what they are made of stay in its nearest cache
_BITS, _SPLIT, _FOLD, _SEED, _MESSAGE = 1, 2, 3, 4, 5  # first nonce word: what a block is for


def _rotate(x: jax.Array, bits: int) -> jax.Array:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _quarter_round(state: list[jax.Array], a: int, b: int, c: int, d: int) -> None:
    state[a] = state[a] + state[b]
    state[d] = _rotate(state[d] ^ state[a], 16)
    state[c] = state[c] + state[d]
    state[b] = _rotate(state[b] ^ state[c], 12)
    state[a] = state[a] + state[b]
    state[d] = _rotate(state[d] ^ state[a], 8)
    state[c] = state[c] + state[d]
    state[b] = _rotate(state[b] ^ state[c], 7)


def _double_round(_: jax.Array, words: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    state = list(words)
    for i in range(4):
        _quarter_round(state, i, 4 + i, 8 + i, 12 + i)
    for i in range(4):
        _quarter_round(state, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return tuple(state)


def chacha20_blocks(key: jax.Array, counters: jax.Array, nonce: tuple[int | jax.Array, ...]) -> jax.Array:
    """Key-stream blocks of ChaCha20.

    Parameters
    ----------
    key
        Eight 32-bit words, or several such keys: shape (..., 8) with leading axes that broadcast with ``counters``.
    counters
        Block counters, any shape.
    nonce
        Three 32-bit words, each a number or an array that broadcasts with ``counters``.

    Returns
    -------
    ``uint32`` of shape ``(16, *counters.shape)``: words first, so that a loop over rounds runs on long vectors.
    """
    key_words = [key[..., i] for i in range(KEY_WORDS)]
    if jax.default_backend() != "cpu":
        return jnp.stack(_permuted(_initial(key_words, counters, nonce)))
    return (_in_tiles if counters.size > 2 * _TILE else _in_rows)(key_words, counters, nonce)


def _in_rows(key: Sequence[jax.Array], counters: jax.Array, nonce: Sequence[int | jax.Array]) -> jax.Array:
    """:func:`chacha20_blocks` with four words in an array, for processors: as fast, and compiled in half the time.

    A round acts on columns of the state. Turning rows 1, 2 and 3 by as many words makes columns of the diagonals, on
    which every second round acts; turning them by the rest of four makes columns of the columns again.
    """
    initial = jnp.stack(_initial(key, counters, nonce))

    def turn(row: jax.Array, places: jax.Array | int) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(jnp.concatenate([row, row]), places, 4)

    def one_round(number: jax.Array, rows: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        state, back = list(rows), 2 * (number % 2)
        _quarter_round(state, 0, 1, 2, 3)
        return state[0], turn(state[1], 1 + back), turn(state[2], 2), turn(state[3], 3 - back)

    rows = jax.lax.fori_loop(0, 20, one_round, tuple(jnp.split(initial, 4)))
    return initial + jnp.concatenate(rows)


def _in_tiles(key: Sequence[jax.Array], counters: jax.Array, nonce: Sequence[int | jax.Array]) -> jax.Array:
    """:func:`chacha20_blocks` on a processor, :data:`_TILE` of them after the other.

    XLA gives every addition of the cipher a kernel of its own. Over all blocks at once they run through memory, and
    over a few blocks the starts of the kernels take longer than the kernels. A tile is therefore marked as a call that
    XLA is to keep and to make one kernel of, as it does of its own accord with the smallest loops. Where it does not
    know the marks, the blocks are the same and take about twice as long.
    """
    tile = jax.jit(lambda *words: _in_rows(words[:KEY_WORDS], words[KEY_WORDS], words[KEY_WORDS + 1 :]))
    num_tiles = -(-counters.size // _TILE)

    def tiled(word: jax.Array) -> jax.Array:
        """(tiles, _TILE), or () of a word that is the same for all."""
        if word.size == 1:
            return word.reshape(())
        flat = jnp.broadcast_to(word, counters.shape).reshape(-1)
        return jnp.pad(flat, (0, num_tiles * _TILE - flat.size)).reshape(num_tiles, _TILE)

    words = [tiled(jnp.asarray(word, jnp.uint32)) for word in (*key, counters, *nonce)]

    def put(index: jax.Array, blocks: jax.Array) -> jax.Array:
        made = tile(*(jax.lax.dynamic_index_in_dim(w, index, keepdims=False) if w.ndim else w for w in words))
        marked: Any = set_xla_metadata(made, xla_cpu_small_call="true", inlineable="false")
        return jax.lax.dynamic_update_slice_in_dim(blocks, marked, index * _TILE, axis=1)

    blocks = jax.lax.fori_loop(0, num_tiles, put, jnp.zeros((BLOCK_WORDS, num_tiles * _TILE), jnp.uint32))
    return blocks[:, : counters.size].reshape(BLOCK_WORDS, *counters.shape)


def _initial(key: Sequence[jax.Array], counters: jax.Array, nonce: Sequence[int | jax.Array]) -> tuple[jax.Array, ...]:
    zero = jnp.zeros_like(counters)
    return (
        *(zero + np.uint32(word) for word in _CONSTANTS),
        *(zero + word for word in key),
        counters,
        *(zero + jnp.asarray(word, jnp.uint32) for word in nonce),
    )


def _permuted(initial: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    # A loop, not an unrolled cipher: unrolled it takes 17 s to compile and runs no faster.
    final = jax.lax.fori_loop(0, 10, _double_round, initial)
    return tuple(a + b for a, b in zip(initial, final, strict=True))


def chacha20_messages(key: jax.Array, messages: jax.Array, num_words: int, part: jax.Array | int = 0) -> jax.Array:
    """``num_words`` words of key stream for each numbered message: shape (num_words, ..., len(messages)).

    This is the cipher's own way of counting: the message number and the part within it are the nonce. Words come
    first, so that whoever reads them position by position reads long vectors. ``key`` is (8,), or (..., 8) for several
    keys, whose axes then stand in the middle.
    """
    num_blocks = -(-num_words // BLOCK_WORDS)
    shape = (*key.shape[:-1], messages.shape[0])
    counters = jnp.arange(num_blocks, dtype=jnp.uint32).reshape(-1, *[1] * len(shape))
    blocks = chacha20_blocks(
        key[..., None, :], jnp.broadcast_to(counters, (num_blocks, *shape)), (_MESSAGE, messages, part)
    )
    return blocks.reshape(BLOCK_WORDS * num_blocks, *shape)[:num_words]


def chacha20_long_messages(keys: jax.Array, messages: jax.Array, parts: jax.Array, num_words: int) -> jax.Array:
    """The words of :func:`chacha20_messages`, a row for each message: shape (len(messages), num_words).

    For accelerators and messages of many words, as many as a multiple of :data:`LONG_MESSAGE`. Here every message has a
    key, (len(messages), 8), and a part of its own.
    """
    if num_words % LONG_MESSAGE:
        raise ValueError(f"num_words must be a multiple of {LONG_MESSAGE}, got {num_words}.")
    in_one_kernel = chacha_kernel.works(_kernel_rows, _plain_rows)
    rows = (_kernel_rows if in_one_kernel else _plain_rows)(keys, messages, parts, num_words // BLOCK_WORDS)
    return rows.reshape(-1, num_words)


def _plain_rows(keys: jax.Array, messages: jax.Array, parts: jax.Array, num_blocks: int) -> jax.Array:
    """(messages, 16, num_blocks)."""
    counters = jnp.broadcast_to(jnp.arange(num_blocks, dtype=jnp.uint32), (messages.shape[0], num_blocks))
    blocks = chacha20_blocks(keys[:, None, :], counters, (_MESSAGE, messages[:, None], parts[:, None]))
    return jnp.moveaxis(blocks, 0, 1)


def _kernel_rows(keys: jax.Array, messages: jax.Array, parts: jax.Array, num_blocks: int) -> jax.Array:
    return chacha_kernel.message_blocks(_initial, _permuted, keys, messages, parts, num_blocks, _MESSAGE)


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    if bit_width not in (8, 16, 32, 64):
        raise ValueError(f"bit_width must be 8, 16, 32 or 64, got {bit_width}.")
    size = math.prod(shape)
    num_words = -(-size * bit_width // 32)
    num_blocks = -(-num_words // BLOCK_WORDS)
    if num_blocks >= 2**32:
        raise ValueError("One key gives at most 256 GiB of bits; split it first.")
    blocks = chacha20_blocks(key, jnp.arange(num_blocks, dtype=jnp.uint32), (_BITS, 0, 0))
    words = blocks.reshape(-1)[:num_words]
    if bit_width == 64:
        pairs = words.reshape(2, -1).astype(jnp.uint64)
        words = (pairs[0] << np.uint64(32)) | pairs[1]
    elif bit_width < 32:
        shifts = np.arange(0, 32, bit_width, dtype=np.uint32)
        words = (words[:, None] >> shifts).reshape(-1).astype(jnp.dtype(f"uint{bit_width}"))[:size]
    return words.reshape(shape)


def _seed(seed: jax.Array) -> jax.Array:
    words = jnp.zeros(KEY_WORDS, jnp.uint32).at[0].set(seed.astype(jnp.uint32))
    return chacha20_blocks(words, jnp.zeros((), jnp.uint32), (_SEED, 0, 0))[:KEY_WORDS]


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    size = reduce(int.__mul__, shape, 1)
    children = chacha20_blocks(key, jnp.arange(size, dtype=jnp.uint32), (_SPLIT, 0, 0))[:KEY_WORDS]
    return jnp.moveaxis(children, 0, -1).reshape(*shape, KEY_WORDS)


def _fold_in(key: jax.Array, data: int | jax.Array) -> jax.Array:
    return chacha20_blocks(key, jnp.asarray(data).astype(jnp.uint32), (_FOLD, 0, 0))[:KEY_WORDS]


chacha20 = define_prng_impl(
    key_shape=(KEY_WORDS,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="chacha20",
    tag="chacha",
)
