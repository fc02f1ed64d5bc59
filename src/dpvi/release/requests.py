"""What may be asked of all records at once, and the answers: the two sides of a measuring run talk in these.

A request is made from released quantities only, so making it costs no privacy. Answering it adds, over all records,
what one record contributes, a vector of norm at most 1, and adds Gaussian noise. ``units`` says how much of the budget
an answer takes: the noise on each of its coordinates has standard deviation σ/√units, with σ the plan's noise
multiplier, and all answers take at most the plan's units together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# |W g| falls into one of these bins: below the first edge, between two, above the last. Far out bins are wide: a few
# records there matter wherever they are, and every bin has its own noise.
NORM_EDGES = 2.0 ** np.array([*np.arange(-2, 2, 0.5), 3, 5, 8])


class CovariateMoments(NamedTuple):
    """Σ over records of v(x̃) min(1, 1/|x̃|²), x̃ = B x the covariates as one vector, v the upper triangle of x̃x̃ᵀ.

    Off the diagonal v holds √2 x̃_a x̃_b, so that |v| = |x̃|². Entries follow ``np.triu_indices``.
    """

    metric: np.ndarray  # B, (k, columns)
    units: int


class Curvature(NamedTuple):
    """Σ over records of v(W h Wᵀ) min(1, 1/‖W h Wᵀ‖), h = −∇²log p of a record at ``query``, ‖·‖ Frobenius's norm.

    v is the upper triangle as in :class:`CovariateMoments`.
    """

    query: np.ndarray  # (d,)
    metric: np.ndarray  # W, (d, d)
    units: int


class ScoreNorms(NamedTuple):
    """How many records have a score g at ``query`` with |W g| in each of the bins of :data:`NORM_EDGES`."""

    query: np.ndarray  # (d,)
    metric: np.ndarray  # W, (d, d)
    units: int


class Scores(NamedTuple):
    """Σ over records of W g min(1, 1/|W g|), g the score of a record at ``query``."""

    query: np.ndarray  # (d,)
    metric: np.ndarray  # W, (d, d)
    units: int


Request = CovariateMoments | Curvature | ScoreNorms | Scores
KINDS = (CovariateMoments, Curvature, ScoreNorms, Scores)  # in the order in which files number them


class Answered(NamedTuple):
    """A request and what was released for it, float64."""

    request: Request
    released: np.ndarray
