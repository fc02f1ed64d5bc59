"""Coefficients on the user's own scales, predictions and their intervals, and what is said of bad input."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from support.estimator_runs import PRIVACY_SHARE, mode, released

import dpvi
from dpvi.estimators import models, predictive
from dpvi.estimators.belief import Belief

LOWER, UPPER = np.array([0.0, -4.0, 1.0]), np.array([100.0, 4.0, 5.0])
BUDGET = {"epsilon": 1.0, "delta": 1e-7}
DECLARED = {**BUDGET, "bounds": (LOWER, UPPER)}
SOURCES = Path(dpvi.__file__).parents[1]


def records(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    x = rng.uniform(LOWER, UPPER, (count, 3))
    return x, 0.04 * (x[:, 0] - 50) + 0.5 * x[:, 1] - 0.6 * (x[:, 2] - 3)


X, ETA = records()
RANDOM = np.random.default_rng(8)
LABELS = np.where(RANDOM.random(len(X)) < special.expit(ETA), "yes", "no")
AMOUNTS = 20 + 3 * ETA + RANDOM.normal(size=len(X))
COUNTS = RANDOM.poisson(np.exp(0.5 * ETA + 1))
CASES = {
    "logistic": (dpvi.PrivateBayesianLogisticRegression(**DECLARED, classes=("yes", "no")), LABELS),
    "linear": (dpvi.PrivateBayesianLinearRegression(**DECLARED, y_bounds=(-10, 60)), AMOUNTS),
    "poisson": (dpvi.PrivateBayesianPoissonRegression(**DECLARED, y_bounds=(0, 60)), COUNTS),
}


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr("dpvi.estimators.base.released", released)


def new(kind: str, **changed):
    """An estimator of its own: fits of clones are counted together."""
    estimator, _ = CASES[kind]
    return type(estimator)(**{**estimator.get_params(), **changed})


def fitted(kind: str, **changed):
    return new(kind, **changed).fit(X, CASES[kind][1])


# coefficients


def linear_predictor(kind: str, estimator, x):
    """What coefficients on the user's own scales say, in the units of the model."""
    eta = x @ np.ravel(estimator.coef_) + np.ravel(estimator.intercept_)
    return (eta - 25) / 35 if kind == "linear" and estimator.fit_intercept else eta / 60 if kind == "linear" else eta


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", CASES)
def test_coefficients_on_own_scales_say_what_scaled_ones_do(kind, intercept):
    estimator = fitted(kind, fit_intercept=intercept)
    mean, _ = estimator._predictor(X)
    assert np.allclose(linear_predictor(kind, estimator, X), mean)
    if not intercept:
        assert np.allclose(estimator.intercept_, 0)
        assert np.allclose(estimator.intercept_sd_, 0)
        assert estimator.intervals().names == ("x0", "x1", "x2")


def test_coefficients_are_near_the_truth():
    assert np.allclose(fitted("linear").coef_, 3 * np.array([0.04, 0.5, -0.6]), rtol=0.1)
    assert np.allclose(fitted("poisson").coef_, np.array([0.02, 0.25, -0.3]), rtol=0.15)
    assert np.allclose(fitted("logistic").coef_[0], np.array([0.04, 0.5, -0.6]), rtol=0.5)
    assert fitted("linear").sigma_ == pytest.approx(1, rel=0.1)


def test_standard_deviations_are_those_of_the_change_of_scale():
    estimator = fitted("linear")
    scaled = (X - (LOWER + UPPER) / 2) / ((UPPER - LOWER) / 2)
    model = models.Linear(2.5, intercept_scale=1.0)
    _, covariance = mode(model, scaled, (AMOUNTS - 25) / 35)
    sd = np.sqrt(np.diag(covariance)[:3]) * 35 / ((UPPER - LOWER) / 2)
    assert np.allclose(estimator.coef_sd_, sd, rtol=1e-4)
    table = estimator.intervals(0.9)
    assert np.allclose(table.upper[1:] - table.lower[1:], 2 * stats.norm.ppf(0.95) * sd, rtol=1e-4)
    assert np.allclose(table.privacy_sd**2, PRIVACY_SHARE * table.sd**2)
    assert np.allclose(table.privacy_sd**2 + table.sampling_sd**2, table.sd**2)
    assert "x2" in str(table)
    assert "90 % interval" in str(table)


def test_names_come_from_a_data_frame_and_bounds_may_be_two_numbers():
    frame = pd.DataFrame(X, columns=["age", "score", "dose"])
    estimator = new("poisson", bounds=(-4, 100)).fit(frame, COUNTS)
    assert list(estimator.feature_names_in_) == ["age", "score", "dose"]
    assert estimator.intervals().names == ("intercept", "age", "score", "dose")
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame.rename(columns={"age": "years"}))


def test_what_lies_outside_the_bounds_is_put_onto_them():
    far, edge = X.copy(), X.copy()
    far[:20, 0], edge[:20, 0] = 1e6, 100.0
    one, other = (new("linear").fit(x, AMOUNTS) for x in (far, edge))
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.predict(far), one.predict(edge))
    y = np.where(np.arange(len(X)) < 20, 1e9, AMOUNTS)
    one, other = (new("linear").fit(X, response) for response in (y, np.minimum(y, 60)))
    assert np.array_equal(one.coef_, other.coef_)


# predictions


def draws(belief: Belief, rows: np.ndarray, count: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    z = np.random.default_rng(3).multivariate_normal(belief.mean, belief.covariance, count)
    return z @ rows.T, z


def wide_belief() -> tuple[Belief, np.ndarray]:
    """A belief with much uncertainty, all of it correlated, and three rows."""
    root = np.random.default_rng(4).normal(size=(3, 3)) * 0.6
    belief = Belief(np.array([0.3, 0.8, -0.5]), root @ root.T, root @ root.T / 2, {})
    return belief, np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])


def test_averages_over_the_posterior_are_those_of_draws():
    belief, rows = wide_belief()
    mean, variance = rows @ belief.mean, np.einsum("ij,jk,ik->i", rows, belief.covariance, rows)
    eta, _ = draws(belief, rows)
    probabilities, rates = special.expit(eta), np.minimum(np.exp(eta), 8.0)
    for found, drawn in (
        (predictive.mean_probability(mean, variance), probabilities),
        (predictive.mean_rate(mean, variance, 8.0), rates),
    ):
        assert np.all(np.abs(found - drawn.mean(0)) < 5 * drawn.std(0) / 200)
    plug_in = special.expit(mean)  # the wrong answer: the probability at the mean
    assert np.any(np.abs(plug_in - probabilities.mean(0)) > 5 * probabilities.std(0) / 200)


def test_intervals_of_new_responses_hold_as_many_as_they_say():
    belief, rows = wide_belief()  # the last entry is log sigma
    mean, variance = rows @ belief.mean, np.einsum("ij,jk,ik->i", rows, belief.covariance, rows)
    eta, z = draws(belief, rows)
    rng, ends = np.random.default_rng(5), np.array([0.05, 0.95])
    amounts = eta + np.exp(z[:, 2:]) * rng.normal(size=eta.shape)
    last = belief.mean[2], belief.covariance[2, 2]
    lower, upper = predictive.normal_quantiles(ends, mean, variance, rows @ belief.covariance[:, 2], last)
    error = 5 * np.sqrt(0.09 / len(eta))
    assert np.all(np.abs(np.mean((amounts > lower) & (amounts < upper), axis=0) - 0.9) < error)
    lower, upper = predictive.normal_quantiles(ends, mean, 0 * variance, 0 * mean, last)  # without η's uncertainty
    assert np.any(np.abs(np.mean((amounts > lower) & (amounts < upper), axis=0) - 0.9) > error)
    counts = rng.poisson(np.minimum(np.exp(eta), 50.0))
    lower, upper = predictive.count_quantiles(ends, mean, variance, 50.0)
    assert np.all(np.mean(counts <= upper, axis=0) > 0.95 - error)
    assert np.all(np.mean(counts < upper, axis=0) < 0.95 + error)
    assert np.all(np.mean(counts < lower, axis=0) < 0.05 + error)


def test_predictions_agree_with_each_other():
    estimator = fitted("logistic")
    assert list(estimator.classes_) == ["no", "yes"]
    probability = estimator.predict_proba(X)
    assert np.allclose(probability.sum(1), 1)
    assert np.array_equal(estimator.predict(X) == "yes", estimator.decision_function(X) > 0)
    assert np.allclose(np.exp(estimator.predict_log_proba(X)), probability)
    lower, upper = estimator.predict_interval(X, level=0.5).T
    mean, _ = estimator._predictor(X)
    assert np.all((lower < special.expit(mean)) & (special.expit(mean) < upper))
    assert np.all(np.abs(probability[:, 1] - 0.5) < np.abs(special.expit(mean) - 0.5))
    assert estimator.score(X, LABELS) > 0.6
    linear = fitted("linear")
    ends = linear.predict_interval(X)
    assert np.allclose(ends.mean(1), linear.predict(X))
    assert 0.9 < np.mean(np.abs(AMOUNTS - ends.mean(1)) < np.diff(ends)[:, 0] / 2) < 0.99
    assert fitted("poisson").score(X, COUNTS) > 0.3


def test_rates_and_counts_stay_within_what_was_declared():
    estimator = fitted("poisson", y_bounds=(0, 6))
    estimator._belief = estimator._belief._replace(covariance=100 * np.eye(4))
    assert np.all(estimator.predict(X) <= 6)
    assert np.all(estimator.predict_interval(X) <= 6 + 10 * np.sqrt(6))


# life in scikit-learn


@pytest.mark.parametrize("kind", CASES)
def test_copies_and_pickles_predict_the_same(kind):
    estimator = fitted(kind)
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.predict(X), estimator.predict(X))
    assert str(again.guarantee_) == str(estimator.guarantee_)


def test_a_declared_scaler_in_a_pipeline_changes_nothing():
    pipeline = make_pipeline(dpvi.BoundedScaler((LOWER, UPPER)), new("linear", bounds=(-1, 1)))
    direct = fitted("linear")
    assert np.allclose(pipeline.fit(X, AMOUNTS).predict(X), direct.predict(X))
    assert np.allclose(pipeline[-1].coef_, direct.coef_ * (UPPER - LOWER) / 2)
    assert np.allclose(pipeline[0].inverse_transform(pipeline[0].transform(X)), X)


def test_fits_that_nothing_adds_up_are_warned_about():
    search = GridSearchCV(new("poisson"), {"prior_scale": [1.0, 2.0]}, cv=2)
    with pytest.warns(dpvi.PrivacyWarning, match="Pass ledger") as found:
        search.fit(X, COUNTS)
    assert "fit number 5" in str(found[-1].message)  # two folds of two settings, and the last of all records
    fitted("poisson")  # one fit is not warned about


def test_a_ledger_is_charged_and_refuses(tmp_path, monkeypatch):
    monkeypatch.undo()
    ledger = dpvi.Ledger(tmp_path / "people.ledger", epsilon=0.5, delta=1e-6)
    with pytest.raises(dpvi.LedgerError):
        clone(new("linear", ledger=ledger)).fit(X, AMOUNTS)


# input


BAD_SETTINGS = {
    "no bounds": ("linear", {"bounds": None}, "bounds must be declared"),
    "bounds of two of three": ("linear", {"bounds": ([0, 1], [2, 3])}, r"bounds must be a pair"),
    "bounds upside down": ("linear", {"bounds": (3, 1)}, "every lower one below"),
    "no bounds of y": ("linear", {"y_bounds": None}, "y_bounds must be declared"),
    "negative counts": ("poisson", {"y_bounds": (-1, 9)}, "from 0 on"),
    "no classes": ("logistic", {"classes": None}, "classes must be declared"),
    "three classes": ("logistic", {"classes": (1, 2, 3)}, "two distinct labels"),
    "one class": ("logistic", {"classes": "yes"}, "two distinct labels"),
    "no epsilon": ("linear", {"epsilon": None}, "epsilon must be declared"),
    "no delta": ("linear", {"delta": None}, "delta must be declared"),
    "a negative epsilon": ("linear", {"epsilon": -1}, "epsilon must be"),
    "a prior without width": ("linear", {"prior_scale": 0}, "prior_scale"),
    "a generator": ("linear", {"random_state": np.random.default_rng(1)}, "random_state must be None"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_settings_are_refused_in_one_sentence(case):
    kind, settings, sentence = BAD_SETTINGS[case]
    with pytest.raises(ValueError, match=sentence):
        fitted(kind, **settings)


SECRET = 731.25
BAD_DATA = {
    "one dimension": (lambda x, y: (x[:, 0], y), "exactly 2"),
    "three dimensions": (lambda x, y: (x[None], y), "an array with dim 3"),
    "text": (lambda x, y: (np.where(x == SECRET, "secret", x.astype(str)), y), "text that is no number"),
    "complex numbers": (lambda x, y: (x + 1j, y), "Complex data"),
    "objects": (lambda x, y: (np.array([[{}, 1, 2]] * len(x), object), y), "argument must be a string"),
    "ragged rows": (lambda x, y: ([*map(list, x), [SECRET]], y), "different lengths"),
    "ragged responses": (lambda x, y: (x, [[SECRET], *([1.0, 2.0] for _ in y[1:])]), "different lengths"),
    "too large a number": (lambda x, y: (np.where(x == SECRET, 10**400, x.astype(object)), y), "too large"),
    "NaN": (lambda x, y: (np.where(x == SECRET, np.nan, x), y), "contains NaN"),
    "infinity": (lambda x, y: (np.where(x == SECRET, np.inf, x), y), "contains infinity"),
    "no column": (lambda x, y: (x[:, :0], y), r"0 feature\(s\)"),
    "no records": (lambda x, y: (x[:0], y[:0]), "0 records"),
    "fewer responses": (lambda x, y: (x, y[:-1]), "different numbers of records"),
    "no response": (lambda x, y: (x, None), "requires y"),
    "a table of responses": (lambda x, y: (x, np.stack([y, y], 1)), "1d array"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_errors_tell_no_value_and_no_number_of_records(case):
    change, sentence = BAD_DATA[case]
    x, y = X[:397].copy(), AMOUNTS[:397].copy()
    x[11, 1], y[12] = SECRET, SECRET
    with pytest.raises((ValueError, TypeError), match=sentence) as found:
        new("linear").fit(*change(x, y))
    for secret in ("731", "secret", "397", "396", "398"):
        assert secret not in str(found.value)


def test_labels_that_were_not_declared_are_refused_without_naming_them():
    labels = np.where(np.arange(len(X)) == 5, "perhaps", LABELS)
    for y in (labels, np.where(labels == "no", "perhaps", "yes")):
        with pytest.raises(ValueError, match=r"not among the declared|Only binary") as found:
            new("logistic").fit(X, y)
        assert "perhaps" not in str(found.value)


def test_levels_lie_between_nought_and_one():
    for call in (fitted("linear").predict_interval, fitted("logistic").predict_interval):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            call(X, level=95)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        fitted("poisson").intervals(0)


def test_without_scikit_learn_one_sentence_says_what_to_install():
    code = (
        "import sys; sys.modules['sklearn'] = sys.modules['sklearn.base'] = None\nimport dpvi\n"
        "try:\n    dpvi.PrivateBayesianLinearRegression\nexcept ImportError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(SOURCES)}, check=False)
    assert done.stdout == "dpvi's estimators need scikit-learn; install it with: pip install 'dpvi[sklearn]'\n"
