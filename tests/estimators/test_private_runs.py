"""Real private runs: intervals are about what the same model and prior say without privacy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special
from support.estimator_runs import mode

import dpvi

SEEDS = (1, 2, 3)
COUNT = 1500
BOUNDS = (np.array([0.0, -3.0]), np.array([10.0, 3.0]))
SETTINGS = {"epsilon": 1.0, "delta": 1e-5, "bounds": BOUNDS}
RANDOM = np.random.default_rng(20)
X = np.stack([RANDOM.uniform(0, 10, COUNT), RANDOM.normal(size=COUNT)], axis=1)
ETA = 0.2 * (X[:, 0] - 5) - 0.7 * X[:, 1]
CASES = {
    "logistic": (
        dpvi.PrivateBayesianLogisticRegression,
        {"classes": (0, 1)},
        (RANDOM.random(COUNT) < special.expit(ETA)).astype(int),
    ),
    "linear": (dpvi.PrivateBayesianLinearRegression, {"y_bounds": (-8, 8)}, ETA + RANDOM.normal(size=COUNT)),
    "poisson": (dpvi.PrivateBayesianPoissonRegression, {"y_bounds": (0, 40)}, RANDOM.poisson(np.exp(0.5 * ETA + 1))),
}


def fitted(kind, seed):
    make, settings, y = CASES[kind]
    return make(**SETTINGS, **settings, random_state=seed).fit(X, y)


@pytest.fixture(scope="module")
def fits():
    return {kind: [fitted(kind, seed) for seed in SEEDS] for kind in CASES}


def deviations(estimators, y) -> np.ndarray:
    """How many standard deviations of privacy each coefficient lies from the answer without privacy."""
    first = estimators[0]
    names = ("coef", "intercept")
    answer, _ = mode(first._model(), first._bounds.scaled(X), first._response(y, len(X)))
    found = []
    for estimator in estimators:
        belief = estimator._belief
        places = np.concatenate([np.arange(len(belief.mean))[belief.places[name]] for name in names])
        found.append((belief.mean[places] - answer) / np.sqrt(np.diag(belief.privacy)[places]))
    return np.concatenate(found)


def test_the_privacy_part_holds_the_answer_without_privacy(fits):
    found = np.concatenate([deviations(estimators, CASES[kind][2]) for kind, estimators in fits.items()])
    size = np.mean(found**2)
    error = np.sqrt(2 / len(found))  # of the mean square of as many standard normals; some of these go together
    assert 1 - 4 * error < size < 1 + 4 * error
    assert 9 * size > 1 + 4 * error  # an interval a third as wide is found out


def test_intervals_have_two_parts_and_cover_the_truth(fits):
    table = fits["logistic"][0].intervals(0.99)
    assert table.names == ("intercept", "x0", "x1")
    assert np.all(table.lower < [-1, 0.2, -0.7])
    assert np.all(table.upper > [-1, 0.2, -0.7])
    assert np.all(table.privacy_sd > 0)
    assert np.all(table.sampling_sd > 0)
    inside = fits["linear"][0].predict_interval(X, level=0.9)
    assert 0.85 < np.mean((inside[:, 0] < CASES["linear"][2]) & (CASES["linear"][2] < inside[:, 1])) < 0.95


def test_a_seed_repeats_a_fit_and_costs_the_guarantee(fits, tmp_path):
    assert np.array_equal(fitted("logistic", SEEDS[0]).coef_, fits["logistic"][0].coef_)
    assert not np.array_equal(fits["logistic"][1].coef_, fits["logistic"][0].coef_)
    assert str(fits["logistic"][0].guarantee_).startswith("NOT PRIVATE")
    ledger = dpvi.Ledger(tmp_path / "people.ledger", epsilon=1.1, delta=1e-4)
    make, settings, y = CASES["logistic"]
    estimator = make(**SETTINGS, **settings, ledger=ledger).fit(X, y)
    assert str(estimator.guarantee_).startswith("(ε = 1, δ = 1e-05)")
    assert ledger.epsilon_left < 1
    with pytest.raises(dpvi.LedgerError):
        estimator.fit(X, y)


def test_a_result_is_saved_and_read_again(fits, tmp_path):
    estimator = fits["poisson"][0]
    estimator.result_.save(tmp_path / "result.npz")
    loaded = dpvi.Result.load(tmp_path / "result.npz", model=estimator.result_.model)
    again = loaded.posterior().distribution
    assert np.allclose(again.mean, estimator.posterior_.distribution.mean)
