"""Adaptive quantile clipping: what a record adds to the count of unclipped records, and how the clip norm follows it.

Settings and accounting are in :mod:`dpvi.declared.clipping`. A record adds ½ where its norm is well below the clip
norm, −½ where it is well above, and something between within a tenth of it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpvi.declared.clipping import QuantileClipping

UNCLIPPED_BOUND = 0.5  # what a record adds to the count, at most
_RAMP = 0.2  # from nine tenths of the clip norm to eleven
_LOWEST, _HIGHEST = 1e-20, 1e20  # the clip norms a plan may have


def unclipped(ratio: jax.Array) -> jax.Array:
    """What records add to the centred count, between −½ and ½, from C/‖release‖ (:func:`dpvi.release.clip.clip_ratio`).

    Guarantees
    ----------
    Never beyond ±½, so adding or removing a record changes the count by at most ½; a broken record, whose ratio is 0,
    adds −½.
    """
    return jnp.clip((1 - 1 / ratio) / _RAMP, -UNCLIPPED_BOUND, UNCLIPPED_BOUND)


def next_clip_norm(clipping: QuantileClipping, clip_norm: jax.Array, noisy_count: jax.Array) -> jax.Array:
    """C_{t+1} = C_t exp(−η(b̃_t − γ)) from C_t and the noisy centred count of step t."""
    assert clipping.expected_batch is not None, "a plan has put it in"
    unclipped_share = 0.5 + noisy_count / clipping.expected_batch
    following = clip_norm * jnp.exp(-clipping.learning_rate * (unclipped_share - clipping.target_quantile))
    return jnp.clip(following, _LOWEST, _HIGHEST)
