"""The clipped sum over a batch: the only place where records are added up."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpvi.core.clip import clip_factor


def bounded_sum(releases: jax.Array, included: jax.Array, clip_norm: float, careful: bool = True) -> jax.Array:
    """Sum of the clipped rows of ``releases`` that are ``included``.

    Parameters
    ----------
    releases
        One release vector per physical slot, (slots, r).
    included
        Which slots hold a sampled record, (slots,).
    clip_norm
        Bound on each row's norm.
    careful
        Blank non-finite rows. Without it such a row makes the sum non-finite, included or not, which whoever saves
        this pass has to look for.

    Guarantees
    ----------
    Adding or removing one record changes the sum by a vector of norm at most ``clip_norm`` (up to the rounding of
    the sum itself). A record with a non-finite release contributes zero, as does an empty slot, whatever it holds.
    """
    factor = clip_factor(releases, clip_norm)
    if careful:  # zero times a non-finite number is not zero, so a factor of zero does not blank such a row
        releases = jnp.where(factor[:, None] > 0, releases, 0)
    return jnp.matmul(jnp.where(included, factor, 0), releases, precision=jax.lax.Precision.HIGHEST)
