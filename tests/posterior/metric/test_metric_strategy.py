"""Strategies driven by hand: what they ask for, and that their answer follows from what they were told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from support.measuring import COLUMNS, DIMENSION, regression_model
from support.metric import (
    SPREAD,
    Records,
    answering,
    coin_records,
    drive,
    logistic_records,
    normal_model,
    normal_records,
    plan_of,
)
from support.score_models import BERNOULLI

from dpvi.declared.columns import Levels, Numeric, OneHot
from dpvi.models.numpyro import NumPyroModel
from dpvi.posterior.metric import strategy
from dpvi.posterior.metric.answer import Answer
from dpvi.posterior.metric.belief import expected_curvature, first_belief, plausible_shares
from dpvi.posterior.metric.search import Found
from dpvi.posterior.metric.strategy import answer_of, make_strategy
from dpvi.posterior.score.model import ScoreModel
from dpvi.release.measurements import answered, measurements_of
from dpvi.release.requests import Answered, CovariateMoments, Curvature, ScoreNorms, Scores

NUM_RECORDS, QUIET, LOUD = 3000, 20.0, 600.0  # noise of a unit
SLOPES = np.array([0.8, -0.5, 0.3])
MEAN, SCALE = 2.0, 0.05  # a prior's standard deviation below one


def regression_data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(NUM_RECORDS, DIMENSION))
    x[:, 1] = 0.8 * x[:, 0] + 0.6 * x[:, 1]
    x = np.clip(x, -3, 3)
    return x, (random.uniform(size=NUM_RECORDS) < 1 / (1 + np.exp(-x @ SLOPES))).astype(np.int32)


def normal_data() -> np.ndarray:
    return np.random.default_rng(3).normal(MEAN, SCALE, NUM_RECORDS)


def coin_data() -> np.ndarray:
    return (np.random.default_rng(4).uniform(size=NUM_RECORDS) < 0.3).astype(np.float64)


def histograms_of(x: np.ndarray, noise: float) -> np.ndarray:
    counts = [np.histogram(column, bins=8, range=(-3, 3))[0] for column in x.T] or [np.array([NUM_RECORDS])]
    exact = np.concatenate(counts).astype(np.float64)
    return exact + noise * np.random.default_rng(1).normal(size=exact.shape)


def law_of_covariates(key: jax.Array, num_records: int) -> list[jax.Array]:
    return [jax.random.normal(key, (num_records, DIMENSION))]


class Case(NamedTuple):
    """A model, records of it and a budget."""

    model: Callable[[], Any]
    records: Callable[[], Records]
    noise: float
    kinds: set[type]
    plan: dict[str, Any]
    law: Any = None  # of covariates, where it is declared


EVERYTHING = {CovariateMoments, Curvature, ScoreNorms, Scores}
CASES = {
    "covariates": Case(
        regression_model, lambda: logistic_records(*regression_data()), QUIET, EVERYTHING, {"columns": COLUMNS}
    ),
    "covariates, drowned": Case(
        regression_model,
        lambda: logistic_records(*regression_data()),
        LOUD,
        EVERYTHING - {CovariateMoments},
        {"columns": COLUMNS, "num_records": NUM_RECORDS, "units": 100},
    ),
    "a declared law": Case(
        regression_model,
        lambda: logistic_records(*regression_data()),
        QUIET,
        EVERYTHING - {CovariateMoments},
        {"columns": None, "num_records": NUM_RECORDS},
        law_of_covariates,
    ),
    "no covariates": Case(
        normal_model, lambda: normal_records(normal_data()), QUIET, EVERYTHING - {CovariateMoments}, {"columns": ()}
    ),
    "no covariates, drowned": Case(
        normal_model,
        lambda: normal_records(normal_data()),
        LOUD,
        EVERYTHING - {CovariateMoments},
        {"columns": None, "num_records": NUM_RECORDS},
    ),
    "exact": Case(
        lambda: BERNOULLI.model, lambda: coin_records(coin_data()), QUIET, {Curvature, Scores}, {"columns": ()}
    ),
    "exact, drowned": Case(
        lambda: BERNOULLI.model,
        lambda: coin_records(coin_data()),
        LOUD,
        {Curvature, Scores},
        {"columns": None, "num_records": NUM_RECORDS, "units": 101},
    ),
}
QUIETLY = [name for name in CASES if "drowned" not in name]


class Run(NamedTuple):
    scores: ScoreModel
    histograms: np.ndarray | None
    found: Answer
    done: list[Answered]


_RUNS: dict[str, Run] = {}


def run_of(name: str) -> Run:
    """The run of a case, once for all tests."""
    if name not in _RUNS:
        case = CASES[name]
        plan, records = plan_of(case.noise, **case.plan), case.records()
        scores = ScoreModel(case.model(), plan, covariate_law=case.law)
        histograms = None if plan.covariates is None else histograms_of(records.covariates, case.noise)
        _RUNS[name] = Run(
            scores, histograms, *drive(make_strategy(scores, histograms), answering(records, case.noise, seed=2))
        )
    return _RUNS[name]


def answer_without_privacy(name: str) -> np.ndarray:
    """The largest posterior density, by Newton's method on all records, from the truth."""
    case = CASES[name]
    records = case.records()
    scores, _, _, _ = run_of(name)
    if case.model is normal_model:
        z, precision, center = np.array([MEAN, np.log(SCALE)]), np.diag([1 / 9, SPREAD**-2]), np.zeros(2)
    elif case.model is regression_model:
        z, precision, center = SLOPES, np.eye(DIMENSION), np.zeros(DIMENSION)
    else:  # the density of the logit is s^10 (1 - s)^10
        ones = float(coin_data().sum())
        return np.log([(ones + 10) / (NUM_RECORDS - ones + 10)])
    assert len(z) == scores.model.dimension
    for _ in range(30):
        slope = records.scores(z).sum(axis=0) - precision @ (z - center)
        z = z + np.linalg.solve(records.hessians(z).sum(axis=0) + precision, slope)
    return z


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_run_ends_as_near_the_answer_without_privacy_as_it_says(name):
    _, _, found, done = run_of(name)
    truth = answer_without_privacy(name)
    off = truth - found.mean
    assert off @ np.linalg.solve(found.privacy, off) < scipy.stats.chi2.isf(1e-4, len(off))
    if name in QUIETLY:
        start = next(each.request for each in done if isinstance(each.request, Scores)).query
        assert np.linalg.norm(off) < 0.2 * np.linalg.norm(truth - start)


@pytest.mark.parametrize("name", CASES)
def test_all_units_are_asked_for_and_never_more(name):
    scores, _, _, done = run_of(name)
    units = [each.request.units for each in done]
    assert min(units) >= 1
    assert all(isinstance(each, int) for each in units)
    assert max(np.cumsum(units)[:-1]) < scores.plan.num_steps  # something is left for the last block
    assert sum(units) == scores.plan.num_steps
    assert {type(each.request) for each in done} == CASES[name].kinds
    assert [type(each.request) for each in done[-2:]] == [Scores, Scores]


@pytest.mark.parametrize("name", CASES)
def test_told_the_same_again_it_answers_the_same_and_asks_nothing(name, monkeypatch):
    """And searches nothing: the answer is read from what was asked and told."""
    scores, histograms, found, done = run_of(name)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("A stored run asks and searches nothing.")

    for asking in ("search", "moments_request", "curvature_request", "clip_norm", "prior_center"):
        monkeypatch.setattr(strategy, asking, refuse)
    assert same(answer_of(scores, histograms, done), found)
    with pytest.raises(AssertionError, match="asks and searches nothing"):
        drive(make_strategy(scores, histograms), lambda _: np.zeros(0))


@pytest.mark.parametrize("name", ["covariates", "no covariates"])
def test_a_stored_run_has_the_same_answer(name):
    """Through arrays, with programs compiled anew."""
    scores, histograms, found, done = run_of(name)
    anew = ScoreModel(scores.model, scores.plan, covariate_law=CASES[name].law)
    stored = answered(measurements_of(done, scores.model.dimension))
    assert same(answer_of(anew, histograms, stored), found)


def test_told_something_else_it_answers_something_else():
    scores, histograms, found, done = run_of("covariates")
    last = done[-1]._replace(released=done[-1].released + QUIET)
    assert not np.array_equal(answer_of(scores, histograms, [*done[:-1], last]).mean, found.mean)


@pytest.mark.parametrize("name", ["covariates", "covariates, drowned"])
def test_requests_depend_on_nothing_but_what_was_released(name):
    """The same answers, given to a strategy that starts again, lead to the same requests."""
    scores, histograms, _, done = run_of(name)
    replies = iter(done)
    _, again = drive(make_strategy(scores, histograms), lambda _: next(replies).released)
    for before, after in zip(done, again, strict=True):
        assert type(before.request) is type(after.request)
        assert same(before.request, after.request)


@pytest.mark.parametrize("name", ["covariates", "exact"])
def test_a_large_budget_finds_the_way_in_shorter_blocks(name):
    quiet, loud = (
        [each.request.units / run.scores.plan.num_steps for each in run.done if isinstance(each.request, Scores)]
        for run in (run_of(name), run_of(f"{name}, drowned"))
    )
    assert quiet[0] < loud[0] / 5
    assert max(*quiet[:-2], *loud[:-2]) <= 0.12  # none of which is long


def test_a_run_goes_no_further_than_the_model_stays_the_same():
    """From block to block of scores the information changes less than two and a half times, though it has far to go."""
    done = run_of("no covariates").done
    logs = np.array([each.request.query[1] for each in done if isinstance(each.request, Scores)])
    assert np.all(np.abs(np.diff(logs)) < np.log(2.5) / 2 + 0.05)
    assert logs[0] - logs[-1] > np.log(4)


def test_a_curvature_that_depends_on_residuals_is_measured_at_the_end_alone():
    kinds = [type(each.request) for each in run_of("no covariates").done]
    assert kinds[-3:] == [Curvature, Scores, Scores]
    assert Curvature not in kinds[:-3]
    assert [type(each.request) for each in run_of("covariates").done].count(Curvature) == 2


def test_a_curvature_is_expected_in_the_metric_of_its_own_point():
    """Even if one was measured before at another scale, where a mean had a hundredth of the information."""
    scores = run_of("no covariates, drowned").scores
    far, near = np.array([2.0, 0.0]), np.array([2.0, -np.log(10)])
    belief = first_belief(scores, None)
    belief = belief._replace(curvature=expected_curvature(belief, far))
    expected = expected_curvature(belief, near)
    white = expected.whitener @ expected.matrix @ expected.whitener.T / NUM_RECORDS
    np.testing.assert_allclose(white, np.eye(2), atol=0.05)


def test_empty_bins_of_a_number_stay_empty_and_levels_do_not():
    columns = (Numeric(0, 1, 32), OneHot(4))
    empty = np.array([1.0, *np.zeros(31)])
    found = plausible_shares(columns, np.concatenate([empty, [0.5, 0.5, 0.0, 0.0]]), 3000, 100.0)
    np.testing.assert_array_equal(found[:32], empty)
    assert np.all(found[32:] > 0.01)
    np.testing.assert_allclose(found[32:].sum(), 1)
    counts = np.array([0.5, 0.3, 0.2, *np.zeros(18)])  # of people by something that may be up to 20
    found = plausible_shares((Levels(tuple(range(21))), Levels((0, 1))), np.array([*counts, 1.0, 0.0]), 3000, 100.0)
    np.testing.assert_array_equal(found[:21], counts)
    assert found[22] > 0.01


def trusted(z: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    scores = run_of("no covariates, drowned").scores
    start = Found(np.zeros(2), np.diag([9.0, SPREAD**2]))
    return strategy._trusted(first_belief(scores, None), z, wanted, start)


HERE = np.array([0.5, -1.0])


@pytest.mark.parametrize("step", [[0.0, -3.0], [0.0, 3.0], [1.0, -8.0]])
def test_a_step_to_another_model_is_cut_short(step):
    """The information on a mean is the scale to the power of minus two."""
    there = trusted(HERE, HERE + step)
    change = 2 * abs(there - HERE)[1]
    assert 0.5 * np.log(2.5) < change < np.log(2.5) + 0.1  # information is simulated
    share = (there - HERE)[1] / step[1]
    np.testing.assert_allclose(there, HERE + share * np.array(step))
    assert share < 0.5


def test_a_step_within_the_same_model_is_taken():
    for step in ([0.1, 0.2], [2.0, 0.0], [0.0, -0.4]):
        np.testing.assert_array_equal(trusted(HERE, HERE + step), HERE + step)


def test_a_step_to_nowhere_is_not_taken():
    np.testing.assert_array_equal(trusted(HERE, np.array([np.nan, 0.0])), HERE)
    np.testing.assert_array_equal(trusted(HERE, np.array([0.0, np.inf])), HERE)
    far = trusted(np.zeros(2), np.array([1e6, 0.0]))  # as far as a prior goes: six of its standard deviations in each
    np.testing.assert_allclose(far, [6 * np.sqrt(2) * 3, 0.0])


def test_a_step_to_the_end_of_a_wide_prior_is_cut_short():
    """Eight of the prior's standard deviations, which in two dimensions is allowed."""
    there = trusted(np.zeros(2), np.array([0.0, -25.0]))
    assert 2 * abs(there[1]) < np.log(4) + 0.1


def lasso(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Laplace(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def test_a_prior_need_not_be_curved():
    y = np.random.default_rng(5).normal(1.0, 1.0, 500)
    records = Records(np.zeros((500, 0)), lambda z: (y - z[0])[:, None], lambda z: np.ones((500, 1, 1)))
    model = NumPyroModel(lasso, jax.ShapeDtypeStruct((), jnp.dtype("float32")))
    scores = ScoreModel(model, plan_of(QUIET, columns=None, num_records=500))
    found, _ = drive(make_strategy(scores, None), answering(records, QUIET, seed=6))
    assert abs(found.mean[0] - y.mean()) < 4 * np.sqrt(found.privacy[0, 0]) + 1 / 500
