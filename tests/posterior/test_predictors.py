"""Rows of covariates drawn from what was released: values that the declarations allow, and columns that go together."""

from __future__ import annotations

import numpy as np
import pytest
from support.small_models import histogram_plan

from dpvi.declared.columns import Constant, Levels, Numeric, OneHot
from dpvi.posterior.predictors import possible_rows, released_size

COLUMNS = (Constant(), Numeric(-1, 1), Levels((0, 1)), OneHot(3, reference=True))
COUNT = 40_000


@pytest.fixture(scope="module")
def rows():
    """Independent columns, and the same ones moved until the first goes with all others."""
    rng = np.random.default_rng(0)
    number = rng.uniform(-1, 1, COUNT)
    flag = (rng.random(COUNT) < 0.4).astype(float)
    level = np.eye(3)[rng.integers(0, 3, COUNT)][:, 1:]
    plain = np.column_stack([np.ones(COUNT), number, flag, level])
    moved = plain.copy()
    moved[:, 2] += 0.25 * number
    moved[:, 3] += 0.15 * number
    return plain, moved


def with_number(table: np.ndarray) -> np.ndarray:
    """The covariance of the first column with the flag and the level."""
    return np.cov(table[:, 1:4].T)[0, 1:]


def test_moved_rows_keep_what_columns_share_and_hold_allowed_values_alone(rows):
    plain, moved = rows
    found = possible_rows(COLUMNS, plain, moved, np.random.default_rng(1))
    assert np.array_equal(found[:, 0], plain[:, 0])
    assert set(found[:, 2]) == {0.0, 1.0}
    assert {tuple(row) for row in found[:, 3:]} == {(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)}
    np.testing.assert_array_equal(np.sort(found[:, 1]), np.sort(plain[:, 1]))
    # what lies outside of [0, 1] is cut, which takes half of what was moved out
    share = with_number(found) / with_number(moved)
    assert np.all(share > 0.4)
    assert np.all(share < 1.02)
    rounded = moved.copy()
    rounded[:, 2:] = np.rint(np.clip(moved[:, 2:], 0, 1))
    assert np.all(with_number(rounded) < 0.1 * with_number(moved))  # the nearest value keeps nothing of it


def test_a_level_without_any_chance_is_still_a_level():
    moved = np.array([[2.0, -5.0], [-1.0, -1.0]])
    found = possible_rows((OneHot(2),), moved, np.array([[-1.0, -2.0]]), np.random.default_rng(0))
    assert found.sum() == 1.0
    assert (
        possible_rows((Levels((4.0,)),), moved[:, :1], moved[:, :1], np.random.default_rng(0)).tolist() == [[4.0]] * 2
    )


def test_the_number_of_records_is_declared_or_released_or_asked_for():
    from types import SimpleNamespace

    def result(plan, histograms=None):
        return SimpleNamespace(plan=plan, trace=SimpleNamespace(histograms=histograms))

    assert released_size(result(histogram_plan((), num_records=70))) == 70
    counts = np.array([30.0, 20.0, 51.0])
    assert released_size(result(histogram_plan((Levels((0, 1, 2)),)), counts)) == 101
    with pytest.raises(ValueError, match="public number with --records"):
        released_size(result(SimpleNamespace(num_records=None, covariates=None)))
