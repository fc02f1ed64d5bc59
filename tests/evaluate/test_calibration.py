"""Calibration on logistic data whose miscalibration is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import interp1d
from scipy.special import expit

from dpvi.evaluate import binned_calibration_rmse, calibration_curve, calibration_rmse

N = 15_060  # Adult's test set
NOISE = np.sqrt(0.11 * 10 / N)  # √(p(1 − p)/n_b), with the mean of p(1 − p) of the data below


def logistic(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels with about Adult's share of positives."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-2.0, 2.1, N)
    return logits, (rng.random(N) < expit(logits)).astype(int)


def test_bins_have_equal_counts_and_are_means():
    score, label = np.random.default_rng(0).random(103), np.random.default_rng(1).integers(0, 2, 103)
    curve = calibration_curve(score, label)
    assert curve.num_records.sum() == 103
    assert set(curve.num_records) == {10, 11}
    order = np.argsort(score)
    np.testing.assert_allclose(curve.mean_score[0], score[order][:11].mean())
    np.testing.assert_allclose(curve.fraction_positive[-1], label[order][-10:].mean())
    assert np.all(np.diff(curve.mean_score) > 0)


def test_ties_do_not_depend_on_the_order_of_records():
    score = np.repeat([0.2, 0.3, 0.7], 7)
    label = np.array([0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1])
    first = calibration_curve(score, label, 5)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(21)
        for one, other in zip(first, calibration_curve(score[order], label[order], 5), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert np.average(first.fraction_positive, weights=first.num_records) == pytest.approx(label.mean())


def test_true_probabilities_are_calibrated_and_distorted_ones_are_not():
    """Logits multiplied (over- and underconfident) or shifted; Table 3's effects are of this size."""
    logits, labels = logistic()
    right = calibration_rmse(expit(logits), labels), binned_calibration_rmse(expit(logits), labels)
    assert right[0] < 3 * NOISE
    assert right[1] < 1.7 * NOISE  # √(χ²₁₀/10) is below 1.7 with probability 0.998
    for distorted in (0.7 * logits, 1.5 * logits, logits + 0.5, logits - 0.5):
        assert calibration_rmse(expit(distorted), labels) > 3 * NOISE
        assert binned_calibration_rmse(expit(distorted), labels) > 3 * NOISE


@pytest.mark.parametrize("slope", [0.6, 1.0, 1.6])
def test_the_distorted_curve_is_the_known_one(slope):
    """Scores expit(slope · z) with labels from expit(z): a bin's fraction is its mean true probability."""
    logits, labels = logistic(1)
    curve = calibration_curve(expit(slope * logits), labels)
    expected = np.array([expit(logits)[rows].mean() for rows in np.array_split(np.argsort(logits), 10)])
    error = np.sqrt(np.maximum(expected * (1 - expected), 1e-4) / curve.num_records)
    assert np.all(np.abs(curve.fraction_positive - expected) < 4 * error)
    known = np.sqrt(np.mean((expected - curve.mean_score) ** 2))
    assert binned_calibration_rmse(expit(slope * logits), labels) == pytest.approx(known, abs=1.7 * NOISE)


def test_the_published_number_is_scipys_interpolation():
    logits, labels = logistic(2)
    for score in (expit(logits), expit(0.5 * logits + 1)):
        curve = calibration_curve(score, labels)
        line = interp1d(curve.fraction_positive, curve.mean_score, bounds_error=False, fill_value="extrapolate")
        grid = np.linspace(0.01, 0.99, 100)
        assert calibration_rmse(score, labels) == pytest.approx(np.sqrt(np.mean((grid - line(grid)) ** 2)), rel=1e-12)


def test_the_published_number_by_hand():
    """Bins (score, fraction) = (0.3, 0.2), (0.5, 0.6): the line s(p) = 0.2 + p/2, so p − s = (p − 0.4)/2."""
    score = np.repeat([0.3, 0.5], 10)
    label = np.concatenate([np.repeat([0, 1], [8, 2]), np.repeat([0, 1], [4, 6])])
    grid = np.linspace(0.01, 0.99, 100)
    assert calibration_rmse(score, label, 2) == pytest.approx(np.sqrt(np.mean(((grid - 0.4) / 2) ** 2)))
    assert binned_calibration_rmse(score, label, 2) == pytest.approx(0.1)


def test_tied_and_falling_fractions_are_merged_and_sorted():
    """Fractions 0, 0, 1, ½ at scores 0.1, 0.2, 0.6, 0.9: points (0, 0.15), (½, 0.9), (1, 0.6)."""
    score = np.repeat([0.1, 0.2, 0.6, 0.9], 2)
    label = np.array([0, 0, 0, 0, 1, 1, 0, 1])
    grid = np.linspace(0.01, 0.99, 100)
    expected = np.sqrt(np.mean((grid - np.interp(grid, [0, 0.5, 1], [0.15, 0.9, 0.6])) ** 2))
    assert calibration_rmse(score, label, 4) == pytest.approx(expected)


def test_no_curve_no_number():
    with pytest.raises(ValueError, match="binned_calibration_rmse"):
        calibration_rmse(np.linspace(0, 1, 40), np.zeros(40))
    with pytest.raises(ValueError, match="same fraction"):
        calibration_rmse(np.full(40, 0.5), np.repeat([0, 1], 20))
    assert binned_calibration_rmse(np.full(40, 0.5), np.repeat([0, 1], 20)) == pytest.approx(0)


@pytest.mark.parametrize(
    ("probabilities", "labels", "num_bins", "match"),
    [
        ([0.1, np.nan], [0, 1], 1, "1 of 2 probabilities"),
        ([0.1, 1.2], [0, 1], 1, "outside"),
        ([0.1, 0.2], [0, 2], 1, "0 or 1"),
        ([0.1, 0.2], [0, 1, 1], 1, "one length"),
        ([0.1, 0.2], [0, 1], 3, "num_bins"),
        ([0, 1], [0.1, 0.2], 1, "scikit-learn's order"),
        ([0, 1], [1, 1], 1, "exactly 0 or 1"),
        ([False, True], [1, 0], 1, "exactly 0 or 1"),
    ],
)
def test_errors_say_what_is_wrong(probabilities, labels, num_bins, match):
    with pytest.raises(ValueError, match=match):
        calibration_curve(probabilities, labels, num_bins)
