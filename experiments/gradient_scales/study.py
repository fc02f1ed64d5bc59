"""Norms of what single records release: the locations' part, the scales' part, and both together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.adult_logistic.optimum import Optimum
from experiments.adult_logistic.problem import Problem
from experiments.adult_logistic.releases import QUANTILE, published_shifts, release_function
from experiments.adult_logistic.settings import VARIANTS

LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)
PARTS = ("locations", "scales", "together")
_BINS = np.linspace(-5.0, 2.0, 71)  # of log₁₀ norms


@dataclass(frozen=True)
class Settings:
    """The paper shows one place, standard deviations of 0.1, and does not say at which locations.

    Parameters
    ----------
    scale
        The standard deviation of q, the same for all weights.
    num_draws
        Draws of η, each seen by all records, as in a step.
    simulated_records
        Size of a simulated table, or ``None`` for Adult itself.
    seed
        Of the draws and of the start.
    """

    scale: float = 0.1
    num_draws: int = 20
    simulated_records: int | None = None
    seed: int = 123


SIZES: Mapping[str, Settings] = {
    "full": Settings(num_draws=200),
    "gpu": Settings(num_draws=200),
    "small": Settings(),
    "quick": Settings(num_draws=2, simulated_records=2000),
}


def points(problem: Problem, settings: Settings) -> dict[str, Optimum]:
    """Where norms are taken: at the locations of a run's start and of the optimum, with the stated scale."""
    dimension = problem.features.shape[1]
    scale = np.full(dimension, settings.scale)
    start = 0.1 * np.random.default_rng(settings.seed).normal(size=dimension)
    return {"start": Optimum(start, scale), "optimum": Optimum(problem.optimum.location, scale)}


def study(problem: Problem, settings: Settings) -> dict[str, Any]:
    """Quantiles and histograms of norms for every point and variant."""
    rows = []
    for place, point in points(problem, settings).items():
        for variant, estimator in VARIANTS.items():
            draws = np.random.default_rng(settings.seed).normal(size=(settings.num_draws, len(point.location)))
            released = release_function(estimator, problem, point)
            shifts = published_shifts(estimator, problem, point, draws)
            norms, shifted = [], []
            for eta, shift in zip(draws, shifts, strict=True):
                values = released(eta).astype(np.float64)
                norms.append(part_norms(values, len(point.location)))
                shifted.append(np.linalg.norm(values + shift, axis=1))
            rows.append({"point": place, "variant": variant} | _summary(np.concatenate(norms, axis=1), shifted))
    return {"num_draws": settings.num_draws, "scale": settings.scale, "seed": settings.seed, "rows": rows}


def part_norms(values: np.ndarray, dimension: int) -> np.ndarray:
    """Norms of the locations' part, of the scales' part (NaN where none is released) and of both; (3, n)."""
    both = np.linalg.norm(values, axis=1)
    if values.shape[1] == dimension:
        return np.stack([both, np.full_like(both, np.nan), both])
    halves = (np.linalg.norm(part, axis=1) for part in (values[:, :dimension], values[:, dimension:]))
    return np.stack([*halves, both])


def _summary(norms: np.ndarray, shifted: list[np.ndarray]) -> dict[str, Any]:
    """Of one variant at one point.

    ``shift_of_quantile`` is the relative change of the 97.5 % quantile, from which the paper takes C, when prior and
    entropy, divided by the number of records, are inside the clip, as they are in the published program.
    """
    parts: dict[str, Any] = {}
    for name, values in zip(PARTS, norms, strict=True):
        if np.isnan(values).all():
            continue
        counts, _ = np.histogram(np.log10(np.maximum(values, 1e-300)), _BINS)
        parts[name] = {"quantiles": np.quantile(values, LEVELS).tolist(), "histogram": counts.tolist()}
    quantile = np.quantile(norms[-1], QUANTILE)
    change = np.quantile(np.concatenate(shifted), QUANTILE) / quantile - 1
    released = norms[0] > 0  # a record whose label is certain in single precision has no gradient at all
    ratio = float(np.median(norms[1, released] / norms[0, released])) if "scales" in parts else None
    return {"parts": parts, "scales_over_locations": ratio, "shift_of_quantile": float(change)}


def bin_edges() -> np.ndarray:
    """Of the histograms, in log₁₀ of the norm."""
    return _BINS
