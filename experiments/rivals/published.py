"""Figures that others published, for the rows that are not run here."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """One row: coverage of the true parameter, mean width of 95 % intervals, seconds for one where they are told."""

    setting: str
    method: str
    budget: str
    coverage: float | None
    width: float
    seconds: float | None
    source: str


_AWAN = "Awan and Wang, Simulation-based, finite-sample inference for privatized data, JASA (arXiv 2303.05328)"
_BINAGG = "Lin, Slavković and Bhoomireddy, AISTATS 2026 (arXiv 2510.16974), package Shuronglin/BinAgg"

FIGURES: tuple[Figure, ...] = (
    Figure("awan-1", "without privacy, published", "none", None, 0.49, None, _AWAN),
    Figure("awan-1", "repro samples, published", "ε = 1, δ = 0", 0.994, 0.97, 5_000.0, _AWAN),
    Figure("awan-1", "DP-CI-ERM, published", "ε = 1, δ = 0", 0.824, 0.77, None, _AWAN),
    Figure("awan-0.3", "without privacy, published", "none", None, 0.35, None, _AWAN),
    Figure("awan-0.3", "repro samples, published", "ε = 0.3, δ = 0", 0.994, 1.26, None, _AWAN),
    Figure("awan-0.3", "DP-CI-ERM, published", "ε = 0.3, δ = 0", 0.813, 1.06, None, _AWAN),
    Figure("binagg-mu", "without privacy, published", "none", None, 0.0254, None, _BINAGG),
    Figure("binagg-mu", "BinAgg, published", "μ = 1", 0.94, 0.286, None, _BINAGG),
    Figure("binagg-1", "BinAgg, published", "ε = 1", 0.95, 0.80, None, _BINAGG),
)

# of noisy Newton: standard errors ÷ those without privacy, logistic, d = 4, n = 5,000, ε = 1 (arXiv 2103.11003)
NEWTON_INFLATION = {5: 2.9, 10: 3.9}
