"""ChaCha20 as one kernel on NVIDIA GPUs: a block's sixteen words stay in registers for all twenty rounds.

XLA keeps them in memory between rounds, which takes six times as long. The kernel is written in Pallas, whose interface
is still called experimental: before it is used, its words on this device are compared with those of the plain cipher,
and if anything differs, or it does not compile, the plain cipher is used.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LANES = 256  # blocks that a group of threads works on

Initial = Callable[..., tuple[jax.Array, ...]]  # (key words, counters, nonce) -> the cipher's first state
Permute = Callable[[tuple[jax.Array, ...]], tuple[jax.Array, ...]]  # (state) -> words of the key stream


def message_blocks(
    initial: Initial,
    permute: Permute,
    keys: jax.Array,
    messages: jax.Array,
    parts: jax.Array,
    num_blocks: int,
    purpose: int,
    interpret: bool = False,
) -> jax.Array:
    """Key-stream blocks 0 to ``num_blocks`` − 1 of each message: (messages, 16, num_blocks).

    Parameters
    ----------
    initial, permute
        The cipher, on vectors of blocks.
    keys
        A key per message, (messages, 8).
    messages, parts, purpose
        Nonce: number and part of each message, (messages,); what the words are for.
    num_blocks
        A multiple of ``LANES``.
    interpret
        Run without compiling, on any device.
    """
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    def kernel(key: Any, message: Any, part: Any, words: Any) -> None:
        first = (pallas.program_id(1) * LANES).astype(jnp.uint32)
        counters = first + jnp.arange(LANES, dtype=jnp.uint32)
        state = initial([key[0, i] for i in range(key.shape[1])], counters, (purpose, message[0], part[0]))
        for index, word in enumerate(permute(state)):
            words[0, index, :] = word

    with jax.enable_x64(False):  # indices of a grid are 32-bit numbers
        return pallas.pallas_call(
            kernel,
            grid=(messages.shape[0], num_blocks // LANES),
            in_specs=[
                pallas.BlockSpec((1, keys.shape[1]), lambda row, group: (row, 0)),
                pallas.BlockSpec((1,), lambda row, group: (row,)),
                pallas.BlockSpec((1,), lambda row, group: (row,)),
            ],
            out_specs=pallas.BlockSpec((1, 16, LANES), lambda row, group: (row, 0, group)),
            out_shape=jax.ShapeDtypeStruct((messages.shape[0], 16, num_blocks), jnp.uint32),
            compiler_params=triton.CompilerParams(),
            interpret=interpret,
        )(keys, messages, parts)


@lru_cache(maxsize=4)
def works(kernel: Callable[..., jax.Array], plain: Callable[..., jax.Array]) -> bool:
    """Whether this process has an NVIDIA GPU on which ``kernel`` gives the words of ``plain``."""
    if jax.default_backend() != "gpu":
        return False
    with ThreadPoolExecutor(1) as thread:  # a thread of its own, because the question comes up while JAX is tracing
        return thread.submit(_agree, kernel, plain).result()


def _agree(*ciphers: Callable[..., jax.Array]) -> bool:
    keys = np.random.default_rng(0).integers(2**32, size=(3, 8), dtype=np.uint32)
    messages, parts = np.array([[0, 1, 2**31], [7, 0, 2**32 - 1]], np.uint32)
    try:
        ours, plain = (
            np.asarray(jax.jit(each, static_argnums=3)(keys, messages, parts, 2 * LANES)) for each in ciphers
        )
    except Exception:  # whatever a compiler may raise: the plain cipher works everywhere
        return False
    return np.array_equal(ours, plain)
