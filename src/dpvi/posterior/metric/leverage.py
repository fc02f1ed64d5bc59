"""Records far out in a column: what cannot be seen of them, and which parameters they decide.

Where responses are unbounded, a handful of records far from all others can decide a slope, and where these do not fit,
their scores are longer than counts with noise can show. That happens where a value beyond a declared bound is clipped
to it and the response follows the true value. Histograms show whether there may be such records. No interval can be
made wide enough for them, so they are warned of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpvi.declared.columns import Column, Numeric

_FAR = 4.0  # standard deviations of a column


def far_rows(rows: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Which ``rows`` of covariates, (M, width), have a number that is far from all others, (M,)."""
    found, first = np.zeros(len(rows), bool), 0
    for column in columns:
        if isinstance(column, Numeric):
            values = rows[:, first]
            found |= np.abs(values - values.mean()) > _FAR * values.std()
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
