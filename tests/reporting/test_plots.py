"""Pictures render, and what they draw is what the numbers say."""

from __future__ import annotations

import builtins
import io

import numpy as np
import pytest
import scipy.stats
from support.statistics import assert_rates

from dpvi.evaluate import LEVELS, calibration_curve, tarp
from dpvi.reporting import plot_calibration, plot_coverage
from dpvi.reporting.plots import coverage_band

pytest.importorskip("matplotlib")


def rendered(figure) -> int:
    """How many bytes the figure has as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return len(buffer.getvalue())


def coverage_of(width: float, num_posteriors: int = 200, seed: int = 1):
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(num_posteriors, 2))
    truths = centre + rng.normal(size=centre.shape)
    draws = centre[:, None] + width * rng.normal(size=(num_posteriors, 500, 2))
    return tarp(draws, truths, rng=rng, num_repeats=5)


def test_coverage_draws_every_method_and_one_band_for_each_size():
    results = {"right": coverage_of(1.0), "narrow": coverage_of(0.4), "few": coverage_of(1.0, 50)}
    figure = plot_coverage(results, title="Three methods")
    left, right = figure.axes
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(labels) == sorted([*results, "perfect posterior, 95 %, K = 50", "perfect posterior, 95 %, K = 200"])
    for name, result in results.items():
        drawn = next(container for container in left.containers if container.get_label() == name).lines[0]
        np.testing.assert_allclose(drawn.get_ydata(), result.mean)
    errors = right.containers[1].lines[0].get_ydata()
    np.testing.assert_allclose(errors, results["narrow"].mean - LEVELS)
    assert rendered(figure) > 10_000


def test_the_band_holds_perfect_posteriors_as_often_as_it_says_and_no_narrow_ones():
    size, sets = 100, 4000
    lower, upper = coverage_band(size, LEVELS)
    rng = np.random.default_rng(2)
    ranks = rng.uniform(size=(sets, size))
    level = 10  # one half
    coverage = np.mean(ranks < LEVELS[level], axis=1)
    exact = scipy.stats.binom(size, 0.5)
    expected = exact.cdf(size * upper[level]) - exact.cdf(size * lower[level] - 0.5)
    assert 0.95 <= expected < 0.97
    assert_rates(np.sum((coverage >= lower[level]) & (coverage <= upper[level])), sets, expected)
    inside = [
        bool(np.all((result.mean >= lower) & (result.mean <= upper)))
        for result in (coverage_of(1.0, size), coverage_of(0.4, size))
    ]
    assert inside == [True, False]


def test_a_single_repeat_has_no_bars_and_still_renders():
    assert rendered(plot_coverage({"once": coverage_of(1.0)._replace(coverage=coverage_of(1.0).coverage[:1])})) > 10_000


def test_marginal_coverage_is_refused_with_the_way_out():
    rng = np.random.default_rng(3)
    marginal = tarp(rng.normal(size=(20, 50, 2)), rng.normal(size=(20, 2)), rng=rng, marginal=True, num_repeats=2)
    with pytest.raises(ValueError, match="pick a parameter"):
        plot_coverage({"marginal": marginal})
    with pytest.raises(ValueError, match="at least one"):
        plot_coverage({})


def test_calibration_draws_means_over_runs():
    rng = np.random.default_rng(4)
    scores = rng.uniform(size=(3, 1000))
    runs = [calibration_curve(score, rng.uniform(size=1000) < score) for score in scores]
    figure = plot_calibration({"three runs": runs, "one run": runs[0]}, title="Calibration")
    containers = {container.get_label(): container for container in figure.axes[0].containers}
    drawn = containers["three runs"].lines[0].get_ydata()
    np.testing.assert_allclose(drawn, np.mean([run.fraction_positive for run in runs], axis=0))
    assert rendered(figure) > 10_000
    with pytest.raises(ValueError, match="equal numbers of bins"):
        plot_calibration({"uneven": [runs[0], calibration_curve(scores[0], scores[0] > 0.5, num_bins=5)]})
    with pytest.raises(ValueError, match="at least one"):
        plot_calibration({})


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    result = coverage_of(1.0, 20)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"install dpvi\[plot\]"):
        plot_coverage({"right": result})
