"""The privacy loss of one Poisson-sampled Gaussian release about a unit of several rows.

Each of a unit's k rows is drawn with probability κ, independently, and adds a vector of norm at most C; j drawn rows
add at most jC. The worst case is one-dimensional and all rows add the same: with clip norm 1 and noise σ, and
b_j = C(k, j) κ^j (1-κ)^(k-j),

    remove       P = Σ_j b_j N(j, σ²)     Q = N(0, σ²)
    add          P = N(0, σ²)             Q = Σ_j b_j N(j, σ²)

A unit of fewer rows is one of k rows of which some add nothing, so these laws are its worst case, too. For k = 1 they
are those of :mod:`dpvi.privacy.privacy_loss`; for κ = 1 they are a Gaussian mechanism of k times the sensitivity. No
such worst case is known here for replacing a unit's rows by others while rows are sampled, so that is refused.

References
----------
Ganesh (2024), Tight group-level DP guarantees for DP-SGD with sampling via mixture of Gaussians mechanisms
(arXiv:2401.10294). That vectors are no worse than their norms: Choquette-Choo, Ganesh, Steinke and Thakurta (2024),
Privacy amplification for matrix mechanisms, corollary 4.7 (arXiv:2310.15526).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import bdtrc, gammaln, xlog1py, xlogy

_LEFT_OUT = 1e-25  # rows drawn at once so rarely count as an infinite loss, like outputs that are cut off
_NEAR = 30.0  # beyond which exp(x) - 1 is exp(x)
_GRID_PER_DEVIATION = 20
_HALVINGS = 25


class DrawnRows(NamedTuple):
    """How many rows of a unit are drawn: numbers, the logarithms of their probabilities, and what is left out."""

    numbers: np.ndarray
    log_weights: np.ndarray
    left_out: float

    @property
    def most(self) -> int:
        return int(self.numbers[-1])


@lru_cache(maxsize=256)
def drawn_rows(sampling_rate: float, rows: int) -> DrawnRows:
    """The law of the number of drawn rows, without what hardly ever happens.

    Examples
    --------
    >>> [round(float(weight), 6) for weight in np.exp(drawn_rows(0.1, 2).log_weights)]
    [0.81, 0.18, 0.01]
    """
    numbers = np.arange(rows + 1)
    ways = gammaln(rows + 1) - gammaln(numbers + 1) - gammaln(rows - numbers + 1)
    log_weights = ways + xlogy(numbers, sampling_rate) + xlog1py(rows - numbers, -sampling_rate)
    more = bdtrc(numbers, rows, sampling_rate)  # the probability of more rows than so many
    kept = np.isfinite(log_weights) & (np.append(1.0, more[:-1]) > _LEFT_OUT)
    return DrawnRows(numbers[kept], log_weights[kept], float(more[kept][-1]))


def check_direction(direction: str) -> None:
    """Refuse substitution, for which no worst case is known here."""
    if direction == "substitute":
        raise ValueError(
            "rows_per_unit above 1 with sampled steps needs adjacency 'add_remove': what it costs under sampling to "
            "replace several rows at once is not known here. Plan with adjacency='add_remove', with sampling_rate=1, "
            "or without steps."
        )


def log_ratio(outputs: np.ndarray, noise_multiplier: float, drawn: DrawnRows) -> np.ndarray:
    """log Σ_j b_j N(x; j, σ²) / N(x; 0, σ²) at each output x: increasing in x, accurate near 0, without overflow."""
    shape = np.shape(outputs)
    near, far, largest = np.full(shape, -drawn.left_out), np.full(shape, -np.inf), np.full(shape, -np.inf)
    for number, log_weight in zip(drawn.numbers, drawn.log_weights, strict=True):
        exponent = number * (outputs - number / 2) / noise_multiplier**2
        near += math.exp(log_weight) * np.expm1(np.minimum(exponent, _NEAR))
        far = np.logaddexp(far, log_weight + exponent)
        largest = np.maximum(largest, exponent)
    # where nearly all rows are drawn, their sum is near 0 and only its logarithm, summed as such, is accurate
    return np.where((largest < _NEAR) & (near > -0.5), np.log1p(np.maximum(near, -0.5)), far)


def density(outputs: np.ndarray, noise_multiplier: float, drawn: DrawnRows) -> np.ndarray:
    """Σ_j b_j N(x; j, σ²) at each output x."""
    total = np.zeros(np.shape(outputs))
    for number, log_weight in zip(drawn.numbers, drawn.log_weights, strict=True):
        total += np.exp(log_weight - 0.5 * ((outputs - number) / noise_multiplier) ** 2)
    return total / (noise_multiplier * math.sqrt(2 * math.pi))


def output_at(losses: np.ndarray, noise_multiplier: float, drawn: DrawnRows, ends: tuple[float, float]) -> np.ndarray:
    """The output between ``ends`` at which :func:`log_ratio` is each of ``losses``, NaN where there is none."""
    grid = np.linspace(*ends, max(2, math.ceil(_GRID_PER_DEVIATION * (ends[1] - ends[0]) / noise_multiplier)))
    known = log_ratio(grid, noise_multiplier, drawn)
    inside = (losses >= known[0]) & (losses <= known[-1])
    wanted = losses[inside]
    right = np.clip(np.searchsorted(known, wanted), 1, len(grid) - 1)
    low, high = grid[right - 1], grid[right]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = log_ratio(middle, noise_multiplier, drawn) >= wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    found = np.full(losses.shape, np.nan)
    found[inside] = (low + high) / 2
    return found
