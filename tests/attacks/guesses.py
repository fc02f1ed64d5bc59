"""How often an attacker may be right about which of two equally likely data sets was used."""

from __future__ import annotations

import math

import scipy.stats
from support.statistics import LEVEL


def allowed(epsilon: float, delta: float) -> float:
    """Share of right guesses that (ε, δ) leaves possible.

    P(guess A | A) ≤ e^ε P(guess A | B) + δ and the same with A and B exchanged; their sum bounds the mean of both.
    """
    return (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))


def are_more(right: int, trials: int, share: float) -> bool:
    """Whether so many right guesses show, beyond chance, that the attacker is right in more than ``share``."""
    return bool(right > scipy.stats.binom.isf(LEVEL, trials, share))


def are_fewer(right: int, trials: int, share: float) -> bool:
    """Whether they show, beyond chance, that the attacker is right in less."""
    return bool(right < scipy.stats.binom.isf(1 - LEVEL, trials, share))
