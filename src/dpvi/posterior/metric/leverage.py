"""Records at a bound far out: what cannot be seen of them, and which parameters they decide.

A value beyond its declared bound is clipped to it, and a response that follows the true value then does not fit. Where
that bound lies far from the other records a handful of them decides a slope, whose scores are longer than counts with
noise can show. Histograms show where such records are: no interval can be made wide enough for them, so they are
warned of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpvi.core.columns import Column, Numeric

_FAR = 4.0  # standard deviations of a column


def far_bounds(rows: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Which ``rows`` of covariates, (M, width), lie in the last bin before a bound far from the others, (M,)."""
    found, first = np.zeros(len(rows), bool), 0
    for column in columns:
        if isinstance(column, Numeric):
            values = rows[:, first]
            edge = (column.upper - column.lower) / column.bins
            last = (values < column.lower + edge) | (values > column.upper - edge)
            found |= last & (np.abs(values - values.mean()) > _FAR * values.std())
        first += column.width
    return found


def decided_by(rows: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The share of each parameter's sampling variance that comes from ``rows`` of simulated records, (d,).

    Parameters
    ----------
    rows
        Which records, (M,).
    scores, weights
        Of all of them, (M, d) and (M,).
    """
    information = (scores * weights[:, None]).T @ scores
    influence = weights[:, None] * (scores @ np.linalg.pinv(information)) ** 2
    return influence[rows].sum(axis=0) / np.maximum(influence.sum(axis=0), 1e-300)
