"""Clipped sums as numbers: they come as whole numbers of a public unit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from dpvi.gradients.ghost.whole_rows import BITS as GHOST_BITS
from dpvi.mechanism.bounded_sum import Clipped
from dpvi.mechanism.gaussian import COUNT_BITS, FORMED_BITS, power_of_two_above

__all__ = ["FORMED_BITS", "GHOST_BITS", "count", "exact_norm_squared", "grid", "limit_squared", "same_bits", "values"]


def unit(clip_norm: Any, bits: int = FORMED_BITS) -> Any:
    """g₁ = 2^-bits C₂."""
    return power_of_two_above(np.asarray(clip_norm, np.float64)) * 2.0**-bits


def values(clipped: Clipped, clip_norm: Any, bits: int = FORMED_BITS) -> np.ndarray:
    """The sum, float64; ``clip_norm`` is one for all, or one for every entry."""
    total = np.asarray(clipped.total)
    if np.any(np.isinf(clip_norm)):
        assert total.dtype == np.float64
        return total
    assert total.dtype == np.int64
    return total * unit(clip_norm, bits)


def count(clipped: Clipped) -> float:
    """The centred count."""
    assert clipped.centred_count.dtype == np.int64
    return float(clipped.centred_count) * 2.0**-COUNT_BITS


def exact_norm_squared(total: Any) -> int:
    """Of a vector of whole numbers, by integers that do not overflow."""
    return sum(int(entry) ** 2 for entry in np.asarray(total).reshape(-1))


def limit_squared(clip_norm: Any, bits: int = FORMED_BITS) -> Fraction:
    """(C/g₁)² as it is, without rounding."""
    return (Fraction(float(clip_norm)) / Fraction(float(unit(clip_norm, bits)))) ** 2


def grid(noise_scale: float, clip_norm: float, bits: int = FORMED_BITS) -> float:
    """g₂: the largest power of two times g₁ that is at most σC/1024, or g₁; ``noise_scale`` is σC."""
    g1 = float(unit(clip_norm, bits))
    return max(g1, float(np.ldexp(1.0, np.frexp(noise_scale / 1024)[1] - 1))) if noise_scale else g1


def same_bits(one: Clipped, other: Clipped) -> None:
    """Both sums are the same, to the last bit."""
    for left, right in zip(one, other, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))
