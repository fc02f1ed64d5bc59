"""Widths before anything is spent: what is assumed, what is simulated from it, and what is made of the cells."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import dpvi
from dpvi.models.formula import FormulaError, FormulaModel
from dpvi.regression.assumed import AssumedLaw
from dpvi.regression.preview import Preview, _nonprivate
from dpvi.table import Boolean, Categorical, Count, Numeric, Ordinal, Schema

SCHEMA = Schema(
    {
        "cost": Numeric(0, 100),
        "won": Boolean(),
        "events": Count(60),
        "asked": Count(80),
        "grade": Ordinal(("low", "mid", "high")),
        "age": Numeric(20, 80),
        "job": Categorical(("a", "b", "c")),
        "ill": Boolean(missing=True),
        "positive": Numeric(0.1, 50),
    }
)
MANY = 20_000


def law(formula="cost ~ age + job + ill", family="gaussian", trials=None, **assumed):
    return AssumedLaw(FormulaModel(formula, SCHEMA, family, trials), **assumed)


def column(found: AssumedLaw, name: str, x: np.ndarray) -> np.ndarray:
    return found.model.design.raw.number(x, name, np)


def test_marginals_and_correlations_are_those_declared():
    jobs = {"a": 0.7, "b": 0.2, "c": 0.1}
    found = law(
        "cost ~ age + events + job + ill",
        marginals={"age": (50, 8), "events": [0, 2, 10], "job": jobs, "ill": 0.1},
        correlation={("age", "events"): 0.6},
    )
    x = found.covariates(MANY, np.random.default_rng(0))
    age, events = column(found, "age", x), column(found, "events", x)
    assert abs(age.mean() - 50) < 0.3
    assert abs(age.std() - 8) < 0.3
    assert abs(np.median(events) - 2) < 0.5
    assert events.max() <= 10
    np.testing.assert_allclose(found.model.design.raw.indicators(x, "job", np).mean(axis=0), [0.7, 0.2, 0.1], atol=0.02)
    assert abs(column(found, "ill", x).mean() - 0.1) < 0.02
    assert abs(np.corrcoef(age, events)[0, 1] - 0.57) < 0.06
    apart = law("cost ~ age + events").covariates(MANY, np.random.default_rng(0))
    assert abs(np.corrcoef(apart.T[1:])[0, 1]) < 0.04


@pytest.mark.parametrize(
    ("family", "response", "given", "trials"),
    [
        ("bernoulli", "won", 0.12, None),
        ("poisson", "events", 3.0, None),
        ("negative_binomial", "events", (3.0, 4.0), None),
        ("gaussian", "cost", (40, 9), None),
        ("gamma", "positive", (6, 3), None),
        ("binomial", "events", 0.2, "asked"),
    ],
)
def test_the_response_has_the_mean_and_spread_assumed_of_it(family, response, given, trials):
    found = law(f"{response} ~ age", family, trials, marginals={response: given}, effects={"age": 0.005})
    records = found.records(MANY, 3)
    y = found.model.response.own(records["y"].astype(float))
    mean = given[0] if isinstance(given, tuple) else given
    if trials:
        y = y / np.maximum(found.model.trials_of(records["x"].astype(float), np), 1)
    assert y.mean() == pytest.approx(mean, rel=0.05)
    if isinstance(given, tuple):
        assert y.std() == pytest.approx(given[1], rel=0.1)


def test_levels_of_an_ordinal_response_are_as_frequent_as_assumed():
    shares = {"low": 0.6, "mid": 0.3, "high": 0.1}
    records = law("grade ~ age", "ordinal", marginals={"grade": shares}).records(MANY, 1)
    np.testing.assert_allclose(np.bincount(records["y"]) / MANY, list(shares.values()), atol=0.02)


def test_widths_without_privacy_are_those_of_least_squares():
    found = law("cost ~ age", marginals={"cost": (50, 10), "age": (50, 8)})
    widths = _nonprivate(found.model, found, 1000, 0.95, 0)
    assert widths[1] == pytest.approx(2 * 1.96 * 10 / 8 / np.sqrt(1000), rel=0.06)


def test_the_number_of_records_that_a_question_needs():
    sizes = np.array([1000, 4000])
    a, b = 4.0, 9000.0
    plain = np.sqrt(a / sizes)[:, None]
    private = np.sqrt(a / sizes + b / sizes**2)[None, :, None]
    found = Preview("y ~ x", "gaussian", 1e-6, ("x",), (1.0,), (1000, 4000), private, plain, 0.95, 1.0)
    assert found.records_needed("x", 0.1) == pytest.approx(400)
    needed = found.records_needed("x", 0.1, 1.0)
    assert a / needed + b / needed**2 == pytest.approx(0.01)
    assert "ε = 1" in str(found)
    assert len(found.to_pandas()) == 4
    assert isinstance(found.plot(), Figure)
    with pytest.raises(ValueError, match="previewed"):
        found.records_needed("x", 0.1, 2.0)
    with pytest.raises(ValueError, match="no coefficient"):
        found.records_needed("z", 0.1)


@pytest.mark.parametrize(
    ("assumed", "said"),
    [
        ({"marginals": {"agee": (1, 2)}}, "name 'agee'"),
        ({"effects": {"agee": 1}}, "effects name"),
        ({"marginals": {"job": 0.3}}, "level: probability"),
        ({"correlation": {("age", "job"): 0.9, ("age", "ill"): 0.9, ("job", "ill"): -0.9}}, "contradict"),
    ],
)
def test_what_cannot_be_assumed_is_refused(assumed, said):
    with pytest.raises(FormulaError, match=said):
        law(**assumed).covariates(10, np.random.default_rng(0))


def test_a_preview_of_too_many_cells_is_refused_before_any():
    with pytest.raises(ValueError, match="at most 100"):
        dpvi.preview("won ~ age", SCHEMA, num_records=list(range(100, 111)), epsilon=[1.0] * 10, delta=1e-6)
