"""Equation 23 by hand."""

from __future__ import annotations

import numpy as np
import pytest

from studies.mpae import mpae


def test_by_hand():
    """|1.5 − 1|/|2 − 1| = ½ and |−3 − (−2)|/|2 − (−2)| = ¼."""
    assert mpae([1.5, -3.0], [2.0, 2.0], [1.0, -2.0]) == pytest.approx(0.375)


def test_start_is_one_and_optimum_is_zero_along_leading_axes():
    initial, optimum = np.array([2.0, -1.0, 5.0]), np.array([1.0, 1.0, 1.0])
    path = initial + np.linspace(0, 1, 5)[:, None] * (optimum - initial)
    np.testing.assert_allclose(mpae(path, initial, optimum), [1, 0.75, 0.5, 0.25, 0])


def test_each_run_has_its_own_start():
    starts, optimum = np.array([[2.0, 3.0], [-1.0, 9.0]]), np.array([1.0, 1.0])
    runs = np.stack([starts, (starts + optimum) / 2], axis=1)  # (runs, steps, D)
    np.testing.assert_allclose(mpae(runs, starts[:, None], optimum), [[1, 0.5], [1, 0.5]])


def test_a_diverged_run_is_not_left_out():
    errors = mpae([[1.0, np.nan], [3.0, 3.0]], [2.0, 2.0], [1.0, 1.0])
    assert np.isnan(errors[0])
    assert errors[1] == 2


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match=r"Parameters \[1\] start at the optimum"):
        mpae(np.zeros((4, 3)), [1.0, 2.0, 3.0], [0.0, 2.0, 0.0])
    with pytest.raises(ValueError, match="finite"):
        mpae(np.zeros(2), [1.0, np.nan], [0.0, 0.0])
    with pytest.raises(ValueError, match="last axis"):
        mpae(1.0, 1.0, 0.0)
