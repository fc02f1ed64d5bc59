"""The mechanism as it was when it was attacked, small enough to put in the place of the shipped one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dpvi.mechanism.bounded_sum import Clipped
from dpvi.release.clip import clip_factor


def bounded_sum(releases: jax.Array, included: jax.Array, clip_norm: float, layers: None = None) -> Clipped:
    """Floats, clipped and added up in double precision: rounded, and not in whole numbers of anything."""
    assert layers is None
    weights = jnp.where(included, clip_factor(releases, clip_norm), 0)
    with jax.enable_x64(True):
        total = jnp.sum(weights.astype(jnp.float64)[:, None] * releases.astype(jnp.float64), axis=0)
        return Clipped(total, jnp.zeros((), jnp.int64))


def noisy(
    total: jax.Array, normals: jax.Array, noise_multiplier: Any, clip_norm: Any, bits: int, dtype: Any
) -> jax.Array:
    """Noise is rounded to the run's precision, and then added to the two halves of the sum."""
    with jax.enable_x64(True):
        high = total.astype(dtype)
        low = (total - high.astype(jnp.float64)).astype(dtype)
        scale = (jnp.asarray(noise_multiplier, jnp.float64) * clip_norm).astype(dtype)
        return high + (low + scale * normals.astype(dtype))
