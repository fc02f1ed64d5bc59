"""Upper bounds on the norm of a matrix gradient, from data and errors, true in floating point.

The gradient of one record is G = AᵀB = Σ_s a_s b_sᵀ, with rows a_s of A and b_s of B. With one row ‖G‖ = ‖a‖‖b‖. With
several, ‖G‖² = Σ_{s,t} ⟨a_s, a_t⟩⟨b_s, b_t⟩: the norms of the rows alone, summed, miss the cross terms and can be too
small by a factor of √S, which would break the privacy of the sum.

Guarantees
----------
What is returned is at least ‖G‖ as a real number, G formed from the A and B given, plus the rounding of a sum that
forms it. u is the unit roundoff, 6e-8 in float32.

| rows | excess over ‖G‖, relative |
| --- | --- |
| one | at most (I + O + 80)u/2, with 2√I for I and 2√O for O above 1,024 |
| several | (I + O + 2S + 16)uρ²/2 + 2S(ρ + 2)u, and never above ρ − 1 + 4Su |

with ρ = Σ_s ‖a_s‖‖b_s‖ / ‖G‖ ≥ 1, about √S for rows in random directions and large where rows cancel.
A non-finite entry gives a non-finite bound. Vectors shorter than 2e-9, or so long that squares overflow, are bounded by
their largest entry, up to √n above their norm.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from dpvi.gradients.ghost.contractions import Rows
from dpvi.release.clip import clip_factor

_HIGHEST = jax.lax.Precision.HIGHEST
_SHORT = 2e-9  # shorter than any vector whose length matters, and long enough for ordinary squares


def gradient_norms(rows: Rows) -> jax.Array:
    """At least ‖A_hᵀB_h‖ for every record and batched matrix, (n, H)."""
    unit = float(jnp.finfo(rows.data.dtype).eps) / 2
    if rows.data.shape[2] == 1:
        # products, and the weighted products that later make the sum, round three times
        return vector_norms(rows.data[:, :, 0]) * vector_norms(rows.errors[:, :, 0]) * (1 + 6 * unit)
    return _gram_bound(rows, unit)


def vector_norms(vectors: jax.Array) -> jax.Array:
    """At least the norm over the last axis: a factor that shortens a vector to ``_SHORT`` tells how long it can be.

    Where squares vanish or overflow, the largest entry has to do; both are found in one pass over the vectors.
    """
    kind, size = jnp.finfo(vectors.dtype), vectors.shape[-1]
    by_squares = _SHORT / clip_factor(vectors, _SHORT)
    by_largest = math.sqrt(size) * jnp.max(jnp.abs(vectors), axis=-1)
    flushed = math.sqrt(size) * float(kind.tiny)  # numbers below the smallest normal one may count as zero
    return jnp.minimum(by_squares, by_largest) * (1 + 4 * float(kind.eps)) + flushed


def _gram_bound(rows: Rows, unit: float) -> jax.Array:
    (data, data_scale), (errors, error_scale) = _scaled(rows.data), _scaled(rows.errors)
    count, inner, outer = data.shape[2], data.shape[3], errors.shape[3]
    grams = [jnp.einsum("nhsi,nhti->nhst", each, each, precision=_HIGHEST) for each in (data, errors)]
    square = jnp.sum(jnp.sum(grams[0] * grams[1], axis=-1), axis=-1)
    mass = jnp.sum(vector_norms(data) * vector_norms(errors), axis=-1) * (1 + count * unit)
    # Cauchy-Schwarz: rounding of every inner product is relative to the product of the norms of its rows
    lost = (inner + outer + 2 * count + 16) * unit
    bound = jnp.sqrt(jnp.maximum(square, 0) + lost * mass**2) + 2 * (count + 2) * unit * mass
    # where squares could vanish, large rows of A meeting small ones of B, the triangle inequality has to do
    smallest = float(jnp.finfo(data.dtype).tiny) ** 0.25
    bound = jnp.minimum(jnp.where(mass > smallest, bound, mass), mass)
    bound = bound * (1 + 2 * (count + 8) * unit)
    return (bound * data_scale + float(jnp.finfo(data.dtype).tiny)) * error_scale


def _scaled(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows over their largest entry, per record and matrix, and what they were divided by."""
    tiny = float(jnp.finfo(rows.dtype).tiny)
    # neither scale nor its reciprocal may be so small that it counts as zero: compilers multiply by reciprocals
    scale = jnp.minimum(jnp.maximum(jnp.max(jnp.abs(rows), axis=(2, 3)), tiny), 2.0**-26 / tiny)
    return rows / scale[:, :, None, None], scale
