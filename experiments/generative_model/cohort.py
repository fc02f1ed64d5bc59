"""A simulated cohort in place of the restricted UK Biobank records: six categorical features and a rare count.

The law is made up and public. Its columns, levels and orders of magnitude look like what Niedzwiedz et al. (2020)
report: most participants are White British, positive tests are rare, and more frequent among ethnic minorities, in
deprived areas and in some parts of the country. No number is an estimate of theirs.

    social class k ~ SOCIAL_CLASSES            three latent classes, which make features depend on each other
    x_j | k        ~ share of level l, tilted: ∝ SHARES_j(l) exp(tilt_k · DIRECTION_j(l))
    y | x          ~ Poisson(exp(intercept + Σ_j log RATE_RATIOS_j(x_j)))

Three classes are within reach of the fitted mixtures (K ≥ 3), and the response is that of the fitted regression, so
that a pooled interval that misses the truth does so because of noise, clipping or too few steps, not of a wrong model.

References
----------
Niedzwiedz et al. (2020), Ethnic and socioeconomic differences in SARS-CoV-2 infection, BMC Medicine 18.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dpvi.table import Categorical, Count, Design, Schema

PUBLISHED_RECORDS = 58_261
RESPONSE = "positive_tests"
INTERCEPT = -2.6  # 7 % of a reference person's kind test positive

_SOCIAL_CLASSES = (0.4, 0.35, 0.25)
_TILTS = (-1.0, 0.0, 1.2)


class Feature(NamedTuple):
    """Levels, reference first, each with its share, its social direction and its rate ratio against the reference."""

    levels: tuple[str, ...]
    shares: tuple[float, ...]
    directions: tuple[float, ...]
    rate_ratios: tuple[float, ...]


FEATURES: Mapping[str, Feature] = {
    "age_group": Feature(
        ("40-45", "45-50", "50-55", "55-60", "60-65", "65-70"),
        (0.10, 0.13, 0.15, 0.18, 0.24, 0.20),
        (0.4, 0.3, 0.1, 0.0, -0.2, -0.3),
        (1.0, 0.95, 0.85, 0.75, 0.65, 0.70),
    ),
    "sex": Feature(("female", "male"), (0.55, 0.45), (0.0, 0.1), (1.0, 1.15)),
    "ethnicity": Feature(
        ("White British", "White other", "South Asian", "Black", "mixed or other"),
        (0.83, 0.06, 0.04, 0.035, 0.035),
        (-0.3, 0.2, 0.8, 1.0, 0.6),
        (1.0, 1.10, 2.00, 2.20, 1.50),
    ),
    "deprivation": Feature(
        ("1st", "2nd", "3rd", "4th", "5th"),
        (0.20, 0.20, 0.20, 0.20, 0.20),
        (-1.0, -0.5, 0.0, 0.5, 1.0),
        (1.0, 1.05, 1.15, 1.30, 1.60),
    ),
    "education": Feature(
        ("degree", "professional", "A levels", "O levels", "none"),
        (0.34, 0.16, 0.12, 0.22, 0.16),
        (-0.8, 0.0, -0.2, 0.4, 1.0),
        (1.0, 1.10, 1.15, 1.30, 1.70),
    ),
    "assessment_centre": Feature(
        ("Newcastle", "Leeds", "Manchester", "Birmingham", "Nottingham", "Bristol", "London", "Reading"),
        (0.12, 0.16, 0.10, 0.12, 0.12, 0.14, 0.14, 0.10),
        (0.4, 0.1, 0.5, 0.4, 0.0, -0.3, 0.2, -0.6),
        (1.0, 1.10, 1.60, 1.40, 0.90, 0.60, 1.25, 0.80),
    ),
}

SCHEMA = Schema({name: Categorical(f.levels) for name, f in FEATURES.items()} | {RESPONSE: Count(upper=50)})


def true_coefficients() -> np.ndarray:
    """Intercept and log rate ratios, in the order of the regression's design."""
    ratios = [ratio for feature in FEATURES.values() for ratio in feature.rate_ratios[1:]]
    return np.array([INTERCEPT, *np.log(ratios)])


def simulate(rng: np.random.Generator, num_records: int) -> dict[str, np.ndarray]:
    """Encoded records of the law, leaves like those of ``SCHEMA.encode``."""
    tilts = rng.choice(_TILTS, num_records, p=_SOCIAL_CLASSES)
    leaves = {name: _levels(rng, tilts, feature) for name, feature in FEATURES.items()}
    design = Design(SCHEMA, tuple(FEATURES)).matrix(leaves)
    truth = true_coefficients()
    rate = np.exp(truth[0] + design @ truth[1:])
    return leaves | {RESPONSE: rng.poisson(rate).astype(np.int32)}


def _levels(rng: np.random.Generator, tilts: np.ndarray, feature: Feature) -> np.ndarray:
    weights = np.asarray(feature.shares) * np.exp(tilts[:, None] * np.asarray(feature.directions))
    bounds = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)[:, :-1]
    return np.sum(rng.uniform(size=(len(tilts), 1)) > bounds, axis=1).astype(np.int32)
