"""An oracle for the accountant: δ(ε) without discretising the privacy loss.

For a privacy loss L with moment generating function M(s) = E[exp(sL)] under the first of two neighbouring output laws,

    δ(ε) = E[(1 - exp(ε - L))_+] = 1/(2πi) ∫_{Re s = c} M(s) exp(-sε) / (s (s + 1)) ds,   c > 0,

and M of a composition is the product of the steps' M. M itself is a smooth one-dimensional integral. Both integrals
are trapezoid sums of analytic functions, so they converge geometrically; each is refined until it stops moving, and
the contour is extended until what is left of it no longer matters (cut at 14 standard deviations it is 2.8 % low at
σ = 0.5, κ = 0.001, T = 1000). No grid of losses, no FFT, nothing shared with dp-accounting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

_WEIGHT_FLOOR = 90.0  # nats below the peak at which the integrand over outputs is cut
_BEFORE_SADDLE = 0.85
_BLOCK = 64  # contour points evaluated at once
_MOST_TERMS = 1_000_000


class Step(NamedTuple):
    """``count`` Poisson-sampled Gaussian releases; the multiplier is relative to the clip norm."""

    noise_multiplier: float
    sampling_rate: float
    count: int


def delta(steps: Sequence[Step], epsilon: float, adjacency: str = "add_remove", tolerance: float = 1e-9) -> float:
    """δ(ε) of a composition, the worse of both directions, to about ``tolerance`` relative."""
    if adjacency == "substitute":
        return one_sided_delta(steps, epsilon, "substitute", tolerance)
    remove = one_sided_delta(steps, epsilon, "remove", tolerance)
    # Where a Chernoff bound already rules the other direction out, its long contour is not worth walking.
    if _upper_bound(steps, epsilon, "add") < remove:
        return remove
    return max(remove, one_sided_delta(steps, epsilon, "add", tolerance))


def one_sided_delta(steps: Sequence[Step], epsilon: float, direction: str, tolerance: float = 1e-9) -> float:
    """δ(ε) in one direction: ``"remove"``, ``"add"`` or ``"substitute"``."""
    saddle = _saddle(steps, epsilon, direction)
    if saddle is None:
        return 0.0
    # A little before the saddle, rare huge losses have not yet taken over the integrand: their narrow peak would need
    # a much finer step, and a sum that misses it can agree with itself at two step lengths and still be wrong.
    shift = _BEFORE_SADDLE * saddle
    previous, spacing, step_length = math.inf, 1.0, 0.5 / _tilted_scale(steps, epsilon, direction, shift)
    for _ in range(16):
        value = _contour(steps, epsilon, direction, shift, (spacing, step_length), tolerance)
        if abs(value - previous) <= tolerance * abs(value):
            return value
        previous, spacing, step_length = value, spacing / 1.3, step_length / 1.7
    raise ArithmeticError(f"The saddle-point oracle did not converge for {steps}, epsilon {epsilon}, {direction}.")


def _upper_bound(steps: Sequence[Step], epsilon: float, direction: str) -> float:
    """δ(ε) ≤ M(c) exp(-cε) / (1 + c) for any c > 0."""
    saddle = _saddle(steps, epsilon, direction)
    if saddle is None:
        return 0.0
    height = float(np.real(_exponent(steps, epsilon, direction, np.array([saddle]), 1.0)[0]))
    return math.exp(min(0.0, height + math.log(saddle)))


def _exponent(steps: Sequence[Step], epsilon: float, direction: str, points: np.ndarray, spacing: float) -> np.ndarray:
    """Log of the integrand on the contour, with the branch of each step's log M near the principal one."""
    total = -points * epsilon - np.log(points) - np.log1p(points)
    for step in steps:
        total = total + step.count * _log_moment(step, direction, points, spacing)
    return total


def _log_moment(step: Step, direction: str, points: np.ndarray, spacing: float) -> np.ndarray:
    """log E[exp(sL)] of one step by a trapezoid sum over outputs; all ``points`` share their real part."""
    sigma, shift = step.noise_multiplier, float(np.real(points[0]))
    # The loss changes by at most 1/σ² (2/σ² under substitution) per unit of output: far up the contour the sum must
    # still resolve exp(i y L), or it repeats itself instead of decaying.
    height = max(1.0, float(np.max(np.abs(np.imag(points)))))
    interval = spacing * min(0.3 * sigma, 0.3 * sigma**2, 1.5 * sigma**2 / height)
    reach = shift + 2 + 16 * sigma
    coarse = np.arange(-reach, reach, 0.25 * sigma)
    log_base, loss = _loss(step, direction, coarse)
    weights = log_base + shift * loss
    kept = coarse[weights > weights.max() - _WEIGHT_FLOOR]
    outputs = np.arange(kept[0] - sigma, kept[-1] + sigma, interval)
    log_base, loss = _loss(step, direction, outputs)
    peak = float(np.max(log_base + shift * loss))
    rows = max(1, _MOST_TERMS // len(outputs))
    chunks = [points[start : start + rows] for start in range(0, len(points), rows)]
    sums = np.concatenate([np.exp(log_base - peak + np.outer(chunk, loss)).sum(axis=-1) for chunk in chunks])
    return peak + np.log(np.where(sums == 0, 1e-300, sums) * interval)  # cancels to exactly 0 far up the contour


def _loss(step: Step, direction: str, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log density of the first law and the privacy loss at each output (clip norm 1)."""
    sigma, rate = step.noise_multiplier, step.sampling_rate
    log_normal = -0.5 * (outputs / sigma) ** 2 - math.log(sigma) - 0.5 * math.log(2 * math.pi)
    up = _log_ratio(rate, (outputs - 0.5) / sigma**2)
    if direction == "remove":
        return log_normal + up, up
    if direction == "add":
        return log_normal, -up
    return log_normal + up, up - _log_ratio(rate, (-outputs - 0.5) / sigma**2)


def _log_ratio(rate: float, exponent: np.ndarray) -> np.ndarray:
    """log(1 - rate + rate exp(exponent)), exact near 0 and free of overflow."""
    if rate == 1:
        return exponent
    small = np.log1p(rate * np.expm1(np.minimum(exponent, 30.0)))
    rest = (1 - rate) / rate * np.exp(-np.maximum(exponent, 30.0))
    return np.where(exponent < 30.0, small, exponent + math.log(rate) + np.log1p(rest))


def _saddle(steps: Sequence[Step], epsilon: float, direction: str) -> float | None:
    """The positive real point where the integrand is smallest along the axis, or None when δ(ε) is zero."""
    if direction == "add" and epsilon >= sum(_largest_loss_of_adding(step) for step in steps):
        return None

    def height(log_point: float) -> float:
        return float(np.real(_exponent(steps, epsilon, direction, np.array([math.exp(log_point)]), 1.0)[0]))

    low, middle, high = -1.0, 0.0, 1.0
    while height(low) < height(middle):
        low, middle, high = low - 1, low, middle
    while height(high) < height(middle):
        low, middle, high = middle, high, high + 1
    found = minimize_scalar(height, bounds=(low, high), method="bounded", options={"xatol": 1e-2})
    return math.exp(found.x)


def _largest_loss_of_adding(step: Step) -> float:
    return -step.count * math.log1p(-step.sampling_rate) if step.sampling_rate < 1 else math.inf


def _tilted_scale(steps: Sequence[Step], epsilon: float, direction: str, shift: float) -> float:
    """Width of the integrand's peak, as a standard deviation of the tilted loss."""
    gap = 1e-3 * shift
    points = np.array([shift - gap, shift, shift + gap])
    values = np.concatenate([_exponent(steps, epsilon, direction, points[i : i + 1], 1.0) for i in range(3)])
    curvature = float(values[0] - 2 * values[1] + values[2]) / gap**2
    return math.sqrt(max(curvature, 1e-12))


def _contour(
    steps: Sequence[Step],
    epsilon: float,
    direction: str,
    shift: float,
    resolution: tuple[float, float],
    tolerance: float,
) -> float:
    """Trapezoid sum up the line Re s = shift, block by block, until a long stretch adds nothing."""
    (spacing, step_length), total, start, quiet = resolution, 0.0, 0, 0
    while quiet < 4 and start < 400_000:
        points = shift + 1j * step_length * np.arange(start, start + _BLOCK)
        values = np.exp(_exponent(steps, epsilon, direction, points, spacing))
        if start == 0:
            values[0] /= 2
        total += float(np.real(values.sum()))
        # Bounding by absolute values, not by the cancelling sum, keeps a slow oscillating tail from being cut early.
        left = float(np.abs(values).sum()) * max(1.0, start / _BLOCK)
        quiet = quiet + 1 if left < 0.1 * tolerance * abs(total) else 0
        start += _BLOCK
    return total * step_length / math.pi
