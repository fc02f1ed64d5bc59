"""A regression as a model: priors, families, offsets, groups, and the recipe that a file holds."""

from __future__ import annotations

import datetime
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

from dpvi.declared.columns import Constant, Levels, OneHot
from dpvi.declared.columns import Numeric as CountedNumeric
from dpvi.models.formula import FAMILIES, FormulaError, FormulaModel, model_of_recipe
from dpvi.models.recipes import model_of, recipe_of
from dpvi.table import Boolean, Categorical, Count, Date, Numeric, Ordinal, Schema, SchemaError

SCHEMA = Schema(
    {
        "cost": Numeric(1, 101),
        "won": Boolean(),
        "events": Count(40),
        "asked": Count(60),
        "grade": Ordinal(("low", "mid", "high")),
        "age": Numeric(20, 60),
        "days": Numeric(1, 365),
        "clinic": Categorical(("a", "b", "c")),
        "seen": Numeric(0, 10, missing=True),
        "since": Date(datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)),
        "never": Numeric(0, 1),
    }
)
TABLE = {
    "cost": [1.0, 50.0, 101.0, 30.0],
    "won": [True, False, True, False],
    "events": [0, 3, 40, 7],
    "asked": [5, 10, 60, 9],
    "grade": ["low", "high", "mid", "low"],
    "age": [20.0, 40.0, 60.0, 30.0],
    "days": [1.0, 100.0, 365.0, 10.0],
    "clinic": ["a", "b", "c", "a"],
    "seen": [1.0, None, 3.0, 4.0],
    "since": ["2020-01-01", "2020-06-01", "2021-01-01", "2020-02-01"],
}
RESPONSES = {
    "gaussian": "cost",
    "student_t": "cost",
    "bernoulli": "won",
    "binomial": "events",
    "poisson": "events",
    "negative_binomial": "events",
    "gamma": "cost",
    "ordinal": "grade",
}


def model(family: str = "gaussian", right: str = "age + clinic", **settings) -> FormulaModel:
    trials = "asked" if family == "binomial" else None
    return FormulaModel(f"{RESPONSES[family]} ~ {right}", SCHEMA, family, trials, **settings)


def traced(fitted: FormulaModel, **values):
    arrays = fitted.arrays(TABLE)
    seeded = handlers.seed(handlers.substitute(fitted, values), jax.random.key(0))
    with jax.numpy_dtype_promotion("standard"):
        return handlers.trace(seeded).get_trace(**{name: jnp.asarray(leaf) for name, leaf in arrays.items()})


def test_every_family_is_tried():
    assert set(RESPONSES) == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_law_has_the_mean_that_predictions_have(family):
    fitted = model(family, "age + clinic + (1 | clinic)" if family == "poisson" else "age + clinic")
    trace = traced(fitted)
    draws = {
        name: np.asarray(site["value"], np.float64)[None]
        for name, site in trace.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    x = fitted.arrays(TABLE)["x"].astype(np.float64)
    linear = fitted.linear(x, draws)
    trials = None if fitted.trials is None else fitted.trials_of(x, np)
    mean = fitted.response.mean(linear, fitted.further(draws), trials)[0]
    law = trace[fitted.response.name]["fn"]
    with jax.numpy_dtype_promotion("standard"):
        wanted = np.asarray(law.probs if family == "ordinal" else law.mean, np.float64)
    wanted = wanted if family == "ordinal" else fitted.response.own(wanted)
    np.testing.assert_allclose(mean, wanted, rtol=2e-4, atol=2e-4)


def test_the_linear_predictor_is_the_design_on_the_declared_scale():
    fitted = model()
    weights = jnp.array([0.5, -1.0, 2.0])
    trace = traced(fitted, intercept=jnp.array(0.25), weights=weights, sigma=jnp.array(1.0))
    age, clinic = np.array(TABLE["age"]), np.array(TABLE["clinic"])
    linear = 0.25 + 0.5 * (age - 40) / 10 - 1.0 * (clinic == "b") + 2.0 * (clinic == "c")
    np.testing.assert_allclose(trace["cost"]["fn"].loc, linear / 2, atol=1e-6)
    np.testing.assert_allclose(fitted.response.mean(linear, {}), 51 + 25 * linear)


def test_offsets_are_added_in_units_of_the_linear_predictor():
    written = FormulaModel("events ~ age + offset(log(days))", SCHEMA, "poisson")
    given = FormulaModel("events ~ age", SCHEMA, "poisson", offset="log(days)")
    for fitted in (written, given):
        x = fitted.rows(TABLE)
        np.testing.assert_allclose(fitted.offset_of(x, np), np.log(TABLE["days"]), atol=1e-9)
    own = FormulaModel("cost ~ age", SCHEMA, "gaussian", offset="days")
    np.testing.assert_allclose(own.offset_of(own.rows(TABLE), np) * own.response.unit, TABLE["days"], atol=1e-9)


def test_a_varying_intercept_belongs_to_the_level_of_the_row():
    fitted = FormulaModel("cost ~ 1 + (1 | clinic)", SCHEMA)
    effects = np.array([[1.0, 2.0, 3.0]])
    draws = {"intercept": np.zeros(1), "sd_clinic": np.array([2.0]), "effects_clinic": effects}
    np.testing.assert_allclose(fitted.linear(fitted.rows(TABLE), draws), [[2.0, 4.0, 6.0, 2.0]])


def test_priors_in_own_units_are_put_on_the_declared_scale():
    fitted = model(prior={"age": (0.5, 2.0), "clinic": (0, 5), "Intercept": (51, 50)})
    np.testing.assert_allclose(fitted.priors.location, [0.5 * 10 / 25, 0, 0])
    np.testing.assert_allclose(fitted.priors.scale, [2 * 10 / 25, 5 / 25, 5 / 25])
    assert fitted.priors.intercept == (0.0, 2.0)
    rows = {name: own for name, _, own in fitted.prior_rows()}
    assert rows["age"] == "Normal(0.5, 2)"
    assert rows["clinic[T.b]"] == "Normal(0, 5)"


def test_the_population_is_declared_by_the_schema():
    fitted = FormulaModel("won ~ age + I(age ** 2) + events * C(clinic) + asked", SCHEMA, "bernoulli")
    assert fitted.covariates() == (
        Constant(),
        CountedNumeric(-1, 1),
        Levels(tuple(np.linspace(-1, 1, 41).tolist())),
        OneHot(3, reference=True),
        Levels(tuple(np.linspace(-1, 1, 61).tolist())),
    )


def test_records_with_a_missing_value_are_left_out_and_others_are_not():
    with_gap = FormulaModel("cost ~ age + seen", SCHEMA).arrays(TABLE)
    without = FormulaModel("cost ~ age", SCHEMA).arrays(TABLE)
    assert len(with_gap["x"]) == 3
    assert len(without["x"]) == 4
    np.testing.assert_allclose(with_gap["x"][:, :2], without["x"][[0, 2, 3]])
    with pytest.raises(FormulaError, match="missing value"):
        FormulaModel("cost ~ age + seen", SCHEMA).rows(TABLE)


def test_numbers_beyond_their_bounds_count_as_the_bounds_and_levels_are_refused():
    fitted = model()
    table = {**TABLE, "age": [-500.0, 40.0, 1e9, 30.0], "cost": [0.0, 50.0, 1e9, 30.0]}
    assert {name: leaf.tolist() for name, leaf in fitted.arrays(table).items()} == {
        name: leaf.tolist() for name, leaf in fitted.arrays({**TABLE}).items()
    }
    with pytest.raises(SchemaError, match="levels"):
        fitted.rows({**TABLE, "clinic": ["a", "b", "c", "zzz"]})


def test_a_file_is_read_as_its_columns_are(tmp_path):
    import csv

    path = tmp_path / "people.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["cost", "age", "clinic"])
        writer.writerows(zip(TABLE["cost"], TABLE["age"], TABLE["clinic"], strict=True))
    fitted = model()
    for name, leaf in fitted.arrays(path).items():
        np.testing.assert_array_equal(leaf, fitted.arrays(TABLE)[name])


REFUSED = {
    "family='poisson' needs a count": ("cost ~ age", "poisson", {}),
    "use family='poisson' or": ("events ~ age", "bernoulli", {}),
    "family='bernoulli' needs a boolean": ("cost ~ age", "bernoulli", {}),
    "family='ordinal' needs": ("won ~ age", "ordinal", {}),
    "family must be one of": ("won ~ age", "probit", {}),
    "needs trials": ("events ~ age", "binomial", {}),
    "no other family": ("events ~ age", "poisson", {"trials": "asked"}),
    "prior names 'agee'": ("won ~ age", "bernoulli", {"prior": {"agee": (0, 1)}}),
    r"prior must be \{name": ("won ~ age", "bernoulli", {"prior": {"age": 3}}),
    "prior_scale": ("won ~ age", "bernoulli", {"prior_scale": -1}),
    "offset .* not finite": ("events ~ age", "poisson", {"offset": "log(seen)"}),
    "degrees_of_freedom": ("cost ~ age", "student_t", {"degrees_of_freedom": 0}),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence(said):
    formula, family, settings = REFUSED[said]
    with pytest.raises(FormulaError, match=said):
        FormulaModel(formula, SCHEMA, family, **settings)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recipe_is_json_and_makes_the_same_model(family):
    fitted = model(family, "age * clinic + since + (1 | clinic)", prior={"age": (0, 1)})
    recipe = json.loads(json.dumps(recipe_of(fitted)))
    again = model_of(recipe)
    assert recipe_of(again) == recipe
    assert "never" not in json.dumps(recipe)  # a column that the formula does not read
    assert again.design.names == fitted.design.names
    np.testing.assert_array_equal(again.design.scale, fitted.design.scale)
    assert again.covariates() == fitted.covariates()


def forged(**changes):
    return {**recipe_of(model("bernoulli")), **changes}


FORGED = {
    "another kind": forged(kind="pickle"),
    "another version": forged(version=2),
    "a further entry": forged(code="import os"),
    "a formula that runs": forged(formula="won ~ __import__('os').system('touch /tmp/forged')"),
    "a formula in braces": forged(formula="won ~ {open('/etc/passwd').read()}"),
    "a formula that is no text": forged(formula=["won", "age"]),
    "columns that are none": forged(schema={"columns": {"won": {"kind": "boolean"}}}),
    "a schema that is none": forged(schema=3),
    "a prior of text": forged(prior={"age": ["a", "b"]}),
    "a prior without an end": forged(prior={"age": [0, float("inf")]}),
    "a scale of text": forged(prior_scale="wide"),
    "an offset that runs": forged(offset="().__class__"),
    "too long": forged(formula="won ~ age" + " + age" * 10**6),
    "no recipe": "won ~ age",
    "a date that is none": forged(
        formula="won ~ since", schema={"columns": {"won": {"kind": "boolean"}, "since": {"kind": "date", "lower": 1}}}
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_recipe_is_refused_with_a_sentence(case):
    with pytest.raises(ValueError):
        model_of(FORGED[case])


def test_nothing_but_this_librarys_own_model_has_a_recipe():
    class Looks:
        def recipe(self):
            return {"kind": "glm"}

    class Further(FormulaModel):
        pass

    assert recipe_of(Looks()) is None
    assert recipe_of(Further("cost ~ age", SCHEMA)) is None
    assert model_of_recipe(recipe_of(model())).formula == "cost ~ age + clinic"
