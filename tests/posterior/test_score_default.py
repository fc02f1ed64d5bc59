"""A plan that measures makes the score posterior the default: for generative models, regressions, and many at once."""

from __future__ import annotations

import dataclasses
import importlib
import itertools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.numpyro_models import logistic
from support.score_models import coin, score_plan, sigmoid
from support.small_models import histogram_plan
from support.statistics import assert_close

import dpvi
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.declared.validation import FallbackWarning
from dpvi.posterior.result import METHODS
from dpvi.posterior.score import Blocks, NotConvergedError, ScoreModel, blocks_of, gauss_newton
from dpvi.posterior.score.check import BlockCheck

# of the squared distance in standard deviations, where responses are enumerated
SEARCH = importlib.import_module("dpvi.posterior.score.gauss_newton")
SEARCH_TOLERANCE = SEARCH._TOLERANCE

TRUTH = np.array([0.8, -0.5, 0.3])
COLUMNS = (dpvi.Numeric(-4, 4), dpvi.Numeric(-4, 4), dpvi.Constant())
SCHEDULE = dpvi.Schedule(num_blocks=3)


def table(seed, n=4000):
    random = np.random.default_rng(seed)
    x = np.column_stack([random.normal(size=(n, 2)), np.ones(n)]).astype(np.float32)
    return x, (random.uniform(size=n) < sigmoid(x @ TRUTH)).astype(np.int32)


def regression_plan(noise_multiplier=30.0, columns=COLUMNS, schedule=SCHEDULE):
    gradients = GaussianRelease("gradients", 0.1, 300, noise_multiplier, 2.0)
    plan = histogram_plan(columns, noise_multiplier=20.0, schedule=schedule)
    return Plan(**{**vars(plan), "releases": (gradients, plan.releases[1])})


@pytest.fixture(scope="module")
def result():
    return dpvi.fit(logistic, table(0), regression_plan(), seed=3, progress=False)


def test_a_regression_with_paid_histograms(result):
    posterior = result.posterior()
    assert posterior.method == "score"
    mean, sd = posterior.distribution.mean, posterior.distribution.standard_deviations
    assert np.all(np.abs(mean - TRUTH) < 4 * sd)
    # 0.040, 0.035, 0.037 without noise; its variance is 1.8 times that of the data's own scores, in every direction;
    # that columns may go together widens the answer by up to a root of two
    ratio = sd / (np.sqrt(1 + 1.8) * np.array([0.040, 0.036, 0.037]))
    assert np.all((ratio > 0.8) & (ratio < 1.5))
    assert result.trace.histograms.shape == (64,)


def test_it_comes_back_from_its_file(result, tmp_path):
    result.save(tmp_path / "result.dpvi")
    loaded = dpvi.Result.load(tmp_path / "result.dpvi", model=logistic)
    assert loaded.plan == result.plan
    np.testing.assert_array_equal(loaded.trace.histograms, result.trace.histograms)
    expected = result.posterior().distribution
    np.testing.assert_allclose(loaded.posterior().distribution.mean, expected.mean, rtol=1e-6)


def test_the_number_of_records_is_nowhere(result):
    """N = 4000 enters nothing that is kept: only its noisy estimate does."""
    assert result.plan.num_records is None
    totals = result.trace.histograms.reshape(2, 32).sum(axis=1)
    assert np.all(np.abs(totals - 4000) > 1e-6)


def test_many_at_once_equal_one_by_one(monkeypatch):
    """Up to rounding, with one seed for the simulation; else the last digits of what was released seed it."""
    for module in ("driver", "score_posterior"):
        monkeypatch.setattr(importlib.import_module(f"dpvi.posterior.score.{module}"), "simulation_seed", lambda _: 0)
    tables = [table(seed) for seed in (1, 2)]
    stacked = tuple(np.stack(leaves) for leaves in zip(*tables, strict=True))
    together = dpvi.fit_many(logistic, stacked, regression_plan(), seeds=[7, 8], progress=False)
    for seed, data, one in zip((7, 8), tables, together, strict=True):
        alone = dpvi.fit(logistic, data, regression_plan(), seed=seed, progress=False)
        np.testing.assert_array_equal(one.trace.histograms, alone.trace.histograms)
        left, right = one.posterior().distribution, alone.posterior().distribution
        # each search ends this near its optimum, and optima differ by the rounding of float32 sums, far less
        limit = 2 * np.sqrt(SEARCH_TOLERANCE) * right.standard_deviations
        assert np.all(np.abs(one.trace.segments.query - alone.trace.segments.query) < limit)
        assert np.all(np.abs(left.mean - right.mean) < limit)
        another = alone.posterior("score", seed=1).distribution.mean  # the wrong answer: simulated from another seed
        assert np.any(np.abs(another - right.mean) > limit)
    assert not np.allclose(together[0].trace.segments.query[-1], together[1].trace.segments.query[-1])


def standard_law(key, n):
    return jax.numpy.concatenate([jax.random.normal(key, (n, 2)), jax.numpy.ones((n, 1))], axis=1)


def measuring_plan(schedule=SCHEDULE):
    """A plan that measures and knows the number of records, without histograms."""
    return Plan(**{**vars(score_plan(4000, 300, noise_multiplier=5.0)), "schedule": schedule})


def test_a_declared_law_of_covariates():
    """It has one name, before a run and after it; declared columns have the other."""
    run = dpvi.fit(logistic, table(0), measuring_plan(), covariate_law=standard_law, seed=3, progress=False)
    posterior = run.posterior()
    again = dataclasses.replace(run, scores=None).posterior("score", covariate_law=standard_law)
    np.testing.assert_allclose(again.distribution.mean, posterior.distribution.mean, rtol=1e-6)
    with pytest.raises(TypeError, match=r"does not take these options.*'covariates'"):
        run.posterior("score", covariates=standard_law)
    assert posterior.method == "score"
    assert np.all(np.abs(posterior.distribution.mean - TRUTH) < 4 * posterior.distribution.standard_deviations)


def test_a_model_that_cannot_draw_records_falls_back_and_says_so():
    with pytest.warns(FallbackWarning, match=r"stationary.*dpvi.plan\(covariates="):
        run = dpvi.fit(logistic, table(0), measuring_plan(), seed=3, progress=False)
    assert run.posterior().method == "stationary"


def test_columns_that_do_not_fit_the_model_are_refused_before_anything_is_spent():
    with pytest.raises(dpvi.ModelError, match="2 columns wide"):
        dpvi.fit(logistic, table(0), regression_plan(columns=COLUMNS[1:]), seed=3, progress=False)


def test_histograms_that_nothing_reads_are_refused():
    functions = dpvi.from_functions(
        lambda z: -0.5 * jax.numpy.sum(z**2), lambda z, record: -0.5 * jax.numpy.sum((record[0] - z) ** 2), 3
    )
    with pytest.raises(ValueError, match="without covariates="):
        dpvi.fit(functions, table(0), regression_plan(), seed=3, progress=False)


def test_a_private_number_of_records_for_a_generative_model():
    """An empty list of columns pays for the number of records alone."""
    gradients = GaussianRelease("gradients", 0.1, 300, 20.0, 1.0)
    histograms = GaussianRelease("histograms", 1.0, 1, 50.0, 1.0)
    plan = Plan(100.0, 1e-5, (gradients, histograms), "a label", covariates=(), schedule=SCHEDULE)
    y = (np.random.default_rng(1).uniform(size=5000) < 0.4).astype(np.int32)
    posterior = dpvi.fit(coin, y, plan, seed=1, progress=False).posterior()
    assert posterior.method == "score"
    summary = posterior.summary()
    assert summary.lower[0] < 0.4 < summary.upper[0]


def test_nuts_is_an_engine_of_the_default():
    """The check on Gauss-Newton, by one word: the same answer, and not one a standard deviation off."""
    plan = Plan(**{**vars(score_plan(4000, 300, noise_multiplier=5.0)), "schedule": SCHEDULE})
    y = (np.random.default_rng(1).uniform(size=4000) < 0.4).astype(np.int32)
    run = dpvi.fit(coin, y, plan, seed=1, progress=False)
    expected = run.posterior().distribution
    posterior = run.posterior("score", engine="nuts", num_draws=400, num_warmup=200)
    assert posterior.method == "score"
    draws = np.asarray(posterior.sample_unconstrained(400, jax.random.key(0)))
    np.testing.assert_array_equal(np.sort(draws, axis=0), np.sort(posterior.distribution.draws, axis=0))
    assert posterior.sample_unconstrained(900, jax.random.key(0)).shape == (900, 1)
    sd = expected.standard_deviations[0]
    assert_close(draws.mean(), expected.mean[0], sd / np.sqrt(100))  # 400 draws of a chain, 100 independent ones
    assert_close(posterior.distribution.standard_deviations[0], sd, sd * (0.05 + 1 / np.sqrt(200)))
    with pytest.raises(AssertionError):
        assert_close(draws.mean(), expected.mean[0] + sd, sd / np.sqrt(100))
    with pytest.raises(ValueError, match="no density"):
        posterior.log_prob(np.zeros(1))


def test_nuts_has_a_chain_for_each_law(result, monkeypatch):
    """As many draws from each, from its own Gauss-Newton answer."""
    laws = []

    def chain(scores, blocks, key, num_samples, num_warmup, seed, population, found):
        laws.append((population.law.shares, found.mean))
        return np.full((num_samples, len(found.mean)), float(len(laws)))

    module = importlib.import_module("dpvi.posterior.score.score_posterior")
    monkeypatch.setattr(module, "sample_nuts", chain)
    drawn = result.posterior("score", engine="nuts", num_draws=16).distribution.draws
    assert len(laws) == 8
    assert all(not np.array_equal(laws[0][part], laws[1][part]) for part in (0, 1))
    np.testing.assert_array_equal(drawn[:, 0], np.repeat(np.arange(1.0, 9.0), 2))
    search = module.gauss_newton

    def near(*arguments, **options):
        return search(*arguments, **options)._replace(decrement=0.99 * SEARCH._USABLE)

    monkeypatch.setattr(module, "gauss_newton", near)
    with (
        pytest.warns(dpvi.ConvergenceWarning),
        pytest.raises(NotConvergedError, match="engine='gauss_newton'"),
    ):
        result.posterior("score", engine="nuts")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "laplace"}, "engine must be one of 'gauss_newton', 'nuts'"),
        ({"num_draws": 10}, "belongs to a chain"),
        ({"engine": "nuts", "num_warmup": 0}, "num_warmup must be a whole number"),
    ],
)
def test_engines_that_are_none_and_their_settings(result, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        result.posterior("score", **options)


@pytest.mark.parametrize("method", ["last", "average", "stationary", "na_dpvi"])
def test_a_run_that_only_measured_has_no_iterates_to_read(result, method):
    with pytest.raises(ValueError, match=r"all of its steps measured.*move_share=1"):
        result.posterior(method)


@pytest.mark.parametrize("fitting", [0, 5, 8, None])
def test_the_model_is_in_doubt_only_where_no_law_of_its_covariates_fits(result, monkeypatch, fitting):
    """Laws drawn at random contradict the blocks of a right model, too."""
    calls = itertools.count()
    outcome = BlockCheck(99.0, 1, 0.0, 1.0, 0.0, "does not fit.")

    def check(*_, **__):
        return outcome._replace(message=None) if next(calls) == fitting else outcome

    monkeypatch.setattr(importlib.import_module("dpvi.posterior.score.score_posterior"), "check_blocks", check)
    if fitting is None:
        with pytest.warns(UserWarning, match="does not fit"):
            result.posterior()
        assert next(calls) == 9
    else:
        result.posterior()
        assert next(calls) == fitting + 1


@pytest.mark.parametrize("estimator", [dpvi.Vanilla(), dpvi.Aligned(num_draws=2)])
def test_other_estimators_move_all_the_way_and_say_so(estimator):
    with pytest.warns(FallbackWarning, match=r"does not release the scores that Aligned\(\) does") as caught:
        run = dpvi.fit(logistic, table(0), measuring_plan(), estimator=estimator, seed=3, progress=False)
    assert caught[0].filename == __file__
    assert run.trace.segments is None
    assert run.posterior("last").method == "last"


def test_a_schedule_that_only_moves():
    plan = measuring_plan(dpvi.Schedule(move_share=1.0))
    run = dpvi.fit(logistic, table(0), plan, seed=3, progress=False)
    assert run.trace.segments is None


def unable(x, y):
    """A regression that cannot draw its records: the response enters by a factor."""
    weights = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.factor("y", dist.Bernoulli(logits=x @ weights).log_prob(y))


MOVING = dpvi.Schedule(move_share=1.0)
UNREAD = {
    "histograms for another estimator": ({"estimator": dpvi.Vanilla()}, r"reads histograms .* Vanilla"),
    "histograms for several draws": ({"estimator": dpvi.Aligned(2)}, r"reads histograms .*num_draws=2"),
    "histograms and no schedule": ({"plan": regression_plan(schedule=None)}, "no step of this plan measures"),
    "histograms and a schedule that moves": ({"plan": regression_plan(schedule=MOVING)}, "no step of this plan"),
    "histograms for a model without responses": (
        {"model": unable, "plan": regression_plan(columns=(*COLUMNS, dpvi.Levels((0, 1))))},
        "reads histograms of covariates",
    ),
    "histograms and a law": ({"covariate_law": standard_law}, "would replace histograms"),
    "a law and nothing to measure": (
        {"plan": measuring_plan(MOVING), "covariate_law": standard_law},
        "reads a covariate_law",
    ),
    "a law for another estimator": (
        {"plan": measuring_plan(), "covariate_law": standard_law, "estimator": dpvi.Vanilla()},
        "reads a covariate_law",
    ),
    "a law for a driver": (
        {"plan": measuring_plan(), "covariate_law": standard_law, "driver": lambda released: dpvi.Directive(5)},
        "A driver of your own is not given",
    ),
}


@pytest.mark.parametrize("case", UNREAD)
def test_what_nobody_would_read_is_refused_before_it_is_paid_for(case, monkeypatch):
    options, sentence = UNREAD[case]

    def must_not_count(*_, **__):
        raise AssertionError("histograms were released")

    monkeypatch.setattr("dpvi.run.fitting.histograms_of", must_not_count)
    call = {"model": logistic, "data": table(0), "plan": regression_plan(), **options}
    with pytest.raises(ValueError, match=sentence):
        dpvi.fit(**call, seed=3, progress=False)


@pytest.mark.parametrize("move_share", [0.0, 0.3])
def test_releases_that_nothing_explains(monkeypatch, move_share):
    """A run that moved falls back to its iterates; one that only measured has none, and says so."""

    def fail(*_, **__):
        raise NotConvergedError("not found.")

    plan = Plan(**{**vars(regression_plan()), "schedule": dpvi.Schedule(move_share, num_blocks=3)})
    run = dpvi.fit(logistic, table(0), plan, seed=3, progress=False)
    monkeypatch.setitem(METHODS, "score", fail)
    if move_share == 0:
        with pytest.raises(NotConvergedError, match="not found"):
            run.posterior()
        return
    with pytest.warns(FallbackWarning, match="stationary"):
        assert run.posterior().method == "stationary"


def test_the_noise_of_histograms_is_part_of_the_posterior(result):
    """Laws that the noise allows differ in spread and centre; one law alone is too sure."""
    scores, blocks = result.scores, blocks_of(result.trace)
    alone = gauss_newton(scores, blocks, seed=1, population=scores.population(result.trace.histograms))
    noisy = result.trace.histograms + 5 * scores.plan.release("histograms").noise_scale
    several = scores.populations(noisy, 8, seed=1)
    assert len(several) == 8
    assert not np.allclose(several[0].law.shares, several[1].law.shares)
    np.testing.assert_allclose([one.law.shares.sum() for one in several], len(scores.plan.covariates) - 1)
    together = result.posterior(seed=1).distribution.standard_deviations ** 2
    assert np.all(together > 0.95 * np.diag(alone.covariance))


def test_the_error_of_an_estimated_number_widens_the_posterior():
    """Far from the answer the mean score is large, so a number of records known to a quarter matters."""
    scores = ScoreModel(dpvi.check(logistic, table(0)), regression_plan())
    exact = scores.population(np.full(64, 4000 / 32))._replace(variance=np.float64(0))
    rough = exact._replace(variance=np.float64(1000.0**2))
    far = Blocks(np.zeros((1, 3)), np.array([240.0]), np.array([[60.0, -40.0, 25.0]]))
    wide, narrow = (
        np.sqrt(np.diag(gauss_newton(scores, far, population=people).covariance)) for people in (rough, exact)
    )
    assert np.all(wide >= narrow)
    assert wide[0] > 1.1 * narrow[0]
