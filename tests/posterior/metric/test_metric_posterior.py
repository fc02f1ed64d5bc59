"""The metric posterior from end to end: simulated data sets, real plans, and the answer that Newton's method finds."""

from __future__ import annotations

import warnings

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from support.statistics import LEVEL

import dpvi
from dpvi.declared.validation import IntervalWarning
from dpvi.posterior.metric import MetricGaussian
from dpvi.posterior.metric.answer import Answer
from dpvi.posterior.metric.metric_posterior import _findings, _notes
from dpvi.posterior.result import Result

NUM_SETS = 6
SLOPES = np.array([-0.5, 1.0, -1.0])
PRIOR_SD = 2.0
BETA = 2.0


def logistic(x, y):
    slopes = numpyro.sample("slopes", dist.Normal(0.0, PRIOR_SD).expand([3]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ slopes), obs=y)


def coin(y):
    share = numpyro.sample("share", dist.Beta(BETA, BETA))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(share), obs=y)


def logistic_data(num_records: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """An intercept and two columns with a correlation of 0.9."""
    random = np.random.default_rng(0)
    first, other = random.normal(size=(2, NUM_SETS, num_records))
    second = 0.9 * first + np.sqrt(1 - 0.9**2) * other
    x = np.stack([np.ones_like(first), first, second], axis=-1).clip(-4, 4).astype(np.float32)
    y = random.uniform(size=first.shape) < 1 / (1 + np.exp(-x @ SLOPES))
    return x, y.astype(np.int32)


def coin_data(num_records: int = 200) -> np.ndarray:
    return (np.random.default_rng(1).uniform(size=(NUM_SETS, num_records)) < 0.3).astype(np.int32)


def logistic_answers(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The largest posterior density of every data set, by Newton's method."""
    found = []
    for rows, responses in zip(x.astype(np.float64), y, strict=True):
        z = np.zeros(3)
        for _ in range(30):
            mean = 1 / (1 + np.exp(-rows @ z))
            precision = (rows * (mean * (1 - mean))[:, None]).T @ rows + np.eye(3) / PRIOR_SD**2
            z += np.linalg.solve(precision, rows.T @ (responses - mean) - z / PRIOR_SD**2)
        found.append(z)
    return np.stack(found)


def coin_answers(y: np.ndarray) -> np.ndarray:
    """The same of the logit, whose prior has the density s^β (1 − s)^β with s the share."""
    ones = y.sum(axis=1)
    return np.log((ones + BETA) / (y.shape[1] - ones + BETA))[:, None]


def posteriors(results: list[Result]) -> list[MetricGaussian]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IntervalWarning)  # small budgets have caveats
        return [result.posterior().distribution for result in results]


@pytest.fixture(scope="module")
def logistic_runs() -> tuple[list[Result], list[MetricGaussian], np.ndarray]:
    columns = [dpvi.Constant(), dpvi.Numeric(-4, 4, 16), dpvi.Numeric(-4, 4, 16)]
    plan, data = dpvi.plan(epsilon=1.0, delta=1e-5, covariates=columns), logistic_data()
    results = dpvi.fit_many(logistic, data, plan, seeds=range(NUM_SETS), progress=False)
    return results, posteriors(results), logistic_answers(*data)


@pytest.fixture(scope="module")
def coin_runs() -> tuple[list[Result], list[MetricGaussian], np.ndarray]:
    """No columns, and no public number of records: the plan pays for it."""
    plan, data = dpvi.plan(epsilon=0.2, delta=1e-5), coin_data()
    results = dpvi.fit_many(coin, data, plan, seeds=range(NUM_SETS), progress=False)
    return results, posteriors(results), coin_answers(data)


def squared(found: list[MetricGaussian], answers: np.ndarray, covariances: list[np.ndarray]) -> float:
    """Σ z² over data sets and parameters, z the distance of the answer without privacy in standard deviations."""
    return sum(
        float((truth - each.mean) @ np.linalg.solve(covariance, truth - each.mean))
        for each, truth, covariance in zip(found, answers, covariances, strict=True)
    )


def assert_covered(found: list[MetricGaussian], answers: np.ndarray, covariances: list[np.ndarray]) -> None:
    """The rms of z is below what normal errors of that covariance exceed with probability LEVEL."""
    assert squared(found, answers, covariances) < scipy.stats.chi2.isf(LEVEL, answers.size)


NAMES = ["intercept", "slope", "log scale"]
FINE = Answer(
    mean=np.zeros(3),
    privacy=np.diag([1.0, 2.0, 3.0]),
    sampling=np.eye(3),
    contradiction=0.5,
    inflation=1.0,
    doubted=np.zeros(3),
    curvature_error=0.2,
    far_out=np.zeros(3),
)


def test_nothing_is_said_where_nothing_is_wrong():
    assert not _findings(FINE, NAMES)
    assert not _notes(FINE, NAMES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"contradiction": 1e-5, "inflation": 4.0}, ["contradict each other", "widened by 2", "larger epsilon"]),
        ({"curvature_error": 1.01}, ["too small to measure", "most for log scale, slope, intercept", "fewer columns"]),
        ({"far_out": np.array([0.0, 0.5, 0.1])}, ["far from all others", "decide slope.", "Transform the column"]),
    ],
)
def test_what_intervals_were_not_widened_for_is_warned_of_with_a_remedy(change, words):
    (said,) = _findings(FINE._replace(**change), NAMES)
    assert all(word in said for word in words)


def test_what_intervals_were_widened_for_is_no_more_than_a_note():
    surprised = FINE._replace(surprise=1.0, doubted=np.array([0.0, 0.2, 0.9]))
    assert not _findings(surprised, NAMES)
    (note,) = _notes(surprised, NAMES)
    assert "widened for" in note
    assert "most for log scale, slope." in note
    posterior = MetricGaussian(FINE.mean, FINE.privacy, FINE.sampling, surprised, (), (note,))
    assert posterior.caveat.endswith(note)


def test_a_curvature_that_was_hardly_measured_is_noted():
    blurred = FINE._replace(curvature_error=0.8)
    assert not _findings(blurred, NAMES)
    (note,) = _notes(blurred, NAMES)
    assert "most for log scale, slope, intercept. A larger epsilon" in note


def test_records_far_out_hardly_matter_where_privacy_hides_more():
    drowned = FINE._replace(privacy=100 * np.eye(3), far_out=np.full(3, 0.5))
    assert not _findings(drowned, NAMES)


def test_the_privacy_part_covers_the_answer_of_logistic_regressions(logistic_runs):
    _, found, answers = logistic_runs
    parts = [each.privacy_covariance for each in found]
    assert_covered(found, answers, parts)
    with pytest.raises(AssertionError):  # half as wide
        assert_covered(found, answers, [part / 4 for part in parts])
    # and it is no wider than it need be: at this budget privacy costs less than the records' own uncertainty
    assert (
        np.median(
            [np.trace(part) / np.trace(each.sampling_covariance) for each, part in zip(found, parts, strict=True)]
        )
        < 1
    )


def test_the_privacy_part_covers_the_answer_of_coins(coin_runs):
    _, found, answers = coin_runs
    assert_covered(found, answers, [each.privacy_covariance for each in found])
    with pytest.raises(AssertionError):  # the posterior that believes its own mean
        assert_covered(found, answers, [each.sampling_covariance for each in found])


def test_the_number_of_records_is_released_with_noise(coin_runs):
    results, _, _ = coin_runs
    (release,) = (each for each in results[0].plan.releases if each.name == "histograms")
    counted = np.array([result.trace.histograms for result in results]).reshape(NUM_SETS)
    off = (counted - 200) / (release.noise_multiplier * release.clip_norm)
    assert scipy.stats.chi2.sf(off @ off, NUM_SETS) > LEVEL
    assert np.all(off != 0)


def test_a_coin_is_told_more_than_its_prior(coin_runs):
    """A noisy sum of y alone, clipped at 1, has noise of 20 on 200 records: 0.5 of a logit. The prior has about 1."""
    _, found, _ = coin_runs
    assert np.median([float(np.sqrt(each.privacy_covariance[0, 0])) for each in found]) < 0.8


def test_parts_add_up_and_are_the_models_own(logistic_runs):
    _, found, answers = logistic_runs
    x, _ = logistic_data()
    for each, truth, rows in zip(found, answers, x.astype(np.float64), strict=True):
        np.testing.assert_allclose(each.covariance, each.privacy_covariance + each.sampling_covariance)
        mean = 1 / (1 + np.exp(-rows @ truth))
        sampling = np.linalg.inv((rows * (mean * (1 - mean))[:, None]).T @ rows + np.eye(3) / PRIOR_SD**2)
        ratio = np.diag(each.sampling_covariance) / np.diag(sampling)
        assert np.all((ratio > 0.7) & (ratio < 1.4))


def test_a_stored_result_has_the_same_posterior(logistic_runs, coin_runs, tmp_path):
    for number, (function, (results, found, _)) in enumerate(((logistic, logistic_runs), (coin, coin_runs))):
        path = tmp_path / f"{number}.npz"
        results[0].save(path)
        (loaded,) = posteriors([Result.load(path, model=function)])
        for name in ("mean", "privacy_covariance", "sampling_covariance"):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(found[0], name))
        (other,) = posteriors([results[1]])
        assert not np.array_equal(other.mean, loaded.mean)


def test_one_run_in_many_is_a_run_of_its_own(coin_runs):
    results, found, _ = coin_runs
    one = dpvi.fit(coin, coin_data()[3], results[3].plan, seed=3, progress=False)
    (posterior,) = posteriors([one])
    np.testing.assert_array_equal(posterior.mean, found[3].mean)
    np.testing.assert_array_equal(posterior.privacy_covariance, found[3].privacy_covariance)
