"""Regressions on synthetic data sets: pooled variances are the posterior's, single fits are the textbook's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.small_models import private_plan
from support.statistics import assert_close

from dpvi.models.numpyro import NumPyroModel
from dpvi.models.table import TableModel
from dpvi.posterior import Gaussian, Posterior
from dpvi.records.arrays import structure_of
from dpvi.synthetic import fit_glm, pool_glm, synthesize
from dpvi.table import Boolean, Categorical, Count, Design, Numeric, Schema, SchemaError

SCHEMA = Schema({"job": Categorical(("a", "b", "c")), "sex": Boolean(), "n": Count(1000)})
PARAMETERS = {
    "component_weights": jnp.array([0.4, 0.6]),
    "job_probabilities": jnp.array([[0.5, 0.2, 0.3], [0.2, 0.4, 0.4]]),
    "sex_probability": jnp.array([0.3, 0.6]),
    "n_weights": jnp.array([0.5, -0.4, 0.3]),
    "n_intercept": jnp.array(0.1),
}
SPREAD, NUM_DATASETS, NUM_RECORDS = 0.05, 100, 1000


@pytest.fixture(scope="module")
def data():
    """Sets from a posterior whose regression weights have standard deviation SPREAD."""
    model = TableModel(SCHEMA, num_components=2, response="n")
    arrays = {leaf: np.zeros(1, dtype) for leaf, dtype in SCHEMA.leaves.items()}
    ready = NumPyroModel(model, structure_of(arrays))
    center = ready.unconstrain(PARAMETERS)
    posterior = Posterior(
        Gaussian(center, jnp.full_like(center, SPREAD)), ready, "stationary", private_plan(5).guarantee
    )
    return synthesize(
        posterior, model, SCHEMA, num_records=NUM_RECORDS, num_datasets=NUM_DATASETS, key=jax.random.key(2)
    )


def test_pooled_coefficients_have_the_posteriors_mean_and_variance(data):
    pooled = pool_glm(data, SCHEMA, "n")
    assert pooled.names == ("intercept", "job=b", "job=c", "sex")
    truth = np.array([0.1, 0.5, -0.4, 0.3])
    assert_close(pooled.estimate, truth, np.sqrt(pooled.between / NUM_DATASETS))
    standard_error = pooled.between * np.sqrt(2 / (NUM_DATASETS - 1))
    expected = np.full(4, SPREAD**2) + pooled.between / NUM_DATASETS
    assert_close(pooled.total_variance, expected, standard_error)
    wrong = pool_glm(data, SCHEMA, "n", rule="imputation").total_variance
    with pytest.raises(AssertionError):
        assert_close(wrong, expected, standard_error)


def test_tables_and_other_references_give_the_same_fit(data):
    tables = [data.table(index, to="columns") for index in range(3)]
    pooled = pool_glm(tables, SCHEMA, "n", ("job",), references={"job": "b"}, robust=True)
    assert pooled.names == ("intercept", "job=a", "job=c")
    default = pool_glm(tables, SCHEMA, "n", ("job",), robust=True)
    np.testing.assert_allclose(pooled.estimate[1], -default.estimate[1], rtol=1e-6)
    np.testing.assert_allclose(pooled.estimate[2], default.estimate[2] - default.estimate[1], rtol=1e-5)
    assert pooled.num_datasets == 3


@pytest.mark.parametrize("robust", [False, True])
def test_least_squares_in_the_tables_units(robust):
    random = np.random.default_rng(7)
    year, height = random.integers(1900, 2000, 300), random.uniform(-1, 1, 300)
    income = 1000.0 + 3 * (year - 1950) + 50 * height + 20 * (1 + np.abs(height)) * random.normal(size=300)
    schema = Schema({"year": Numeric(1900, 2000), "height": Numeric(-1, 1), "income": Numeric(0, 2000)})
    arrays = schema.encode({"year": year, "height": height, "income": income})
    design = Design(schema, ("year", "height"))
    estimate, variance = fit_glm(arrays, design, "income", robust=robust)
    X = np.column_stack([np.ones(300), year, height])
    beta, inverse = np.linalg.lstsq(X, income)[0], np.linalg.inv(X.T @ X)
    residual = income - X @ beta
    plain = inverse * (residual @ residual) / 297
    sandwich = inverse @ (X.T * residual**2) @ X @ inverse * 300 / 297
    np.testing.assert_allclose(estimate, beta, rtol=1e-6)
    np.testing.assert_allclose(variance, np.diag(sandwich if robust else plain), rtol=1e-5)


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("response", ["n", "sex", "z"])
def test_cells_give_what_statsmodels_gives_on_every_record(response, robust):
    api = pytest.importorskip("statsmodels.api")
    schema = Schema({"job": Categorical(("a", "b", "c")), "k": Count(4), "sex": Boolean(), "n": Count(50)})
    schema = Schema({**schema.columns, "z": Numeric(-50, 50)})
    random = np.random.default_rng(11)
    job, k = random.integers(0, 3, 2000), random.integers(0, 5, 2000)
    a = -0.5 + 0.4 * (job == 1) - 0.3 * (job == 2) + 0.1 * k
    y = {"n": random.poisson(np.exp(a)), "sex": random.uniform(size=2000) < 1 / (1 + np.exp(-a))}
    y["z"] = 3 * a + (1 + k) * random.normal(size=2000)
    arrays = schema.encode({"job": np.array(["a", "b", "c"])[job], "k": k, **y})
    estimate, variance = fit_glm(arrays, Design(schema, ("job", "k")), response, robust=robust)
    families = {"n": api.families.Poisson, "sex": api.families.Binomial, "z": api.families.Gaussian}
    rows = np.column_stack([np.ones(2000), job == 1, job == 2, k]).astype(float)
    decoded = np.asarray(schema[response].decode(response, arrays[response]), float)
    full = api.GLM(decoded, rows, family=families[response]()).fit(cov_type="HC0" if robust else "nonrobust")
    # statsmodels' GLM answers to "HC1" with HC0: the correction n/(n − k) that makes the difference is put here
    correction = 2000 / 1996 if robust else 1.0
    np.testing.assert_allclose(estimate, full.params, rtol=1e-6)
    np.testing.assert_allclose(variance, correction * full.bse**2, rtol=1e-6)
    other = api.GLM(decoded, rows, family=families[response]()).fit(cov_type="nonrobust" if robust else "HC0")
    assert np.abs(variance / other.bse**2 - 1).max() > 1e-3


def test_records_with_gaps_are_left_out():
    schema = Schema({"x": Boolean(missing=True), "ill": Boolean()})
    x = [True, False] * 40 + [None] * 10
    ill = ([True] * 30 + [False] * 10) + ([False, True] * 10 + [True] * 20) + [True] * 10
    full = schema.encode({"x": x[:80], "ill": ill[:80]})
    gaps = schema.encode({"x": x, "ill": ill})
    design = Design(schema, ("x",))
    np.testing.assert_allclose(fit_glm(gaps, design, "ill"), fit_glm(full, design, "ill"))


def test_refusals(data):
    arrays = data.encoded(0)
    design = Design(SCHEMA, ("job", "sex"))
    with pytest.raises(SchemaError, match="'job' is categorical"):
        fit_glm(arrays, Design(SCHEMA, ("sex",)), "job")
    with pytest.raises(ValueError, match="'sex' does not vary"):
        fit_glm({**arrays, "sex": np.zeros(NUM_RECORDS, bool)}, design, "n")
    with pytest.raises(ValueError, match="cannot be told apart"):
        fit_glm({**arrays, "sex": arrays["job"] == 1}, design, "n")
    with pytest.raises(ValueError, match="at least two"):
        pool_glm([data.table(0, to="columns")], SCHEMA, "n")
