"""Where randomness comes from: one root key, and streams that never share.

The words of a step are a function of (root key, stream, step, part) alone. They do not depend on how steps are grouped
into chunks, on the device or on what else was drawn, and no word is ever used for two things.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.mechanism.chacha import KEY_WORDS, LONG_MESSAGE, chacha20, chacha20_long_messages, chacha20_messages
from dpvi.mechanism.normals import normals_from_words

NORMALS_PER_PART = 8 * LONG_MESSAGE  # of a long draw; two words each


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


def measuring_stream(root: jax.Array) -> jax.Array:
    """The ChaCha20 key of the noise on answers of a measuring run; the number of an answer is its step."""
    return _wrap(_derived(root, "measuring"))


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


def normals_drawn(size: int) -> int:
    """How many normals :func:`step_normals` gives where ``size`` are asked for."""
    return size if size <= NORMALS_PER_PART else -(-size // NORMALS_PER_PART) * NORMALS_PER_PART


def step_normals(stream: jax.Array, steps: jax.Array, size: int) -> jax.Array:
    """``size`` standard normals or more for each of ``steps``: (..., len(steps), ·), the axes of ``stream`` in front.

    They are float64, and stay so until they have met a sum. A few normals come from the words of one message, many from
    messages of :data:`NORMALS_PER_PART` normals each, numbered as parts of the step. The last part is given whole: to
    cut it off would copy all of them. Needs 64-bit mode.
    """
    if size <= NORMALS_PER_PART:
        return jnp.moveaxis(normals_from_words(step_words(stream, steps, 2 * size)), 0, -1)
    parts = jnp.arange(-(-size // NORMALS_PER_PART), dtype=jnp.uint32)
    shape = (*stream.shape, steps.shape[0], parts.shape[0])
    keys = jnp.broadcast_to(jax.random.key_data(stream)[..., None, None, :], (*shape, KEY_WORDS)).reshape(-1, KEY_WORDS)
    messages = jnp.broadcast_to(steps.astype(jnp.uint32)[:, None], shape).reshape(-1)
    draw = _one_by_one if jax.default_backend() == "cpu" else _all_at_once
    drawn = draw(keys, messages, jnp.broadcast_to(parts, shape).reshape(-1))
    return drawn.reshape(*shape[:-1], -1)


def _one_by_one(keys: jax.Array, messages: jax.Array, parts: jax.Array) -> jax.Array:
    """Normals of each part, (messages, NORMALS_PER_PART): a processor is several times as fast on cached words."""

    def one(row: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        key, message, part = row
        words = chacha20_messages(key, message[None], 2 * NORMALS_PER_PART, part)
        return normals_from_words(words[:, 0])

    return jax.lax.map(one, (keys, messages, parts))


def _all_at_once(keys: jax.Array, messages: jax.Array, parts: jax.Array) -> jax.Array:
    """The same, in the order in which words lie in memory, for accelerators."""
    words = chacha20_long_messages(keys, messages, parts, 2 * NORMALS_PER_PART)
    return normals_from_words(words, axis=1)
