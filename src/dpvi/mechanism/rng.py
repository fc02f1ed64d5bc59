"""Where randomness comes from: one root key, three streams that never share, and normals without holes.

The words of a step are a function of (root key, stream, step, part) alone. They do not depend on how steps are grouped
into chunks, on the device or on what else was drawn, and no word is ever used for two things.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.mechanism.chacha import KEY_WORDS, chacha20, chacha20_messages


class Streams(NamedTuple):
    """Independent keys for the three things a run draws: ChaCha20 for what privacy rests on, threefry for the model."""

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
        raise TypeError(
            f"seed must be a whole number or None, got {seed!r}. None takes 256 bits from the operating system."
        )
    else:
        material = hashlib.sha256(f"dpvi seed {int(seed)}".encode()).digest()
    return _wrap(material)


def streams(root: jax.Array) -> Streams:
    """Derive the sampling, noise and model streams from a root key (HMAC-SHA256 under the stream's name).

    It runs on the host: compiling a cipher for three keys would take longer than many a fit. Variational draws are
    public and need no cipher, so the model's key is one of JAX's own.
    """
    sampling, noise, model = (_derived(root, name) for name in Streams._fields)
    return Streams(_wrap(sampling), _wrap(noise), jax.random.wrap_key_data(_words(model[:8]), impl="threefry2x32"))


def histogram_stream(root: jax.Array) -> jax.Array:
    """The ChaCha20 key of the noise on histograms, which no step uses."""
    return _wrap(_derived(root, "histograms"))


def study_secret(roots: Sequence[jax.Array]) -> bytes:
    """A key that only whoever has the root keys of all runs of a study can derive, and that no draw comes from."""
    return hashlib.sha256(b"".join(_derived(root, "study") for root in roots)).digest()


def _derived(root: jax.Array, name: str) -> bytes:
    secret = np.asarray(jax.random.key_data(root)).astype("<u4").tobytes()
    return hmac.digest(secret, name.encode(), "sha256")


def _words(material: bytes) -> jax.Array:
    return jnp.asarray(np.frombuffer(material, dtype="<u4").astype(np.uint32))


def _wrap(material: bytes) -> jax.Array:
    return jax.random.wrap_key_data(_words(material), impl=chacha20)


def step_words(stream: jax.Array, steps: jax.Array, num_words: int, part: jax.Array | int = 0) -> jax.Array:
    """``num_words`` random 32-bit words for each of ``steps``, in one call: shape (num_words, ..., len(steps)).

    ``stream`` is one key, or an array of keys whose axes then stand in the middle. ``part`` separates several draws of
    one stream within a step.
    """
    return chacha20_messages(jax.random.key_data(stream), steps, num_words, part)


def normals_from_words(words: jax.Array) -> jax.Array:
    """Standard normals from pairs of 32-bit words by inversion of a 53-bit uniform; needs 64-bit mode.

    ``words`` has shape (2 n, ...); the result is float64 of shape (n, ...). A float32 generator has only 2²³
    distinct values and no tail beyond 5.4 standard deviations; this one has 2⁵³ and reaches 8.2.
    """
    size = words.shape[0] // 2
    high, low = words[:size], words[size:] >> np.uint32(11)
    # one bit is the sign and 52 bits a uniform below ½, where float64 holds every midpoint: near 1 the last midpoint
    # would round to 1 and its normal to infinity
    count = (high & np.uint32(0x7FFFFFFF)).astype(jnp.float64) * 2.0**21 + low.astype(jnp.float64)
    below_zero = jax.scipy.special.ndtri((count + 0.5) * 2.0**-53)
    return jnp.where(high >> np.uint32(31) == 0, below_zero, -below_zero)
