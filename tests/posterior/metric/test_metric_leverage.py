"""Records far out: which they are, and what they decide."""

from __future__ import annotations

import numpy as np
import pytest

from dpvi.declared.columns import Levels, Numeric
from dpvi.posterior.metric.leverage import decided_by, far_rows

COLUMNS = (Levels((0, 1)), Numeric(-1, 1, 32))
ROWS = 8000


def rows(piled: float, bound: float = 1.0, level: float = 0.01) -> np.ndarray:
    """A rare level, and a narrow number of which a share is at its upper bound."""
    random = np.random.default_rng(0)
    numbers = np.where(random.random(ROWS) < piled, 0.99 * bound, 0.1 * random.uniform(-1, 1, ROWS))
    return np.column_stack([random.random(ROWS) < level, numbers])


def scores_of(design: np.ndarray) -> np.ndarray:
    return design * np.random.default_rng(1).normal(size=(ROWS, 1))


def test_records_far_out_are_found():
    some = rows(0.01)
    found = far_rows(some, COLUMNS)
    np.testing.assert_array_equal(found, some[:, 1] > 0.9)
    assert found.any()


@pytest.mark.parametrize(("piled", "bound"), [(0.0, 1.0), (0.3, 1.0), (0.01, 0.2)])
def test_others_are_not(piled, bound):
    """None there; so many that they are not far; at a bound that is not. Nor is a rare level."""
    assert not far_rows(rows(piled, bound), COLUMNS).any()


def test_they_decide_the_slope_of_their_column_alone():
    some = rows(0.01)
    even = np.full(ROWS, 1 / ROWS)
    shares = decided_by(far_rows(some, COLUMNS), scores_of(some), even)
    assert shares[0] < 0.1
    assert shares[1] > 0.5
    np.testing.assert_array_equal(decided_by(np.zeros(ROWS, bool), scores_of(some), even), 0)
    np.testing.assert_allclose(decided_by(np.ones(ROWS, bool), scores_of(some), even), 1)
