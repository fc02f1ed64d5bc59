"""The slope test and what is read off the converged tail, against brute force on all rows."""

from __future__ import annotations

import numpy as np
import pytest
from support.small_models import trace_of

from dpvi.posterior import converged_tail
from dpvi.posterior.tail import _tail_statistics


def ornstein_uhlenbeck(num_steps: int, rate: float, scale: float, mean: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=num_steps)
    path = np.empty(num_steps)
    state = scale / np.sqrt(rate * (2 - rate)) * noise[0]  # from the stationary law
    for t in range(num_steps):
        path[t] = state
        state = (1 - rate) * state + scale * noise[t]
    return mean + path


def three_parameters(num_steps: int = 1000) -> np.ndarray:
    """Stationary from the start; drifting until 60 % and then still; drifting to the end."""
    time = np.arange(num_steps) / num_steps
    still = ornstein_uhlenbeck(num_steps, 0.5, 0.02, 2.0, seed=1)
    settling = 5 * np.maximum(0, 1 - time / 0.6) + ornstein_uhlenbeck(num_steps, 0.5, 0.02, -1.0, seed=2)
    drifting = 30 * time + ornstein_uhlenbeck(num_steps, 0.5, 0.02, 0.0, seed=3)
    return np.stack([still, settling, drifting], axis=1)


def test_the_longest_tail_without_a_trend_is_chosen_for_each_parameter():
    rows, block_length = three_parameters(), 8
    tail = converged_tail(trace_of(rows, block_length))
    np.testing.assert_allclose(tail.fraction, [1.0, 0.4, 1 - 118 * 8 / 1000])
    np.testing.assert_array_equal(tail.converged, [True, True, False])
    np.testing.assert_allclose(tail.mean, [rows[:, 0].mean(), rows[600:, 1].mean(), rows[944:, 2].mean()], rtol=1e-12)
    np.testing.assert_allclose(tail.variance, [rows[:, 0].var(), rows[600:, 1].var(), rows[944:, 2].var()], rtol=1e-9)


@pytest.mark.parametrize("threshold", [0.001, 0.02, 0.05, 0.5])
def test_the_choice_agrees_with_least_squares_on_all_rows(threshold):
    rows, block_length = three_parameters(), 8
    tail = converged_tail(trace_of(rows, block_length), slope_threshold=threshold)
    starts = block_length * np.unique(np.linspace(0, 125, 20, endpoint=False).astype(int))
    for column in range(3):
        slopes = [np.polyfit(np.linspace(0, 1, len(rows) - s), rows[s:, column], 1)[0] for s in starts]
        # the two definitions of the window's length differ by a thousandth; no slope here is that close to a threshold
        passing = [start for start, slope in zip(starts, slopes, strict=True) if abs(slope) < threshold]
        start = passing[0] if passing else starts[-1]
        assert tail.converged[column] == bool(passing)
        np.testing.assert_allclose(tail.mean[column], rows[start:, column].mean(), rtol=1e-12)


@pytest.mark.parametrize("start", [0, 7, 120])
def test_the_slope_is_the_least_squares_drift_over_the_unit_interval(start):
    rows, block_length = three_parameters(), 8
    mean, variance, slope, count = _tail_statistics(trace_of(rows, block_length).blocks, start)
    kept = rows[start * block_length :]
    assert count == len(kept)
    exact = np.polyfit(np.arange(len(kept)), kept, 1)[0]
    np.testing.assert_allclose(slope, exact * np.sqrt(len(kept) ** 2 - 1), rtol=1e-7, atol=1e-9)
    unit = np.polyfit(np.linspace(0, 1, len(kept)), kept, 1)[0]
    np.testing.assert_allclose(slope, unit, rtol=2 / len(kept))
    np.testing.assert_allclose(mean, kept.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(variance, kept.var(axis=0), rtol=1e-9)


def test_the_variance_survives_a_large_mean():
    rows = 1e4 + np.random.default_rng(0).normal(0, 0.01, (1000, 1))
    tail = converged_tail(trace_of(rows, 8))
    np.testing.assert_allclose(tail.variance, rows.var(axis=0), rtol=1e-3)


def test_an_ornstein_uhlenbeck_tail_has_its_stationary_variance():
    rate, scale = 0.2, 0.1
    rows = ornstein_uhlenbeck(40_000, rate, scale, 3.0, seed=4)[:, None]
    tail = converged_tail(trace_of(rows, 256))
    stationary = scale**2 / (rate * (2 - rate))
    correlation_time = (1 + (1 - rate) ** 2) / (1 - (1 - rate) ** 2)  # of the squares
    error = stationary * np.sqrt(2 * correlation_time / len(rows))
    assert abs(tail.variance[0] - stationary) < 5 * error
    assert abs(tail.variance[0] - scale**2 / (2 * rate)) > 5 * error  # the continuous-time formula is another number


def test_frozen_steps_take_no_part():
    rows = three_parameters()
    counted = np.ones(len(rows), bool)
    counted[800:] = False
    frozen = np.where(counted[:, None], rows, 1e6)
    tail = converged_tail(trace_of(frozen, 8, counted))
    np.testing.assert_allclose(tail.fraction[:2], [1.0, 0.25])
    np.testing.assert_allclose(tail.mean[:2], [rows[:800, 0].mean(), rows[600:800, 1].mean()], rtol=1e-9)
    assert np.isfinite(tail.variance).all()


def test_a_run_that_never_moved_is_refused_by_a_sentence():
    with pytest.raises(ValueError, match="no step at which the variational parameters moved"):
        converged_tail(trace_of(np.zeros((10, 2)), 1, np.zeros(10, bool)))


def test_a_single_step_is_its_own_tail():
    tail = converged_tail(trace_of(np.array([[1.0, 2.0]])))
    np.testing.assert_array_equal(tail.mean, [1.0, 2.0])
    np.testing.assert_array_equal(tail.variance, [0.0, 0.0])
    assert not tail.converged.any()


def test_relative_drift_has_no_unit():
    """A small trend is a trend: the absolute threshold would average over all of it."""
    random, time = np.random.default_rng(3), np.linspace(0, 1, 400)
    noise = random.normal(size=400)
    settling = np.where(time < 0.5, 20 * (0.5 - time), 0.0) + noise
    rows = np.column_stack([noise, 30 * time + noise, settling])
    large, small = (converged_tail(trace_of(scale * rows), 1.0, relative=True) for scale in (1.0, 1e-3))
    np.testing.assert_array_equal(large.fraction, small.fraction)
    np.testing.assert_array_equal(small.converged, [True, small.converged[1], True])
    assert small.fraction[0] == 1
    assert small.fraction[1] <= 0.1
    assert 0.3 < small.fraction[2] < 0.7
    assert np.all(converged_tail(trace_of(1e-3 * rows)).fraction == 1)
