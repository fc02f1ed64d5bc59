"""Where randomness comes from: one root key, three streams that never share, and normals without holes.

A step's randomness is a function of (root key, stream, step) alone. It does not depend on how steps are grouped into
chunks, on the device or on what else was drawn, and no bit is ever used twice.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.mechanism.chacha import KEY_WORDS, chacha20


class Streams(NamedTuple):
    """Independent ChaCha20 keys for the three things a run draws."""

    sampling: jax.Array
    noise: jax.Array
    model: jax.Array


def root_key(seed: int | None) -> jax.Array:
    """A 256-bit ChaCha20 key, from the operating system, or derived from an explicit seed for research.

    ``jax.random.key(seed)`` keeps only the low 32 bits of an integer; here all of its digits count.
    """
    if seed is None:
        material = secrets.token_bytes(4 * KEY_WORDS)
    elif isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be a whole number or None, got {seed!r}. None takes 256 bits from the operating system.")
    else:
        material = hashlib.sha256(f"dpvi seed {int(seed)}".encode()).digest()
    words = np.frombuffer(material, dtype="<u4").astype(np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words), impl=chacha20)


def streams(root: jax.Array) -> Streams:
    """Split a root key into the sampling, noise and model streams."""
    return Streams(*jax.random.split(root, 3))


def step_words(stream: jax.Array, steps: jax.Array, num_words: int, part: int = 0) -> jax.Array:
    """``num_words`` random 32-bit words for each of ``steps``, in one call: shape (len(steps), num_words).

    ``part`` separates several draws of one stream within a step.
    """
    key = jax.random.fold_in(stream, part)
    return jax.vmap(lambda step: jax.random.bits(jax.random.fold_in(key, step), (num_words,), jnp.uint32))(steps)


def normals_from_words(words: jax.Array) -> jax.Array:
    """Standard normals from pairs of 32-bit words by inversion of a 53-bit uniform; needs 64-bit mode.

    ``words`` has shape (..., 2, n); the result is float64 of shape (..., n). A float32 generator has only 2²³
    distinct values and no tail beyond 5.4 standard deviations; this one has 2⁵³ and reaches 8.2.
    """
    high, low = words[..., 0, :].astype(jnp.float64), (words[..., 1, :] >> np.uint32(11)).astype(jnp.float64)
    uniform = (high * 2.0**21 + low + 0.5) * 2.0**-53
    return jax.scipy.special.ndtri(uniform)
