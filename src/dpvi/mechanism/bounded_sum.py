"""The clipped sum over a batch: the only place where records are added up."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpvi.core.clip import clip_factor


def bounded_sum(releases: jax.Array, included: jax.Array, clip_norm: float) -> jax.Array:
    """Sum of the clipped rows of ``releases`` that are ``included``.

    Parameters
    ----------
    releases
        One release vector per physical slot, (slots, r).
    included
        Which slots hold a sampled record, (slots,).
    clip_norm
        Bound on each row's norm.

    Guarantees
    ----------
    Adding or removing one record changes the sum by a vector of norm at most ``clip_norm`` (up to the rounding of
    the sum itself). A record with a non-finite release contributes zero, as does an empty slot, whatever it holds.
    """
    factor = clip_factor(releases, clip_norm)
    finite = factor > 0
    weights = jnp.where(included & finite, factor, 0)

    def weighted_sum(rows: jax.Array) -> jax.Array:
        return jnp.matmul(weights, rows, precision=jax.lax.Precision.HIGHEST)

    # Zero times a non-finite number is not zero, so a bad row shows in the plain sum, whatever its weight; only then
    # is it worth a pass over all rows to blank it.
    total = weighted_sum(releases)
    return jax.lax.cond(
        jnp.isfinite(jnp.sum(total)),
        lambda rows: total,
        lambda rows: weighted_sum(jnp.where(finite[:, None], rows, 0)),
        releases,
    )
