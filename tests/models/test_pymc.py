"""PyMC models after its tutorials, in our words: which are fitted as they are, and why the others are refused."""

from __future__ import annotations

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.pymc_models import ELIGIBLE, NUM_RECORDS, REFUSED, built, pm, records_of

import dpvi
from dpvi.models.base import GenerativeModel, ModelError
from dpvi.models.captured import captured, listed
from dpvi.models.check import check
from dpvi.models.pymc import from_pymc
from dpvi.population.generative import generative_findings, simulate_records

KEY = jax.random.key(0)
CHECKED = ("logistic", "hierarchical")  # through the whole check, which compiles; the others through their own


def at(model: GenerativeModel) -> jax.Array:
    return jnp.asarray(0.3 * np.random.default_rng(1).standard_normal(model.dimension), jnp.result_type(float))


def fixed_rows(model):
    """A law of covariates: all ones."""
    leaves = [leaf for index, leaf in enumerate(jax.tree.leaves(model.structure)) if index not in model.responses]
    return lambda _, count: [jnp.ones((count, *leaf.shape)) for leaf in leaves]


@pytest.mark.parametrize("name", ELIGIBLE)
def test_the_density_is_that_of_pymc_and_splits_into_a_prior_and_a_term_for_each_record(name):
    source = built(ELIGIBLE[name])
    model, records = from_pymc(source, "person"), records_of(source)
    assert isinstance(model, GenerativeModel)
    z = at(model)
    point = {
        var.name: np.asarray(site.of(z), np.float64) for var, site in zip(source.value_vars, model.sites, strict=True)
    }
    expected = float(source.compile_logp(mode="FAST_COMPILE")(point))
    batch = jax.tree.map(lambda leaf, one: jnp.asarray(leaf).astype(one.dtype), records, model.structure)

    @jax.jit
    def evaluated(z, batch):
        one = jax.tree.map(lambda leaf: leaf[3], batch)
        there_and_back = model.unconstrain(model.constrain(z))
        return model.log_prior(z), model.record_terms(z, batch), model.log_likelihood(z, one), there_and_back

    prior, terms, alone, there_and_back = evaluated(z, batch)
    assert terms.shape == (NUM_RECORDS,)
    np.testing.assert_allclose(float(prior + jnp.sum(terms)), expected, rtol=3e-4)
    np.testing.assert_allclose(alone, terms[3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(there_and_back, z, atol=1e-4)


@pytest.mark.parametrize("name", CHECKED)
def test_the_check_passes(name):
    source = built(ELIGIBLE[name])
    model = check(from_pymc(source, "person"), records_of(source))
    assert generative_findings(model, fixed_rows(model)) == []
    drawn = simulate_records(model, at(model), KEY, 5, fixed_rows(model))
    assert all(len(leaf) == 5 and np.isfinite(leaf).all() for leaf in jax.tree.leaves(drawn))
    assert np.isfinite(model.draw_prior(KEY)).all()


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_private_fit_is_refused_with_advice(name):
    write, part = REFUSED[name]
    source = built(write)
    with pytest.raises(ModelError, match=part) as refusal:
        check(from_pymc(source, "person"), records_of(source))
    assert str(NUM_RECORDS) not in str(refusal.value)


def test_the_model_keeps_no_record_of_the_pymc_model():
    secret = np.full(NUM_RECORDS, 1234.5678)

    def write():
        x = pm.Data("x", secret, dims="person")
        slope = pm.Normal("slope")
        pm.Normal("y", slope * x, 1.0, observed=secret)

    model = from_pymc(built(write), "person")
    assert secret[:2].tobytes() not in pickle.dumps(model)
    listing = listed(captured({"model": model}, {"x": secret + 1, "y": secret - 1}))
    assert listing == ()
    again = pickle.loads(pickle.dumps(model))
    z = at(model)
    batch = {"x": jnp.ones(2), "y": jnp.zeros(2)}
    np.testing.assert_array_equal(again.record_terms(z, batch), model.record_terms(z, batch))


def test_public_tables_are_listed_and_tables_of_records_refused():
    table = np.arange(8.0).reshape(4, 2)
    source = built(ELIGIBLE["public_table"])
    model, records = from_pymc(source, "person"), records_of(source)
    (found,) = listed(captured({"model": model}, records))
    assert (found.name, found.shape) == ("model.constants['table']", table.shape)
    few = jax.tree.map(lambda leaf: leaf[:4], records)  # as many records as the table has rows
    with pytest.raises(ModelError, match="as many rows or entries as the data"):
        captured({"model": model}, few)


def test_deterministics_of_parameters_come_along_and_those_of_records_do_not():
    model = from_pymc(built(ELIGIBLE["logistic"]), "person")
    z = at(model)
    values = model.deterministic_sites()(z)
    assert list(values) == ["odds"]
    np.testing.assert_allclose(values["odds"], np.exp(model.constrain(z)["slope"]), rtol=1e-6)


def test_a_response_may_follow_from_another():
    def write():
        mean, slope = pm.Normal("mean"), pm.Normal("slope")
        first = pm.Normal("first", mean, 0.001, observed=np.zeros(NUM_RECORDS))
        pm.Normal("second", slope * first, 0.001, observed=np.zeros(NUM_RECORDS))

    model = from_pymc(built(write), "person")
    drawn = simulate_records(model, jnp.array([2.0, 3.0]), KEY, 50)
    np.testing.assert_allclose(drawn["second"], 3 * drawn["first"], atol=0.01)
    np.testing.assert_allclose(drawn["first"], 2.0, atol=0.01)


def test_draws_have_the_moments_of_their_distribution():
    model = from_pymc(built(ELIGIBLE["negative_binomial"]), "person")
    z = model.unconstrain({"slope": jnp.array(1.0), "concentration": jnp.array(2.0)})
    drawn = jax.jit(lambda key: model.draw_responses(z, {"x": jnp.ones(20_000), "count": jnp.zeros(20_000)}, key))(KEY)
    counts = np.asarray(drawn[0], np.float64)
    mean, variance = np.e, np.e + np.e**2 / 2
    error = np.sqrt(variance / 20_000)
    assert abs(counts.mean() - mean) < 5 * error
    assert abs(counts.mean() - mean * 1.1) > 5 * error  # the test would see a tenth
    assert 0.9 < counts.var() / variance < 1.1


def test_values_that_a_response_can_take_are_enumerated():
    assert from_pymc(built(ELIGIBLE["logistic"]), "person").values_of("ill").tolist() == [0, 1]
    assert from_pymc(built(ELIGIBLE["poisson"]), "person").values_of("count") is None


def test_importing_pytensors_linker_leaves_precision_as_it_is():
    assert not jax.config.jax_enable_x64
    model = from_pymc(built(ELIGIBLE["linear"]), "person")
    assert model.log_prior(at(model)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert model.log_prior(jnp.zeros(model.dimension)).dtype == jnp.float64
    assert not jax.config.jax_enable_x64


def test_records_of_another_shape_or_name_are_refused():
    model = from_pymc(built(ELIGIBLE["linear"]), "person")
    y = np.zeros(NUM_RECORDS)
    with pytest.raises(ModelError, match="A record of 'x' has shape"):
        check(model, {"x": np.zeros((NUM_RECORDS, 3)), "y": y})
    with pytest.raises(ModelError, match=r"The data must be \{'x': \.\.\., 'y': \.\.\.\}"):
        check(model, {"x": np.zeros((NUM_RECORDS, 2)), "z": y})
    counts = from_pymc(built(ELIGIBLE["negative_binomial"]), "person")
    with pytest.raises(ModelError, match="holds whole numbers in the model"):
        check(counts, {"x": y, "count": y + 0.5})


def test_only_pymc_models_and_names_of_dimensions_are_taken():
    with pytest.raises(TypeError, match=r"must be a pm\.Model"):
        dpvi.from_pymc(lambda y: None, "person")
    with pytest.raises(TypeError, match="name of the records' dimension"):
        dpvi.from_pymc(built(ELIGIBLE["linear"]), 0)


def test_warnings_of_pytensor_do_not_reach_the_user():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_pymc(built(ELIGIBLE["hierarchical"]), "person")
