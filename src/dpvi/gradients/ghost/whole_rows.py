"""Rows of a matrix as whole numbers, whose products add up exactly.

The gradient of a record, AᵀB, is never formed, so it cannot be cut to a grid as formed vectors are
(:mod:`dpvi.mechanism.gaussian`). Its two sides can. Rows of A are divided by the power of two above their largest entry
and cut towards zero to multiples of 2^-p; rows of B take that power in, are scaled by the clip factor and cut to
multiples of 2^-q C₂. Every product is then a multiple of 2^-(p+q) C₂, and float64 adds up all of a batch without
rounding, in any order and on any device.

Norms are taken of the rows of A that were cut, so cutting them needs no allowance. With one row, cutting B shortens
AᵀB, whose norm is ‖a‖‖b‖. With several, cutting entries of B can lengthen the sum of their products: by at most
Σ_s ‖a_s‖ √O 2^-q C₂ ≤ S √(I O) 2^-q C₂, because entries of A are at most 1. :func:`allowance` is that, relative to C,
and clip factors are smaller by as much.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.gradients.ghost.contractions import Rows
from dpvi.mechanism.gaussian import power_of_two_above

BITS = 38  # p + q: digits of the unit below C₂
MOST_ROWS = 2**13  # of all records in one product where a record has several: 2 + 38 + 13 binary digits, as many as fit
_MOST_ALLOWANCE = 0.05
_SMALLEST, _LARGEST = 2.0**-60, 2.0**100  # largest entries of A: smaller ones count as this, larger ones as broken


def _digits(num_rows: int) -> tuple[int, int]:
    """p and q. Several rows have an allowance for errors that are cut, so these get more digits."""
    return (16, BITS - 16) if num_rows == 1 else (14, BITS - 14)


def cut_data(rows: Rows) -> Rows:
    """The same gradient, up to cutting, from data that are multiples of 2^-p of at most 1.

    Errors of a record whose data are not finite are not finite then: it has no norm and adds nothing.
    """
    dtype = rows.data.dtype
    largest = jnp.max(jnp.abs(rows.data), axis=(2, 3), keepdims=True)
    broken = ~(largest < _LARGEST)
    top = power_of_two_above(jnp.where(broken, 1.0, jnp.maximum(largest, _SMALLEST)))
    fine = 2.0 ** _digits(rows.data.shape[2])[0]
    cut = jnp.trunc(rows.data * (np.asarray(fine, dtype) / top)) * np.asarray(1 / fine, dtype)
    return Rows(jnp.where(broken, 0, cut), jnp.where(broken, jnp.nan, rows.errors * top))


def allowance(batched: int, num_rows: int, inner: int, outer: int) -> float:
    """How much cutting errors may lengthen a gradient, relative to its clip norm: of H, S, I and O of a matrix."""
    if num_rows == 1:
        return 0.0
    _, fine = _digits(num_rows)
    return 2 * math.sqrt(batched) * num_rows * math.sqrt(inner * outer) * 2.0**-fine  # C₂ is at most 2C


def is_worth_it(batched: int, num_rows: int, inner: int, outer: int) -> bool:
    """Whether products of such a matrix fit, and the allowance costs next to nothing."""
    return num_rows <= MOST_ROWS and allowance(batched, num_rows, inner, outer) <= _MOST_ALLOWANCE


def sizes_of(rows: Rows) -> tuple[int, int, int, int]:
    """H, S, I and O."""
    _, batched, count, inner = rows.data.shape
    return batched, count, inner, rows.errors.shape[3]


def largest_ratio(rows: Rows, power: float | jax.Array) -> jax.Array | None:
    """The clip factor that keeps every error below 4 C₂, so that products fit; ``power`` is C₂.

    A record with one row never reaches it, for its gradient is as long as its errors. With several it takes products
    that cancel but for a quarter.
    """
    if rows.data.shape[2] == 1:
        return None
    largest = jnp.max(jnp.abs(rows.errors), axis=(1, 2, 3))
    return 4 * power * (1 - 2.0**-20) / jnp.maximum(largest, float(jnp.finfo(largest.dtype).tiny))


def exact_product(rows: Rows, scale: jax.Array, present: jax.Array) -> jax.Array:
    """Σ_i w_i A_iᵀB_i over records that are ``present``, in units of 2^-BITS C₂: int64, flat.

    ``scale`` is w_i/C₂. The norms of :mod:`~dpvi.gradients.ghost.norms` allow for the rounding of its product with B.
    """
    count = rows.data.shape[2]
    coarse, fine = _digits(count)
    bound = 2.0 ** (fine + (1 if count == 1 else 2))
    # where data are zero, errors have no bound but this; zero times infinity would not be zero
    units = jnp.clip(jnp.trunc(rows.errors * (scale * 2.0**fine)[:, None, None, None]), -bound, bound)
    units = jnp.where(present[:, None, None, None], units, 0)
    step = len(units) if count == 1 else max(1, MOST_ROWS // count)
    total = 0
    with jax.enable_x64(True):
        for first in range(0, len(units), step):
            part = slice(first, first + step)
            data, errors = (side[part].astype(jnp.float64) for side in (rows.data, units))
            product = _product(data, errors)
            total = total + (product * 2.0**coarse).astype(jnp.int64)
        return jnp.asarray(total).reshape(-1)


def plain_product(rows: Rows, present: jax.Array) -> jax.Array:
    """Σ_i A_iᵀB_i of what is not clipped, float64, flat: for plans that promise nothing."""
    errors = jnp.where(present[:, None, None, None], rows.errors, 0)
    with jax.enable_x64(True):
        return _product(rows.data.astype(jnp.float64), errors.astype(jnp.float64)).reshape(-1)


def _product(data: jax.Array, errors: jax.Array) -> jax.Array:
    """Σ over records and rows of data times errors, (H, I, O), in float64 whatever the mode it is traced in."""
    over_records_and_rows, by_matrix = ((0, 2), (0, 2)), ((1,), (1,))
    dimensions = (over_records_and_rows, by_matrix)
    return jax.lax.dot_general(data, errors, dimensions, precision=jax.lax.Precision.HIGHEST)
