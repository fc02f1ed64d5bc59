"""Standard normals by inversion of a 64-bit uniform, without holes and in bounded time.

A float32 generator has only 2²³ distinct values and no tail beyond 5.4 standard deviations; this one has all 2⁶⁴ in the
tails, which reach 9.1, and every float64 nearer to the centre. The quantile function is read from a table of
polynomials, one for each of 64 equal parts of each octave [2⁻ᵉ⁻¹, 2⁻ᵉ) of the uniform: a tenth of the time that a
formula for all of them takes, which for a network was half of a step.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

_SMALLEST = -65  # uniforms are at least 2⁻⁶⁵
_LARGEST = 0.5 - 2.0**-54  # the largest float64 below ½
_PARTS = 6  # parts of an octave, as a power of two
_DEGREE = 5
_MANTISSA, _BIAS = 52, 1023  # of float64


@lru_cache(maxsize=1)
def quantile_table() -> np.ndarray:
    """Coefficients of Φ⁻¹(u) / (u − ½) on each part of each octave below ½, (parts, degree + 1).

    The quotient is smooth and away from zero everywhere, so the product with u − ½ is as accurate, relatively, near the
    centre as in the tails. A polynomial runs through Chebyshev nodes of its part, whose ends are −1 and 1.
    """
    octaves = 2.0 ** np.arange(_SMALLEST, -1)[:, None]
    starts = (octaves * (1 + np.arange(2**_PARTS) / 2**_PARTS)).reshape(-1, 1)
    widths = np.repeat(octaves, 2**_PARTS, axis=1).reshape(-1, 1) / 2**_PARTS
    nodes = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
    uniforms = starts + widths * (nodes + 1) / 2
    values = ndtri(uniforms) / (uniforms - 0.5)
    return np.linalg.solve(np.vander(nodes, increasing=True), values.T).T


def normals_from_words(words: jax.Array, axis: int = 0) -> jax.Array:
    """Standard normals from pairs of 32-bit words; needs 64-bit mode.

    ``words`` has length 2n along ``axis``, and the result n: its float64 entry i comes from words i and n + i, within
    2e-15 of the exact quantile, relatively.
    """
    high, low = jnp.split(words, 2, axis)
    # one bit is the sign and 63 bits a uniform below ½, which float64 holds to the last bit where it is small: there,
    # in the tail, it matters. Nearer to ½ the sum rounds, and must not reach ½, for which there is no polynomial.
    count = (high & np.uint32(0x7FFFFFFF)).astype(jnp.float64) * 2.0**32 + low.astype(jnp.float64)
    below_zero = _lower_quantile(jnp.minimum((count + 0.5) * 2.0**-64, _LARGEST))
    return jnp.where(high >> np.uint32(31) == 0, below_zero, -below_zero)


def _lower_quantile(uniforms: jax.Array) -> jax.Array:
    """Φ⁻¹(u) for 2⁻⁶⁵ ≤ u < ½: exponent and first binary digits of u say which polynomial, the others where on it."""
    digits = jax.lax.bitcast_convert_type(uniforms, jnp.uint64)
    part = (digits >> np.uint64(_MANTISSA - _PARTS)).astype(jnp.int32) - ((_BIAS + _SMALLEST) << _PARTS)
    rest = (digits << np.uint64(64 - _MANTISSA + _PARTS)) >> np.uint64(64 - _MANTISSA)
    between_1_and_2 = jax.lax.bitcast_convert_type(rest | np.uint64(_BIAS << _MANTISSA), jnp.float64)
    x = 2 * between_1_and_2 - 3
    table = quantile_table()
    columns = [jnp.asarray(column).at[part].get(mode="promise_in_bounds") for column in table.T]
    quotient = columns[-1]
    for column in reversed(columns[:-1]):
        quotient = quotient * x + column
    return quotient * (uniforms - 0.5)
