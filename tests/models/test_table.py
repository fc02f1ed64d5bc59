"""The mixture over mixed columns: its density against a plain sum, and records drawn from it against that density."""

from __future__ import annotations

import datetime
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from support.statistics import assert_close, assert_frequencies, assert_rates

from dpvi.declared import columns
from dpvi.models.check import check
from dpvi.models.numpyro import NumPyroModel
from dpvi.models.table import TableModel, ordinal_logits
from dpvi.records.arrays import structure_of
from dpvi.table import Boolean, Categorical, Count, Date, Numeric, Ordinal, Schema, SchemaError

MIXED = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "job": Categorical(("a", "b", "c"), missing=True),
        "school": Ordinal(("low", "middle", "high")),
        "visits": Count(20),
        "ill": Boolean(),
    }
)
PLAIN = Schema({"job": Categorical(("a", "b", "c")), "sex": Boolean(), "n": Count(50)})
SHARES = {
    "component_weights": jnp.array([0.3, 0.7]),
    "job_probabilities": jnp.array([[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]]),
    "sex_probability": jnp.array([0.1, 0.8]),
    "n_weights": jnp.array([0.5, -0.7, 1.0]),
    "n_intercept": jnp.array(0.2),
}


def cumulative(shares: np.ndarray, location: float) -> np.ndarray:
    cuts = scipy.special.logit(np.cumsum(shares)[:-1])
    return np.diff(np.concatenate([[0.0], scipy.special.expit(cuts - location), [1.0]]))


def by_hand(parameters: dict, row: dict) -> float:
    """log Σ_k π_k Π_j p_j(x_j | θ_j^(k)) Poisson(visits | …), written out; a missing job is left out."""
    p = {name: np.asarray(value, np.float64) for name, value in parameters.items()}
    total = 0.0
    for k, weight in enumerate(p["component_weights"]):
        term = weight * scipy.stats.norm(p["age_mean"][k], p["age_scale"][k]).pdf(row["age"])
        term *= p["job_probabilities"][k, row["job"]] if row["job_observed"] else 1.0
        term *= cumulative(p["school_shares"], p["school_location"][k])[row["school"]]
        term *= p["ill_probability"][k] if row["ill"] else 1 - p["ill_probability"][k]
        total += term
    design = np.array([row["age"], row["school"] == 1, row["school"] == 2, row["ill"]], np.float64)
    rate = np.exp(p["visits_intercept"] + design @ p["visits_weights"])
    return np.log(total) + scipy.stats.poisson(rate).logpmf(row["visits"])


@pytest.mark.usefixtures("x64")
def test_the_density_is_the_sum_over_components():
    model = TableModel(MIXED, num_components=3, response="visits", predictors=("age", "school", "ill"))
    parameters = model.draw_parameters(jax.random.key(0))
    records = {name: np.asarray(leaf) for name, leaf in model.draw_records(parameters, jax.random.key(1), 6).items()}
    records["job_observed"] = np.array([True, False] * 3)
    ready = NumPyroModel(model, structure_of(records))
    found = jax.jit(jax.vmap(ready.log_likelihood, (None, 0)))(jax.jit(ready.unconstrain)(parameters), records)
    expected = [by_hand(parameters, {name: leaf[i] for name, leaf in records.items()}) for i in range(6)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    complete = [
        by_hand(parameters, {n: leaf[i] for n, leaf in records.items()} | {"job_observed": True}) for i in (1, 3)
    ]
    assert np.all(np.abs(np.asarray(found)[[1, 3]] - complete) > 1e-3)  # the missing value would have shown


def test_the_model_check_accepts_it():
    model = TableModel(MIXED, num_components=2, response="ill", missingness="model")
    arrays = MIXED.encode(
        {"age": [3, 9], "job": ["a", None], "school": ["low", "high"], "visits": [0, 7], "ill": [1, 0]}
    )
    assert check(model, arrays).dimension == sum(
        [1, 2 * 2, 2 * 2, 2, 2 + 2, 2]  # weights, age, job, job_observed, school, visits
    ) + (1 + 2 + 2 + 1 + 1)  # regression: age, two levels each of job and school, visits, intercept


@pytest.mark.usefixtures("x64")
def test_ordinal_levels_have_cumulative_logits():
    shares = jnp.array([0.2, 0.5, 0.05, 0.25])
    for location in (-3.0, 0.0, 1.7):
        found = np.exp(ordinal_logits(shares, jnp.array(location)))
        np.testing.assert_allclose(found, cumulative(np.asarray(shares), location), rtol=1e-9)
    np.testing.assert_allclose(np.exp(ordinal_logits(shares, jnp.zeros(2))), np.stack([shares, shares]), rtol=1e-9)
    far = ordinal_logits(shares.astype(jnp.float32), jnp.float32(60.0))
    assert np.all(np.isfinite(far))


def test_drawn_columns_depend_on_each_other_through_the_component():
    model = TableModel(PLAIN, num_components=2, response="n")
    records = model.draw_records(SHARES, jax.random.key(3), 20_000)
    cells = 2 * np.asarray(records["job"]) + np.asarray(records["sex"])
    weight, job, sex = (np.asarray(SHARES[name], np.float64) for name in list(SHARES)[:3])
    joint = np.array(
        [np.sum(weight * job[:, j] * (sex if s else 1 - sex)) for j, s in itertools.product(range(3), range(2))]
    )
    counts = np.bincount(cells, minlength=6)
    assert_frequencies(counts, joint)
    independent = np.outer(joint.reshape(3, 2).sum(axis=1), joint.reshape(3, 2).sum(axis=0)).ravel()
    with pytest.raises(AssertionError):
        assert_frequencies(counts, independent)


def test_the_drawn_response_follows_the_regression():
    model = TableModel(PLAIN, num_components=2, response="n", references={"job": "c"})
    records = {k: np.asarray(v) for k, v in model.draw_records(SHARES, jax.random.key(4), 20_000).items()}
    weights = np.asarray(SHARES["n_weights"], np.float64)
    design = np.column_stack([records["job"] == 0, records["job"] == 1, records["sex"]]).astype(float)
    rate = np.exp(0.2 + design @ weights)
    standard_error = np.sqrt(rate.sum())
    assert_close(records["n"].sum(), rate.sum(), standard_error)
    for name in range(3):
        within = design[:, name] == 1
        assert_close(records["n"][within].sum(), rate[within].sum(), np.sqrt(rate[within].sum()))
    first_level = np.exp(0.2 + np.column_stack([records["job"] == 1, records["job"] == 2, records["sex"]]) @ weights)
    with pytest.raises(AssertionError):
        assert_close(records["n"].sum(), first_level.sum(), np.sqrt(first_level.sum()))


def test_drawn_records_are_what_the_schema_can_express():
    schema = Schema(
        {
            "age": Numeric(0, 7, integer=True),
            "day": Date(datetime.date(2000, 1, 1), datetime.date(2000, 1, 20), missing=True),
            "n": Count(2),
            "x": Numeric(0, 1),
        }
    )
    model = TableModel(schema, num_components=2, missingness="model", response="x")
    parameters = model.draw_parameters(jax.random.key(5)) | {"day_observed_probability": jnp.array([0.25, 0.25])}
    records = model.draw_records(parameters, jax.random.key(6), 4000)
    assert {leaf: np.asarray(value).dtype.kind for leaf, value in records.items()} == {
        leaf: dtype.kind for leaf, dtype in schema.leaves.items()
    }
    assert_rates(int(np.sum(records["day_observed"])), 4000, 0.25)
    again = schema.encode(schema.decode(records), outside="raise")
    for leaf, value in records.items():
        np.testing.assert_allclose(again[leaf], value, atol=1e-6)
    ignoring = TableModel(schema, num_components=2, response="x")
    assert np.all(ignoring.draw_records(parameters, jax.random.key(6), 10)["day_observed"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_components": 0}, "num_components"),
        ({"missingness": "guess"}, "'ignore', 'model'"),
        ({"response": "job"}, "'job' is categorical"),
        ({"response": "nothing"}, "no column 'nothing'"),
        ({"predictors": ("job",)}, "name its response"),
        ({"response": "n", "predictors": ("n",)}, "is none itself"),
    ],
)
def test_refusals(settings, words):
    with pytest.raises((SchemaError, ValueError), match=words):
        TableModel(PLAIN, **settings)


@pytest.mark.usefixtures("x64")
def test_the_blocks_share_no_parameter_and_multiply_to_the_whole():
    model = TableModel(PLAIN, num_components=2, response="n")
    mixture, regression = model.blocks()
    records = {leaf: np.asarray(v) for leaf, v in model.draw_records(SHARES, jax.random.key(3), 7).items()}
    terms, sites = {}, {}
    for name, block in (("whole", model), ("mixture", mixture), ("regression", regression)):
        leaves = {leaf: records[leaf] for leaf in block.leaves}
        ready = NumPyroModel(block, structure_of(leaves))
        sites[name] = {site.name for site in ready.sites}
        z = ready.unconstrain({site: jnp.asarray(SHARES[site], float) for site in sites[name]})
        terms[name] = jax.vmap(ready.log_likelihood, (None, 0))(z, jax.tree.map(jnp.asarray, leaves))
    assert not sites["mixture"] & sites["regression"]
    assert sites["mixture"] | sites["regression"] == sites["whole"]
    np.testing.assert_allclose(terms["whole"], terms["mixture"] + terms["regression"], rtol=1e-12)
    assert np.abs(terms["whole"] - terms["mixture"]).max() > 0.1


def test_a_regression_declares_its_covariates_from_the_schema_in_the_order_of_its_leaves():
    schema = Schema({"z": Boolean(), "age": Numeric(18, 99), "job": Categorical(("a", "b")), "k": Count(500)})
    schema = Schema({**schema.columns, "few": Count(3), "n": Count(9)})
    found = TableModel(schema, 2, response="n").blocks()[1].covariates()
    levels = [columns.Levels((0, 1, 2, 3)), columns.Levels((0, 1)), columns.Numeric(0, 500), columns.Levels((0, 1))]
    assert found == [columns.Numeric(-1, 1), *levels]  # age, few, job, k, z
    with pytest.raises(SchemaError, match="'job' may be missing"):
        TableModel(MIXED, 2, response="visits").blocks()[1].covariates()
    with pytest.raises(ValueError, match="mixture alone"):
        TableModel(PLAIN, 2).blocks()
    gaps = Schema({**PLAIN.columns, "n": Count(50, missing=True)})
    with pytest.raises(SchemaError, match="fit it as a whole"):
        TableModel(gaps, 2, response="n", missingness="model").blocks()


def test_names_the_model_needs_are_refused():
    for name in ("records", "mixture", "component_weights"):
        with pytest.raises(SchemaError, match=name):
            TableModel(Schema({name: Boolean(), "other": Boolean()}))
    with pytest.raises(SchemaError, match="at least one predictor"):
        TableModel(Schema({"a": Boolean()}), response="a")
    incomplete = {name: value for name, value in SHARES.items() if name != "n_intercept"}
    model = TableModel(PLAIN, num_components=2, response="n")
    with pytest.raises(ValueError, match="'n_intercept' is missing"):
        model.draw_records(incomplete, jax.random.key(0), 3)
