"""The Gaussian mechanism to the last bit: the one place where sums of records meet noise.

Whatever is summed is first turned into whole numbers of a public unit g₁. A clipped number is cut towards zero, which
never lengthens a vector, so the whole numbers of one record have norm at most C/g₁ as real numbers. Sums of whole
numbers are exact: the order of records, chunks, microbatches, devices and processes cannot matter. Then

    s̃ = g₂ · round((S + ⌊σC z / g₁⌋) / 2ᵏ),     g₂ = 2ᵏ g₁, the largest power of two times g₁ that is at most σC/1024,

with z from :mod:`dpvi.mechanism.normals` in double precision. S is whole, so S + ⌊x⌋ = ⌊S + x⌋: all of s̃ is a function
of S + σC z/g₁, the ideal mechanism on a sum whose sensitivity is exactly bounded. No digit of s̃ below g₂ exists, so
none can tell which sums could have led to it. docs/explanation/privacy.md has the proof.

Steps, counts of unclipped records and histograms all go through :func:`noisy`. Nothing else in the library adds noise
but the published baselines, which say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.backend.compiling import plain_fusions

FORMED_BITS = 30  # g₁ = 2⁻³⁰ C₂, with C₂ the power of two above C, for vectors that are formed
COUNT_BITS = 30  # of a count of records, each of which adds at most ½
_WHOLE_BITS = 30  # of numbers that 32 bits hold, with their sign
_MANY_COLUMNS = 32  # from here on a processor adds floats faster than it converts them
_RESOLUTION = 10  # g₂ is at most 2⁻¹⁰ σC
_FEWEST_TOGETHER = 64  # numbers
LARGEST_MULTIPLIER = 2.0**20  # noise above 2⁶⁰ units would not fit beside a sum


def power_of_two_above(value: Any) -> Any:
    """The smallest power of two above ``value``, a positive number or array; exact.

    Examples
    --------
    >>> power_of_two_above(np.array([0.3, 3.0, 4.0]))
    array([0.5, 4. , 8. ])
    """
    if not isinstance(value, jax.Array):
        return np.ldexp(1.0, np.frexp(value)[1])
    kind, bits, mantissa = _layout(value.dtype)
    digits = jax.lax.bitcast_convert_type(value, kind)
    exponent = jax.lax.shift_right_logical(digits, _like(mantissa, digits)) + _like(1, digits)
    return jax.lax.bitcast_convert_type(jax.lax.shift_left(exponent, _like(mantissa, digits)), bits)


def per_unit(clip_norm: Any, bits: int, dtype: Any) -> Any:
    """2^bits / C₂, a power of two: a number times this is that number in units. Exact; C₂ reads no record."""
    if not isinstance(clip_norm, jax.Array):
        return np.asarray(np.ldexp(1.0, bits) / power_of_two_above(np.asarray(clip_norm, np.float64)), dtype)
    return (np.asarray(2.0**bits, dtype) / power_of_two_above(clip_norm).astype(dtype)).astype(dtype)


def exact_sum(values: jax.Array, present: jax.Array, bits: int) -> jax.Array:
    """Σ over the first axis of ``values`` in units, cut towards zero, where they are ``present``: int64.

    Parameters
    ----------
    values
        Floats of at most 2^bits, one row per record; of one that is not present anything.
    present
        One entry per row.
    bits
        Float64 holds every partial sum, in any order, of 2²³ rows of 30 bits and 2¹⁵ rows of 38.
    """
    at = present.reshape(-1, *[1] * (values.ndim - 1))
    if bits <= _WHOLE_BITS and math.prod(values.shape[1:]) < _MANY_COLUMNS:  # converting cuts
        cut = jnp.where(at, values.astype(jnp.int32), 0)
        with jax.enable_x64(True):
            return jax.lax.reduce(cut.astype(jnp.int64), np.int64(0), jax.lax.add, (0,))
    cut = jnp.where(at, jnp.trunc(values), 0)
    with jax.enable_x64(True):
        return jax.lax.reduce(cut.astype(jnp.float64), np.float64(0), jax.lax.add, (0,)).astype(jnp.int64)


def is_unbounded(clip_norm: Any) -> bool:
    """Whether nothing is clipped, which no private plan allows: then there is no unit."""
    return not isinstance(clip_norm, jax.Array) and bool(np.any(np.isinf(clip_norm)))


def plain_sum(values: jax.Array, present: jax.Array) -> jax.Array:
    """Σ over the rows of unclipped ``values`` that are ``present``, float64: for plans that promise nothing."""
    rows = jnp.where(present[:, None], values, 0)
    with jax.enable_x64(True):
        return jax.lax.reduce(rows.astype(jnp.float64), np.float64(0), jax.lax.add, (0,))


def noisy(
    total: jax.Array,
    normals: jax.Array,
    noise_multiplier: jax.Array | float,
    clip_norm: Any,
    bits: int,
    dtype: Any,
) -> jax.Array:
    """The release s̃ of the module's text.

    Parameters
    ----------
    total
        S in units of g₁ = 2^-bits C₂, int64. Sensitive: this is where it stops.
    normals
        z, float64, as many.
    noise_multiplier
        σ, for every entry or one for all. Public. Without noise nothing is snapped.
    clip_norm
        C, for every entry or one for all, a number, an array of numbers, or a traced scalar that reads no record.
        Infinite where nothing is clipped: ``total`` is float64 then, and returned as it is.
    bits
        Digits of the unit below C₂.
    dtype
        Of what is returned: casting comes last and is a function of s̃.

    Guarantees
    ----------
    Where total moves by a vector of norm at most C/g₁ when a record is added or removed, this is a Gaussian mechanism
    with noise multiplier σ, rounded: (S + σC z/g₁) decides it.
    """
    with jax.enable_x64(True):
        if is_unbounded(clip_norm):
            return total.astype(dtype)
        norm = clip_norm.astype(jnp.float64) if isinstance(clip_norm, jax.Array) else np.asarray(clip_norm, np.float64)
        unit = power_of_two_above(norm) * 2.0**-bits
        scale = jnp.asarray(noise_multiplier, jnp.float64) * (norm / unit)
        shift = _shift(scale)
        moved = total + jnp.floor(scale * normals).astype(jnp.int64)
        half = jax.lax.shift_right_logical(jax.lax.shift_left(jnp.ones_like(shift), shift), jnp.ones_like(shift))
        snapped = jnp.left_shift(jnp.right_shift(moved + half, shift), shift)
        return (snapped.astype(jnp.float64) * unit).astype(dtype)


def _shift(scale: jax.Array) -> jax.Array:
    """k: the largest power of two that is at most ``scale``/1024, or 0."""
    digits = jax.lax.bitcast_convert_type(scale, jnp.int64)
    exponent = jnp.right_shift(digits, 52) - 1023  # of zero and of tiny numbers it is far below zero
    return jnp.maximum(exponent - _RESOLUTION, 0)


def noisy_counts(counts: np.ndarray, normals: np.ndarray, noise_scale: float) -> np.ndarray:
    """Whole ``counts`` plus noise of standard deviation ``noise_scale``: whole numbers, float64, on the host."""
    to_nearest = 0.5 / noise_scale if noise_scale else 0.0  # the noise is rounded, not cut: a count has few digits
    # one digit below the power of two above 1, so that the unit is one record
    return noisy_on_host(counts, np.asarray(normals) + to_nearest, noise_scale, clip_norm=1.0, bits=1)


def noisy_on_host(
    total: np.ndarray, normals: np.ndarray, noise_multiplier: float, clip_norm: float, bits: int
) -> np.ndarray:
    """:func:`noisy` of a few numbers, float64, by one compiled program for all lengths up to a power of two."""
    shape, count = np.shape(total), np.size(total)
    size = max(_FEWEST_TOGETHER, 2 ** (count - 1).bit_length())
    with jax.enable_x64(True):
        sums, drawn = jnp.asarray(np.resize(total, size), jnp.int64), jnp.asarray(np.resize(normals, size))
        found = _compiled()(sums, drawn, jnp.float64(noise_multiplier), clip_norm, bits, jnp.float64)
        return np.asarray(found)[:count].reshape(shape)


@cache
def _compiled() -> Callable[..., jax.Array]:
    """Compiled once: as separate operations, a dozen small programs would be, for every length anew."""
    return jax.jit(noisy, static_argnums=(3, 4, 5), compiler_options=plain_fusions())


def check_noise_multiplier(noise_multiplier: float) -> None:
    """Refuse noise that whole numbers of 64 bits could not hold."""
    if noise_multiplier > LARGEST_MULTIPLIER:
        raise ValueError(
            f"The plan's noise multiplier is {noise_multiplier:.4g}; sums are kept in 64-bit whole numbers, which hold "
            f"noise multipliers up to {LARGEST_MULTIPLIER:.0f}. Plan with a larger epsilon, fewer steps or units, or "
            "a smaller sampling rate."
        )


def _layout(dtype: Any) -> tuple[Any, Any, int]:
    """The unsigned type of the same width, the type itself, and its number of stored digits."""
    return (jnp.uint64, jnp.float64, 52) if dtype == jnp.float64 else (jnp.uint32, jnp.float32, 23)


def _like(value: int, array: jax.Array) -> jax.Array:
    return jax.lax.full_like(array, value)
