"""A PyMC model goes every way that a NumPyro model goes: plans that measure, files, predictions, what is refused."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from support.pymc_models import built, pm

import dpvi
from dpvi.models.pymc import from_pymc

pytestmark = pytest.mark.filterwarnings("ignore:The plan measures")
NUM_RECORDS, SLOPE, SEED = 3000, 1.0, (1 << 200) + 7
_random = np.random.default_rng(0)
X = _random.uniform(-1, 1, NUM_RECORDS)
Y = (_random.uniform(size=NUM_RECORDS) < 1 / (1 + np.exp(-SLOPE * X))).astype(int)


def in_numpyro(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
    with numpyro.plate("person", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=slope * x), obs=y)


def in_pymc():
    x = pm.Data("x", np.zeros(12), dims="person")
    slope = pm.Normal("slope", 0.0, 2.0)
    pm.Deterministic("odds", pm.math.exp(slope))
    pm.Bernoulli("y", logit_p=slope * x, observed=np.zeros(12, int))


@pytest.fixture(scope="module")
def model():
    return from_pymc(built(in_pymc), "person")


def run(model):
    plan = dpvi.plan(epsilon=2.0, delta=1e-6, covariates=[dpvi.Numeric(-1, 1, 16)])
    return dpvi.fit(model, {"x": X, "y": Y}, plan, seed=SEED, progress=False)


@pytest.fixture(scope="module")
def measured(model):
    return run(model)


def test_a_plan_that_measures_finds_the_slope(measured):
    summary = measured.posterior().summary()
    assert summary.names == ("slope", "odds")
    assert abs(summary.mean[0] - SLOPE) < 4 * summary.sd[0]
    assert abs(summary.mean[0]) > 4 * summary.sd[0]  # the prior's mean would be seen
    assert summary.privacy_sd is not None


@pytest.mark.slow
def test_the_same_model_gives_the_same_in_numpyro(measured):
    """The same plan, records and seed in both languages."""
    ours, theirs = measured.posterior().summary(), run(in_numpyro).posterior().summary()
    np.testing.assert_allclose(ours.mean[0], theirs.mean[0], atol=0.05 * theirs.sd[0])
    np.testing.assert_allclose(ours.sd[0], theirs.sd[0], rtol=0.05)


def test_a_result_comes_back_from_a_file_and_a_pickle(measured, model, tmp_path):
    result = measured
    result.save(tmp_path / "result.npz")
    key = jax.random.key(0)
    expected = result.posterior().sample(5, key)
    for loaded in (dpvi.Result.load(tmp_path / "result.npz", model=model), pickle.loads(pickle.dumps(result))):
        found = loaded.posterior().sample(5, key)
        assert list(found) == ["slope", "odds"]
        np.testing.assert_allclose(found["odds"], expected["odds"], rtol=1e-5)
    alone = dpvi.Result.load(tmp_path / "result.npz")  # every transform of this model has a counterpart in NumPyro
    assert [site.name for site in alone.sites] == ["slope"]


def test_predictions_take_a_dict_or_a_table_and_leave_the_response_out(measured, model):
    posterior, new = measured.posterior(), np.array([-1.0, 0.0, 1.0])
    for given in ({"x": new}, {"x": new, "y": None}, pd.DataFrame({"x": new, "y": [0, 0, 0], "note": "a"})):
        drawn = posterior.predict(model, given, num_samples=400, key=jax.random.key(1))
        assert list(drawn) == ["y"]
        assert drawn["y"].shape == (400, 3)
    rates = np.asarray(drawn["y"], np.float64).mean(axis=0)
    expected = 1 / (1 + np.exp(-SLOPE * new))
    np.testing.assert_allclose(rates, expected, atol=5 * 0.5 / np.sqrt(400))
    with pytest.raises(ValueError, match="needs the covariates 'x'"):
        posterior.predict(model, {"y": Y})
    with pytest.raises(ValueError, match="needs a dict of arrays by name"):
        posterior.predict(model, X)


def test_a_table_of_records_is_taken_by_its_columns(model):
    table = pd.DataFrame({"note": ["a"] * 20, "y": Y[:20], "x": X[:20]})
    assert dpvi.check(model, table).structure.keys() == {"x", "y"}
    with pytest.raises(ValueError, match="'x' is no column of the table"):
        dpvi.check(model, table.drop(columns="x"))


def test_the_custodian_is_told_of_labels_that_the_distribution_cannot_give(model, capsys):
    dpvi.validate(model, {"x": X[:20], "y": np.where(np.arange(20) == 3, 2, Y[:20])})
    assert "site 'y' observes values that its distribution cannot give in 1 of 20 records" in capsys.readouterr().err


def test_a_start_may_be_given_on_the_variables_own_supports(model):
    z = model.unconstrain({"slope": jnp.array(0.5)})
    assert z.tolist() == [0.5]
    with pytest.raises(ValueError, match="'slope' is missing"):
        model.unconstrain({})


def test_what_only_numpyro_models_take_is_refused(model):
    plan = dpvi.plan(epsilon=2.0, delta=1e-6, sampling_rate=0.1, num_steps=10, clip_norm=1.0)
    with pytest.raises(TypeError, match="static= is for NumPyro functions"):
        dpvi.fit(model, {"x": X, "y": Y}, plan, static={"size": 3})
    with pytest.raises(TypeError, match="guide"):
        dpvi.fit(model, {"x": X, "y": Y}, plan, guide=lambda x, y: None)
