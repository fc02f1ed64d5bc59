"""Noisy gradients: rebuilt steps add up to the trace's sums, and the drawn line is the model's."""

from __future__ import annotations

import dataclasses
import io

import jax.numpy as jnp
import numpy as np
import pytest
from support.score_models import coin
from support.small_models import block_sums, private_plan, trace_of
from support.statistics import assert_close

import dpvi
from dpvi.families import FullRank, MeanField
from dpvi.posterior import Result
from dpvi.posterior.na_dpvi import gradient_model, model_of_run, quadrature, trace_statistics
from dpvi.reporting import gradient_line, plot_noisy_gradients, step_gradients
from dpvi.run.optimizers import na_dpvi_sgd

pytest.importorskip("matplotlib")

BETA = (1.0, 20.0)


@pytest.fixture(scope="module")
def result() -> Result:
    plan = private_plan(1000, sampling_rate=0.2, noise_multiplier=4.0, clip_norm=1.0)
    family = MeanField(initial_scale=0.1)
    return dpvi.fit(
        coin,
        (np.arange(300) < 100).astype(np.int32),
        plan,
        family=family,
        estimator=dpvi.Preconditioned(beta=BETA, num_draws=3),
        optimizer=na_dpvi_sgd(plan, family, 1, beta=BETA, lambda_c=2.0),
        initial_location=jnp.zeros(1),
        seed=5,
        progress=False,
    )


def block_totals(result, gradients):
    length = result.trace.block_length
    return np.stack([gradients[i : i + length].sum(axis=0) for i in range(0, len(gradients), length)])


def test_rebuilt_steps_add_up_to_the_sums_the_run_kept(result):
    """The trace summed g̃ itself; rows hold noisy sums, to which the prior's share was added again."""
    rows = step_gradients(result)
    sums = result.trace.blocks.gradient
    scale = np.abs(sums).max(axis=0)
    np.testing.assert_allclose(block_totals(result, rows.gradients) / scale, sums / scale, atol=1e-5)
    without_prior = -result.trace.noisy_sums / np.array(BETA)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(block_totals(result, without_prior) / scale, sums / scale, atol=1e-5)


def test_fewer_rows_are_spread_over_the_run(result):
    rows = step_gradients(result, max_rows=100)
    np.testing.assert_array_equal(rows.steps, np.arange(0, 1000, 10))
    np.testing.assert_allclose(rows.gradients, step_gradients(result).gradients[::10], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("points", ["blocks", "steps"])
@pytest.mark.parametrize("coordinate", [0, 1])
def test_both_kinds_of_points_render(result, points, coordinate):
    figure = plot_noisy_gradients(result, coordinate, points=points, max_points=200, burn_in=0.5)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    assert len(buffer.getvalue()) > 10_000
    before, after = (collection.get_offsets() for collection in figure.axes[0].collections[:2])
    total = 200 if points == "steps" else len(result.trace.blocks.count)
    assert len(before) + len(after) == total
    assert len(before) == pytest.approx(total / 2, abs=1)


def test_the_line_crosses_zero_where_the_optimum_is(result):
    """The share of lines that are above zero at φ is the probability of φ* < φ, which the exact engine knows."""
    model = model_of_run(result.trace, result.family, result.plan, result.estimator)
    exact = quadrature(model)
    lower, upper = (exact.mean[0] + side * exact.standard_deviation[0] for side in (-1, 1))
    grid = np.linspace(lower, upper, 2001)
    line = gradient_line(model, 0, grid, num_draws=20_000)
    crossing = grid[np.argmin(np.abs(line.median))]
    density = (exact.cdf(np.array([crossing + 1e-3, 0.0]))[0] - exact.cdf(np.array([crossing - 1e-3, 0.0]))[0]) / 2e-3
    error = 0.5 / np.sqrt(20_000) / density + (grid[1] - grid[0])  # of a sample median
    median = grid[np.argmin([abs(exact.cdf(np.array([phi, 0.0]))[0] - 0.5) for phi in grid])]
    assert_close(crossing, median, error)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_close(crossing, median + 0.2 * exact.standard_deviation[0], error)


def test_the_band_of_lines_is_right_where_it_is_known():
    """At φ̄ the line is κa(φ̄ − φ*), which gradients measure directly: mean ḡ, standard deviation σC/√n."""
    rng = np.random.default_rng(6)
    phi = rng.normal(0, 1.0, 4000)
    gradient = 0.1 * 50.0 * (phi - 0.3) + rng.normal(0, 2.0, 4000)
    statistics = trace_statistics_of(phi, gradient)
    model = gradient_model(statistics, 0.1, np.array([2.0]), prior_scale=10.0, subsampling_variance=False)
    line = gradient_line(model, 0, statistics.phi_mean, num_draws=20_000)
    expected = statistics.gradient_mean[0] + 2.0 / np.sqrt(4000) * np.array([-1.96, 0.0, 1.96])
    found = np.array([line.lower[0], line.median[0], line.upper[0]])
    assert_close(found, expected, 3 * 2.0 / np.sqrt(4000) / np.sqrt(20_000))
    with pytest.raises(AssertionError, match="standard errors"):
        assert_close(found, expected * 1.2, 3 * 2.0 / np.sqrt(4000) / np.sqrt(20_000))


def trace_statistics_of(phi, gradient):
    iterates = phi[:, None]
    trace = trace_of(iterates, 100)
    blocks = block_sums(iterates, gradient[:, None], 100, np.ones(len(phi), bool))
    return trace_statistics(trace._replace(blocks=blocks), 0.0)


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        ({}, {"coordinate": 2}, "from 0 to 1"),
        ({}, {"points": "all"}, "'blocks' or 'steps'"),
        ({"model": None}, {"points": "steps"}, "only the model knows"),
        ({"family": FullRank()}, {"points": "steps"}, "MeanField only"),
        ({"estimator": {"name": "Aligned", "num_draws": 1}}, {}, "does not release such gradients"),
    ],
    ids=["coordinate", "points", "no model", "family", "estimator"],
)
def test_what_cannot_be_drawn_is_refused(result, change, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        plot_noisy_gradients(dataclasses.replace(result, **change), **options)
