"""The driver moves, then measures at the best answer so far; the result knows the score posterior."""

from __future__ import annotations

import numpy as np
import pytest
from support.score_models import BERNOULLI, score_plan, sigmoid

import dpvi
from dpvi.declared.schedule import Schedule
from dpvi.posterior.result import Result
from dpvi.posterior.score import ScoreDriver, ScoreModel, blocks_of, gauss_newton
from dpvi.posterior.score.blocks import simulation_seed
from dpvi.release.driver import Released

TRUTH = -0.3
RECORDS = (np.random.default_rng(8).uniform(size=5000) < sigmoid(TRUTH)).astype(np.int64)
SMALL = score_plan(5000, num_steps=50, noise_multiplier=1.0)


@pytest.fixture(scope="module")
def scores():
    return ScoreModel(BERNOULLI.model, SMALL)


@pytest.fixture(scope="module")
def result(scores):
    driver = ScoreDriver(scores, Schedule(move_share=0.2, num_blocks=3, growth=1))
    return dpvi.fit(scores.model, RECORDS, SMALL, driver=driver, seed=1, progress=False)


def test_a_run_at_a_small_budget_end_to_end():
    """ε = 0.1: σ = 307.5, κ = 0.1, T = 10⁴ in eight blocks, each twice as long as the one before."""
    scores = ScoreModel(BERNOULLI.model, score_plan(5000))
    driver = ScoreDriver(scores, Schedule())
    result = dpvi.fit(scores.model, RECORDS, scores.plan, driver=driver, seed=2, progress=False)
    blocks = blocks_of(result.trace)
    np.testing.assert_allclose(blocks.steps, 10_000 * 2.0 ** np.arange(8) / 255, atol=1)
    assert blocks.steps.sum() == 10_000
    posterior = result.posterior("score", scores=scores)
    mean, sd = posterior.distribution.mean[0], posterior.distribution.standard_deviations[0]
    np.testing.assert_allclose(sd, 0.058, rtol=0.05)
    assert abs(mean - TRUTH) < 4 * sd
    assert 0.3 < posterior.summary().mean[0] < 0.55


def test_moving_comes_first_and_measuring_follows_the_posterior(scores, result):
    segments = result.trace.segments
    assert segments.start.tolist() == [0, 5, 10, 23, 37]
    assert segments.stop.tolist() == [5, 10, 23, 37, 50]
    assert np.isnan(segments.query[:2]).all()
    location = result.trace.iterates[5:10, :1].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(segments.query[2], location, rtol=1e-5)
    blocks = blocks_of(result.trace)
    for number in (1, 2):
        before = type(blocks)(*(part[:number] for part in blocks))
        seed = simulation_seed(blocks.mean_noisy_sum[0])
        found = gauss_newton(scores, before, blocks.query[number - 1], seed)
        np.testing.assert_allclose(blocks.query[number], found.mean, rtol=1e-4)


def test_a_driver_serves_one_run_after_the_other(scores, result):
    driver = ScoreDriver(scores, Schedule(move_share=0.2, num_blocks=3, growth=1))
    runs = [dpvi.fit(scores.model, RECORDS, SMALL, driver=driver, seed=1, progress=False) for _ in range(2)]
    for run in runs:
        np.testing.assert_array_equal(run.trace.segments.query, result.trace.segments.query)


def test_the_posterior_comes_from_a_stored_result(scores, result, tmp_path):
    result.save(tmp_path / "result.dpvi")
    loaded = Result.load(tmp_path / "result.dpvi", model=BERNOULLI.model)
    expected = result.posterior("score", scores=scores).distribution
    np.testing.assert_allclose(loaded.posterior("score").distribution.mean, expected.mean, rtol=1e-6)
    with pytest.raises(ValueError, match="with its model"):
        Result.load(tmp_path / "result.dpvi").posterior("score")


def test_a_run_without_frozen_points_has_no_score_posterior(scores):
    plain = dpvi.fit(scores.model, RECORDS, SMALL, seed=1, progress=False)
    with pytest.raises(ValueError, match="schedule measures"):
        plain.posterior("score")


def test_several_draws_per_step_are_refused(scores):
    driver, estimator = ScoreDriver(scores, Schedule(0, num_blocks=1)), dpvi.Aligned(num_draws=2)
    run = dpvi.fit(scores.model, RECORDS, SMALL, driver=driver, estimator=estimator, seed=1, progress=False)
    with pytest.raises(ValueError, match="num_draws=1"):
        run.posterior("score", scores=scores)


def test_without_moving_the_first_point_is_given_or_the_priors_centre(scores):
    nothing = np.full(2, np.nan)
    first = Released(0, 50, np.zeros(2), nothing, nothing[:1], nothing[:1])
    assert ScoreDriver(scores, Schedule(), start=np.array([0.4]))(first).query == pytest.approx([0.4])
    assert ScoreDriver(scores, Schedule())(first).query == pytest.approx([0.0], abs=0.1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"move_share": 1.0}, "only moves"),
        ({"num_blocks": 0}, "at least 1"),
        ({"num_blocks": 60}, "too few to move"),
    ],
)
def test_settings_that_leave_nothing_to_measure_are_refused(scores, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        ScoreDriver(scores, Schedule(**options))
