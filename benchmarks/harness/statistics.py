"""Medians of times and of ratios taken within a round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

Summary = dict[str, float]


def summary(values: Sequence[float], scale: float = 1.0, digits: int = 4) -> Summary:
    """Median and quartiles of ``values``, times ``scale``."""
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {
        "median": round(median * scale, digits),
        "lower_quartile": round(lower * scale, digits),
        "upper_quartile": round(upper * scale, digits),
    }


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Summary:
    """Median and quartiles over rounds of one time divided by another of the same round."""
    return summary([a / b for a, b in zip(numerator, denominator, strict=True)], digits=3)
