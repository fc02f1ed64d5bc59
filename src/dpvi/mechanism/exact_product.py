"""Products of rows with a public matrix, to the same bits whatever is computed beside them.

A floating-point product rounds, and how depends on the order of its additions: on a row's place, on how many rows there
are, on threads. A metric that makes one direction a thousand times as long as another makes that visible. So rows and
matrix are cut to whole numbers first:

    r_i = u_i a_i + cut,     m_j = w_j b_j + cut,     u_i, w_j powers of two, a_i and b_j whole numbers below 2ᵖ.

u_i follows from row i alone: 2⁻ᵖ times the power of two above its largest entry. Every product of entries is a whole
number below 2²ᵖ, every partial sum of d of them one below d 2²ᵖ ≤ 2⁵³, which float64 holds exactly. So a_i · b_j has
no rounding, in any order, fused or not. Multiplying by u_i and by w_j, powers of two, is exact again, because exponents
are kept far from where float64 ends. Entry (i, j) is therefore a function of row i and the matrix alone. ∎

Cutting leaves out less than a unit, which is at most 2^(1−p) times the largest entry of its row. So an entry is off by
at most 2^(2−p) d max|r_i| max|m_j|, with p = 26 for two columns, 23 for a hundred and 21 for a thousand.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpvi.mechanism.gaussian import power_of_two_above

_DIGITS = 53  # of float64
_SMALLEST, _LARGEST = 2.0**-400, 2.0**400  # largest entries: smaller ones count as this, larger ones as broken


def exact_product(rows: jax.Array, matrix: jax.Array) -> jax.Array:
    """``rows @ matrix.T`` up to the error of the module's text, float64; needs 64-bit mode.

    Parameters
    ----------
    rows
        (n, d), one row per record.
    matrix
        (k, d), public.

    Returns
    -------
    (n, k). A row with an entry that is not finite, or above 2⁴⁰⁰, is NaN; so is the column of such a row of ``matrix``.

    Guarantees
    ----------
    What a row gives depends on that row and the matrix alone, bit for bit.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     exact_product(jnp.array([[1.0, 2.0], [jnp.nan, 0.0]]), jnp.array([[3.0, -4.0]])).tolist()
    [[-5.0], [nan]]
    """
    bits = (_DIGITS - (rows.shape[1] - 1).bit_length()) // 2
    whole_rows, row_units = _cut(rows, bits)
    whole_matrix, matrix_units = _cut(matrix, bits)
    product = jnp.matmul(whole_rows, whole_matrix.T, precision=jax.lax.Precision.HIGHEST)
    return product * row_units * matrix_units.T


def _cut(rows: jax.Array, bits: int) -> tuple[jax.Array, jax.Array]:
    """Whole numbers below 2^bits, and the unit of each row, (n, 1): NaN for a broken one, whose numbers are zero."""
    rows = rows.astype(jnp.float64)
    largest = jnp.max(jnp.abs(rows), axis=1, keepdims=True)
    broken = ~(largest < _LARGEST)
    top = power_of_two_above(jnp.where(broken, 1.0, jnp.maximum(largest, _SMALLEST)))
    whole = jnp.where(broken, 0.0, jnp.trunc(rows * (2.0**bits / top)))
    return whole, jnp.where(broken, jnp.nan, top * 2.0**-bits)
