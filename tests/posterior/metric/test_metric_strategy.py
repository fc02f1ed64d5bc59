"""A strategy driven by hand: what it asks for, and that its answer follows from what it was told."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import accumulate

import numpy as np
import pytest
from support.measuring import DIMENSION, expected, measuring_plan, regression_model
from support.metric import drive

from dpvi.core.measurements import answered, measurements_of
from dpvi.core.measuring import Measuring
from dpvi.core.plan import Plan
from dpvi.core.requests import CovariateMoments, Curvature, ScoreNorms, Scores
from dpvi.models.numpyro import NumPyroModel
from dpvi.posterior.metric.strategy import answer_of, block_units, make_strategy
from dpvi.posterior.score.model import ScoreModel

NUM_RECORDS, NOISE_MULTIPLIER = 3000, 20.0
RELEASES = {CovariateMoments: "moments", Curvature: "curvature", ScoreNorms: "norms", Scores: "gradients"}
SLOPES = np.array([0.8, -0.5, 0.3])


def records() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(NUM_RECORDS, DIMENSION))
    x[:, 1] = 0.8 * x[:, 0] + 0.6 * x[:, 1]
    x = np.clip(x, -3, 3)
    return x, (random.uniform(size=NUM_RECORDS) < 1 / (1 + np.exp(-x @ SLOPES))).astype(np.int32)


def plan_of(**units: int) -> Plan:
    """A label's plan with so many units of some kinds."""
    plan = measuring_plan(NOISE_MULTIPLIER)
    measuring = Measuring(**units)
    counts = {
        "gradients": measuring.score_units,
        "norms": measuring.norm_units,
        "curvature": measuring.curvature_units,
        "moments": measuring.moment_units,
    }
    releases = tuple(dataclasses.replace(each, count=counts.get(each.name, each.count)) for each in plan.releases)
    return dataclasses.replace(plan, releases=releases, measuring=measuring)


def histograms() -> np.ndarray:
    x, _ = records()
    counts = [np.histogram(column, bins=8, range=(-3, 3))[0] for column in x.T]
    return np.concatenate(counts) + NOISE_MULTIPLIER * np.random.default_rng(1).normal(size=8 * DIMENSION)


def answering(plan: Plan):
    data, random = records(), np.random.default_rng(2)

    def answer(request):
        exact = expected(request, data)
        scale = plan.release(RELEASES[type(request)]).noise_multiplier / np.sqrt(request.units)
        return exact + scale * random.normal(size=exact.shape)

    return answer


@pytest.fixture(scope="module")
def model() -> NumPyroModel:
    return regression_model()


@pytest.fixture(scope="module")
def run(model):
    """A score model, and the answer, requests and replies of a run with it."""
    scores = ScoreModel(model, plan_of())
    return scores, *drive(make_strategy(scores, histograms()), answering(scores.plan))


def map_estimate() -> np.ndarray:
    x, y = records()
    z = np.zeros(DIMENSION)
    for _ in range(30):
        mean = 1 / (1 + np.exp(-x @ z))
        z += np.linalg.solve((x * (mean * (1 - mean))[:, None]).T @ x + np.eye(DIMENSION), x.T @ (y - mean) - z)
    return z


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_run_ends_near_the_answer_without_privacy(run):
    _, found, done = run
    off = map_estimate() - found.mean
    assert off @ np.linalg.solve(found.privacy, off) < 21.1  # the quantile 0.9999 of chi-square with three degrees
    start = np.linalg.norm(map_estimate() - done[[type(each.request) for each in done].index(Scores)].request.query)
    assert np.linalg.norm(off) < 0.2 * start


def test_told_the_same_again_it_answers_the_same(run):
    scores, found, done = run
    assert same(answer_of(scores, histograms(), done), found)
    stored = answered(measurements_of(done, DIMENSION))
    anew = ScoreModel(scores.model, scores.plan)  # compiled anew
    assert same(answer_of(anew, histograms(), stored), found)


def test_told_something_else_it_answers_something_else(run):
    scores, found, done = run
    last = done[-1]._replace(released=done[-1].released + NOISE_MULTIPLIER)
    assert not np.array_equal(answer_of(scores, histograms(), [*done[:-1], last]).mean, found.mean)


def test_a_run_that_was_cut_short_is_refused(run):
    scores, _, done = run
    with pytest.raises(ValueError, match="fit again"):
        answer_of(scores, histograms(), done[:-1])


def units_asked(done) -> Counter:
    taken: Counter = Counter()
    for each in done:
        assert each.request.units >= 1
        taken[type(each.request)] += each.request.units
    return taken


def assert_affordable(taken: Counter, plan: Plan) -> None:
    for kind, units in taken.items():
        assert units <= plan.release(RELEASES[kind]).count


def test_no_more_is_asked_for_than_was_planned(run):
    scores, _, done = run
    taken = units_asked(done)
    assert set(taken) == set(RELEASES)
    assert_affordable(taken, scores.plan)
    assert taken[Scores] == scores.plan.num_steps  # and nothing is wasted
    with pytest.raises(AssertionError):
        assert_affordable(taken + Counter({Scores: 1}), scores.plan)


@pytest.mark.parametrize("units", [6, 7, 20, 63, 64, 65, 1000])
def test_blocks_take_all_units_and_grow(units):
    found = block_units(plan_of(score_units=units))
    assert sum(found) == units
    assert min(found) >= 1
    assert found == sorted(found)
    assert list(accumulate(found))[-2] <= 0.85 * units  # what finds the way leaves something to measure


def completes(model, **units: int) -> None:
    """A run with so many units ends, within its budget; or the plan refuses them."""
    try:
        plan = plan_of(**units)
    except ValueError:
        return
    _, done = drive(make_strategy(ScoreModel(model, plan), histograms()), answering(plan))
    assert_affordable(units_asked(done), plan)


def test_a_run_may_have_few_units(model):
    completes(model, score_units=6, moment_units=1, norm_units=1, curvature_units=2)


def test_a_plan_has_units_for_all_blocks_and_looks(model):
    completes(model, score_units=6, curvature_units=2)
    with pytest.raises(ValueError, match="score_units"):
        Measuring(score_units=5)
    with pytest.raises(ValueError, match="curvature_units"):
        Measuring(curvature_units=1)


def test_requests_depend_on_nothing_but_what_was_released(run):
    """The same answers, given to a strategy that starts again, lead to the same requests."""
    scores, _, done = run
    replies = iter(done)
    _, again = drive(make_strategy(scores, histograms()), lambda _: next(replies).released)
    for before, after in zip(done, again, strict=True):
        assert type(before.request) is type(after.request)
        assert same(before.request, after.request)
