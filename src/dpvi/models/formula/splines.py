"""Splines with public knots: B-splines and natural cubic splines over declared bounds.

Knots that are not given lie at equal distances between the bounds. Quantiles of the records, where other libraries put
them, would be statistics without noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpvi.models.formula.errors import FormulaError

_MOST_KNOTS = 50


def inner_knots(name: str, lower: float, upper: float, knots: Any, count: int) -> tuple[float, ...]:
    """Given knots, checked, or ``count`` at equal distances between the bounds."""
    if knots is None:
        if count < 0:
            raise FormulaError(f"{name} has fewer columns (df) than its degree needs; ask for more.")
        return tuple(np.linspace(lower, upper, count + 2)[1:-1].tolist())
    given = tuple(float(knot) for knot in knots)
    if len(given) > _MOST_KNOTS:
        raise FormulaError(f"{name[:40]} has more than {_MOST_KNOTS} knots; leave some out.")
    if any(not lower < knot < upper for knot in given) or sorted(set(given)) != list(given):
        raise FormulaError(f"The knots of {name} must rise and lie between its bounds {lower:g} and {upper:g}.")
    return given


def b_spline(x: Any, lower: float, upper: float, knots: Sequence[float], degree: int, numpy: Any) -> list[Any]:
    """All len(knots) + degree + 1 columns of the basis at x, by the recurrence of Cox and de Boor:

    B_{i,0} = 1[t_i ≤ x < t_{i+1}],     B_{i,k} = w_{i,k} B_{i,k−1} + (1 − w_{i+1,k}) B_{i+1,k−1},
    w_{i,k} = (x − t_i)/(t_{i+k} − t_i).
    """
    t = [lower] * (degree + 1) + list(knots) + [upper] * (degree + 1)
    last = len(t) - degree - 2  # the interval that holds the upper bound
    basis = []
    for i in range(len(t) - 1):
        right = x <= t[i + 1] if i == last else x < t[i + 1]
        basis.append(numpy.where((x >= t[i]) & right, numpy.ones_like(x), numpy.zeros_like(x)))
    for k in range(1, degree + 1):
        basis = [
            _rising(x, t, i, k) * basis[i] + (1 - _rising(x, t, i + 1, k)) * basis[i + 1] for i in range(len(t) - k - 1)
        ]
    return basis


def _rising(x: Any, t: Sequence[float], i: int, k: int) -> Any:
    return (x - t[i]) / (t[i + k] - t[i]) if t[i + k] > t[i] else 0 * x


def natural_spline(x: Any, knots: Sequence[float], numpy: Any) -> list[Any]:
    """One column for every knot: the natural cubic spline that is one there and zero at the others.

    Between knots t_j and t_{j+1}, h apart, a spline with values v and second derivatives γ = F v is

        (v_j r + v_{j+1} l)/h + γ_j (r³/h − h r)/6 + γ_{j+1} (l³/h − h l)/6,     l = x − t_j,  r = t_{j+1} − x.

    References
    ----------
    S. N. Wood (2006), Generalized Additive Models, section 4.1.2.
    """
    t = np.asarray(knots, np.float64)
    second = _second_derivatives(t)
    parts: list[Any] = [0 * x for _ in t]
    for j, h in enumerate(np.diff(t).tolist()):
        after = x >= t[j] if j else x >= -np.inf
        before = x < t[j + 1] if j < len(t) - 2 else x <= np.inf
        inside = numpy.where(after & before, numpy.ones_like(x), numpy.zeros_like(x))
        left, right = x - float(t[j]), float(t[j + 1]) - x
        bend_left, bend_right = (right**3 / h - h * right) / 6, (left**3 / h - h * left) / 6
        for column in range(len(t)):
            value = float(second[j, column]) * bend_left + float(second[j + 1, column]) * bend_right
            value = value + (right / h if column == j else 0) + (left / h if column == j + 1 else 0)
            parts[column] = parts[column] + inside * value
    return parts


def _second_derivatives(t: np.ndarray) -> np.ndarray:
    """F: second derivatives at the knots, zero at the ends, of the spline through given values."""
    size, h = len(t), np.diff(t)
    if size < 3:
        return np.zeros((size, size))
    left, right = np.zeros((size - 2, size - 2)), np.zeros((size - 2, size))
    for i in range(size - 2):
        left[i, i] = (h[i] + h[i + 1]) / 3
        right[i, i : i + 3] = [1 / h[i], -1 / h[i] - 1 / h[i + 1], 1 / h[i + 1]]
        if i + 1 < size - 2:
            left[i, i + 1] = left[i + 1, i] = h[i + 1] / 6
    return np.vstack([np.zeros(size), np.linalg.solve(left, right), np.zeros(size)])
