"""The privacy loss of one Poisson-sampled Gaussian release, and its pessimistic discretisation.

The worst case of a release is one-dimensional: with clip norm 1, noise σ and sampling rate κ, the two output laws are

    remove       P = (1-κ) N(0, σ²) + κ N(1, σ²)      Q = N(0, σ²)
    add          P = N(0, σ²)                         Q = (1-κ) N(0, σ²) + κ N(1, σ²)
    substitute   P = (1-κ) N(0, σ²) + κ N(1, σ²)      Q = (1-κ) N(0, σ²) + κ N(-1, σ²)

Where one unit has several rows, the number of them that are drawn takes the place of the draw
(:mod:`dpvi.privacy.group_loss`).

and the loss is L = log P/Q at an output drawn from P. "Connect the dots" moves the mass of every loss l between the
grid points a and a + h to those two points so that both its P mass and its Q mass are kept: the share
(1 - exp(a - l)) / (1 - exp(-h)) moves up. dp-accounting takes those shares from second differences of δ(ε), which for
fine grids cancel (a mass error of 6e-5 at h = 1.6e-5 and 4e5 steps); here they are sums of positive numbers.

References
----------
Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), Connect the dots. Lebeda, Regehr, Kamath and Steinke (2024),
Avoiding pitfalls for privacy accounting of subsampled mechanisms under composition.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from dpvi.privacy import group_loss

_REACH = 10.5  # standard deviations of output kept on each side; the rest (1e-25) counts as an infinite loss
_CELLS_PER_DEVIATION = 20
_ROUND_UP = 1 + 4 * np.finfo(float).eps
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)


class DiscreteLoss(NamedTuple):
    """Masses on the losses ``(lowest + i) * interval``, and on an infinite loss."""

    lowest: int
    masses: np.ndarray
    infinity_mass: float


def directions(adjacency: str) -> tuple[str, ...]:
    """The ordered pairs of neighbours that have to be bounded separately."""
    return ("substitute",) if adjacency == "substitute" else ("remove", "add")


def standard_deviation(noise_multiplier: float, sampling_rate: float, direction: str, rows: int = 1) -> float:
    """Standard deviation of the one-step privacy loss, by quadrature.

    For large σ it is κ √(exp(1/σ²) - 1); for small σ that formula is far too large and would make the grid too coarse.

    Examples
    --------
    >>> round(standard_deviation(100.0, 0.1, "remove") / (0.1 * (math.exp(1e-4) - 1) ** 0.5), 6)
    1.0
    >>> round(standard_deviation(2.0, 1.0, "remove"), 6)
    0.5
    """
    points, mass = _quadrature(noise_multiplier, sampling_rate, direction, np.empty(0), rows)
    loss = loss_at(points, noise_multiplier, sampling_rate, direction, rows)
    mean = float(np.sum(mass * loss) / np.sum(mass))
    return math.sqrt(float(np.sum(mass * (loss - mean) ** 2)))


def loss_range(noise_multiplier: float, sampling_rate: float, direction: str, rows: int = 1) -> tuple[float, float]:
    """The losses at the two ends of the outputs that are kept."""
    ends = np.array(_output_range(noise_multiplier, sampling_rate, direction, rows))
    low, high = np.sort(loss_at(ends, noise_multiplier, sampling_rate, direction, rows))
    return float(low), float(high)


def discretise(
    noise_multiplier: float, sampling_rate: float, direction: str, interval: float, rows: int = 1
) -> DiscreteLoss:
    """Replace the privacy loss of one release by a pessimistic one on the multiples of ``interval``.

    ``rows`` is how many of the records may be one unit's, which is added or removed as a whole.

    Returns
    -------
    DiscreteLoss

    Guarantees
    ----------
    δ(ε) of the result, and of any composition of such results, is never below that of the release, up to rounding
    of relative size 1e-15 per mass, which is added. Mass beyond the outputs that are kept counts as an infinite loss.

    Examples
    --------
    >>> loss = discretise(2.0, 0.1, "remove", 0.01)
    >>> bool(abs(loss.masses.sum() + loss.infinity_mass - 1) < 1e-12)
    True
    """
    low, high = loss_range(noise_multiplier, sampling_rate, direction, rows)
    lowest, highest = math.floor(low / interval), math.ceil(high / interval)
    edges = _output_at(np.arange(lowest, highest + 1) * interval, noise_multiplier, sampling_rate, direction, rows)
    points, mass = _quadrature(noise_multiplier, sampling_rate, direction, edges[np.isfinite(edges)], rows)
    scaled = loss_at(points, noise_multiplier, sampling_rate, direction, rows) / interval
    below = np.clip(np.floor(scaled).astype(np.int64), lowest, highest - 1)
    share = np.clip(np.expm1((below - scaled) * interval) / math.expm1(-interval), 0.0, 1.0)
    size = highest - lowest + 1
    masses = np.bincount(below - lowest + 1, mass * share, size)
    masses += np.bincount(below - lowest, mass * (1 - share), size)
    # Rounding is relative to each mass, so scaling up covers it; as an infinite loss it would cost δ once per step.
    masses *= _ROUND_UP / float(masses.sum())
    # Outputs with small losses were cut off as well; counting them as infinite losses only errs upward.
    cut = 2 * float(ndtr(-_REACH))
    return DiscreteLoss(lowest, masses, cut if rows == 1 else cut + group_loss.drawn_rows(sampling_rate, rows).left_out)


def loss_at(
    outputs: np.ndarray, noise_multiplier: float, sampling_rate: float, direction: str, rows: int = 1
) -> np.ndarray:
    """Privacy loss at each output."""
    if rows > 1:
        group_loss.check_direction(direction)
        loss = group_loss.log_ratio(outputs, noise_multiplier, group_loss.drawn_rows(sampling_rate, rows))
        return loss if direction == "remove" else -loss
    variance = noise_multiplier**2
    up = _log_mixture(sampling_rate, (outputs - 0.5) / variance)
    if direction == "remove":
        return up
    if direction == "add":
        return -up
    return up - _log_mixture(sampling_rate, (-outputs - 0.5) / variance)


def _log_mixture(rate: float, exponent: np.ndarray) -> np.ndarray:
    """log(1 - rate + rate exp(exponent)), accurate near 0 and without overflow."""
    if rate == 1:
        return exponent
    moderate = np.log1p(rate * np.expm1(np.minimum(exponent, 30.0)))
    large = exponent + math.log(rate) + np.log1p((1 - rate) / rate * np.exp(-np.maximum(exponent, 30.0)))
    return np.where(exponent < 30.0, moderate, large)


def _output_at(
    losses: np.ndarray, noise_multiplier: float, sampling_rate: float, direction: str, rows: int
) -> np.ndarray:
    """Output with the given loss, infinite or NaN where there is none: only a hint where to cut cells."""
    if rows > 1:
        ends = _output_range(noise_multiplier, sampling_rate, direction, rows)
        loss = losses if direction == "remove" else -losses
        return group_loss.output_at(loss, noise_multiplier, group_loss.drawn_rows(sampling_rate, rows), ends)
    variance, rate = noise_multiplier**2, sampling_rate
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if direction != "substitute":
            loss = losses if direction == "remove" else -losses
            # Where exp overflows the mixture's other part no longer matters.
            exponent = np.where(loss > 300, loss - math.log(rate), np.log1p(np.expm1(np.minimum(loss, 300)) / rate))
            return 0.5 + variance * exponent
        # With u = exp(x/σ²) and b = κ exp(-1/(2σ²)): b u² + (1-κ)(1 - e^l) u - b e^l = 0, so that
        # x/σ² = l/2 + asinh((1-κ) sinh(l/2) / b).
        half = losses / 2
        log_ratio = math.log1p(-rate) - math.log(rate) + 0.5 / variance if rate < 1 else -math.inf
        size = np.log(2 * np.abs(np.sinh(np.minimum(np.abs(half), 300)))) + log_ratio
        inverse = np.where(size > 40, size, np.arcsinh(np.exp(np.minimum(size, 40)) / 2))
        return variance * (half + np.sign(losses) * inverse)


def _output_range(noise_multiplier: float, sampling_rate: float, direction: str, rows: int) -> tuple[float, float]:
    reach = _REACH * noise_multiplier
    most = 1 if rows == 1 else group_loss.drawn_rows(sampling_rate, rows).most
    return (-reach, reach) if direction == "add" else (-reach, most + reach)


def _quadrature(
    noise_multiplier: float, sampling_rate: float, direction: str, edges: np.ndarray, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and their P mass: Gauss-Legendre on cells cut at ``edges`` and never wider than σ/20."""
    low, high = _output_range(noise_multiplier, sampling_rate, direction, rows)
    width = noise_multiplier / _CELLS_PER_DEVIATION * min(1.0, 2 * noise_multiplier)
    regular = np.linspace(low, high, max(2, math.ceil((high - low) / width)))
    cuts = np.unique(np.concatenate([regular, edges[(edges > low) & (edges < high)]]))
    half = np.diff(cuts)[:, None] / 2
    points = (cuts[:-1, None] + half + half * _NODES).ravel()
    mass = (half * _WEIGHTS).ravel() * _density(points, noise_multiplier, sampling_rate, direction, rows)
    return points, mass


def _density(
    outputs: np.ndarray, noise_multiplier: float, sampling_rate: float, direction: str, rows: int
) -> np.ndarray:
    if rows > 1 and direction != "add":
        return group_loss.density(outputs, noise_multiplier, group_loss.drawn_rows(sampling_rate, rows))

    def normal(mean: float) -> np.ndarray:
        return np.exp(-0.5 * ((outputs - mean) / noise_multiplier) ** 2)

    mixture = normal(0.0) if direction == "add" else (1 - sampling_rate) * normal(0.0) + sampling_rate * normal(1.0)
    return mixture / (noise_multiplier * math.sqrt(2 * math.pi))
