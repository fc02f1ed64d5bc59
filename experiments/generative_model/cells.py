"""Which runs each part needs. Parts share runs: a cell is computed once, whichever part asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from experiments.generative_model.problem import CENSUS, COHORT
from experiments.generative_model.settings import CLIP_NORMS, NATURAL_VARIANTS, Settings

EPSILON = 1.0  # of Figures 1, 2, 4 and H
WIDE = 1.0  # σ_q at the start of Figures 2, 3, 4 and H.3


class Cell(NamedTuple):
    """Runs over all starts and seeds: the data, a variant with its C, a budget, σ_q at the start and T."""

    data: str
    variant: str
    clip_norm: float
    epsilon: float
    initial_scale: float
    num_steps: int


class DownstreamCell(NamedTuple):
    """Repeats of the downstream study: a budget and the aligned variant's C."""

    epsilon: float
    clip_norm: float


def cells_of(parts: Sequence[str], settings: Settings) -> list[Cell]:
    """The runs of ``parts``, each once, in the order of the parts."""
    found: list[Cell] = []
    epsilon = _epsilon(settings)
    for part in parts:
        if part == "robustness":
            found += [
                Cell(COHORT, variant, clip_norm, epsilon, scale, settings.num_steps)
                for scale in settings.initial_scales
                for variant, clip_norm in CLIP_NORMS.items()
            ]
        elif part == "epochs":
            found += [
                Cell(COHORT, variant, clip_norm, epsilon, WIDE, length)
                for length in settings.run_lengths
                for variant, clip_norm in CLIP_NORMS.items()
            ]
        elif part == "natural":
            rivals = [(variant, CLIP_NORMS[variant]) for variant in ("vanilla", "aligned")]
            rivals += [
                (variant, clip_norm) for clip_norm in settings.natural_clip_norms for variant in NATURAL_VARIANTS
            ]
            found += [Cell(COHORT, *rival, epsilon, WIDE, settings.num_steps) for rival in rivals]
        elif part == "census":
            found += [
                Cell(CENSUS, variant, clip_norm, epsilon, WIDE, settings.census_steps)
                for variant, clip_norm in CLIP_NORMS.items()
            ]
    return list(dict.fromkeys(found))


def downstream_cells(parts: Sequence[str], settings: Settings) -> list[DownstreamCell]:
    """The budgets and clip norms of the downstream study, where it is asked for."""
    if "downstream" not in parts:
        return []
    return [DownstreamCell(e, c) for e in settings.epsilons for c in settings.downstream_clip_norms]


def _epsilon(settings: Settings) -> float:
    """1 as published, or the smallest budget of a size that has no 1."""
    return EPSILON if EPSILON in settings.epsilons else min(settings.epsilons)
