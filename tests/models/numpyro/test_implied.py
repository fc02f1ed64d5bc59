"""Models that leave the plate over their records out, or have several; those whose records depend stay refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.autoguide import AutoNormal
from support.small_models import private_plan

import dpvi
from dpvi.models.base import ModelError
from dpvi.models.check import check
from dpvi.models.numpyro import NumPyroModel
from dpvi.population.generative import generative_findings, simulate_records
from dpvi.records.arrays import structure_of

_random = np.random.default_rng(3)
X, Y = _random.normal(size=(40, 3)), _random.normal(size=40)
BITS = (Y > 0).astype(int)
DATA = (X, Y)


def weights(x):
    return numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))


def linear(x, y):
    numpyro.sample("y", dist.Normal(x @ weights(x), 1.0), obs=y)


def linear_with_plate(x, y):
    w = weights(x)
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


def two_plates(x, y):
    w = weights(x)
    with numpyro.plate("people", x.shape[0]):
        numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]).to_event(1), obs=x)
    with numpyro.plate("answers", len(y)):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


def beside_a_plate(x, y):
    w = weights(x)
    numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]).to_event(1), obs=x)
    with numpyro.plate("people", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


def columns_alone(x, y):
    w = weights(x)
    with numpyro.plate("columns", 3):
        numpyro.sample("x", dist.Normal(w, 1.0), obs=x)


def a_factor(x, y):
    w = weights(x)
    numpyro.factor("y", -0.5 * (y - x @ w) ** 2)


def scaled_and_masked(x, y):
    w = weights(x)
    with handlers.scale(scale=0.5), handlers.mask(mask=y > 0):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


def missing(x, y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean, 1.0).expand([x.shape[0]]), obs=y, obs_mask=x[:, 0] > 0)


def one_column(x, y):
    numpyro.sample("y", dist.Normal((x @ weights(x))[:, None], 1.0), obs=y[:, None])


FITS = [linear, two_plates, beside_a_plate, columns_alone, a_factor, scaled_and_masked, missing, one_column]


@pytest.mark.parametrize("model", FITS, ids=lambda model: model.__name__)
def test_a_model_without_one_plate_is_completed_and_says_so(model):
    with pytest.warns(dpvi.ModelNotice, match="The model was completed") as noticed:
        ready = check(model, DATA)
    assert len(noticed) == 1
    assert noticed[0].filename == __file__  # the user's line, not one of the package
    assert ready.layout.implied is not None
    z = jnp.linspace(-1.0, 1.0, ready.dimension)
    with jax.numpy_dtype_promotion("standard"):
        handled = handlers.substitute(handlers.seed(model, 0), data=ready.constrain(z))
        trace = handlers.trace(handled).get_trace(*map(jnp.asarray, DATA))
    observed = [m for m in trace.values() if m["type"] == "sample" and m["is_observed"]]
    expected = sum(float(jnp.sum(m["fn"].log_prob(m["value"]) * (m["scale"] or 1.0))) for m in observed)
    terms = jax.vmap(ready.log_likelihood, (None, 0))(z, jax.tree.map(jnp.asarray, DATA))
    assert terms.shape == (40,)
    np.testing.assert_allclose(float(terms.sum()), expected, rtol=1e-4)


def test_a_plate_that_is_there_needs_no_notice_and_no_handler():
    ready = check(linear_with_plate, DATA)
    assert ready.layout.implied is None
    assert ready.function is linear_with_plate


def test_an_implied_plate_gives_the_terms_of_a_written_one():
    structure = structure_of(DATA)
    ours, theirs = NumPyroModel(linear, structure), NumPyroModel(linear_with_plate, structure)
    z, record = jnp.array([0.3, -1.0, 2.0]), jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), DATA)
    assert float(ours.log_likelihood(z, record)) == float(theirs.log_likelihood(z, record))
    assert float(ours.log_prior(z)) == float(theirs.log_prior(z))


def test_records_can_be_drawn_from_a_completed_model():
    def both(x, y):
        w = weights(x)
        numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]).to_event(1), obs=x)
        numpyro.sample("y", dist.Normal(x @ w, 0.01), obs=y)

    model = NumPyroModel(both, structure_of(DATA))
    assert generative_findings(model) == []
    x, y = simulate_records(model, jnp.array([1.0, 2.0, 3.0]), jax.random.key(0), 5)
    np.testing.assert_allclose(y, x @ np.array([1.0, 2.0, 3.0], "float32"), atol=0.1)


def gaussian_process(x, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    distance = (x[:, None, 0] - x[None, :, 0]) ** 2
    kernel = scale * jnp.exp(-distance) + 0.1 * jnp.eye(x.shape[0])
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(x.shape[0]), kernel), obs=y)


def latent_gaussian_process(x, y):
    kernel = jnp.exp(-((x[:, None, 0] - x[None, :, 0]) ** 2)) + 0.1 * jnp.eye(x.shape[0])
    f = numpyro.sample("f", dist.MultivariateNormal(jnp.zeros(x.shape[0]), kernel))
    numpyro.sample("y", dist.Normal(f, 1.0), obs=y)


def autoregression(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * y[:-1], 1.0), obs=y[1:])


def autoregression_with_a_start(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    before = jnp.concatenate([jnp.zeros(1), y[:-1]])
    numpyro.sample("y", dist.Normal(slope * before, 1.0), obs=y)


def smoothing(x, y):
    rate = numpyro.sample("rate", dist.Beta(2.0, 2.0))

    def step(level, now):
        numpyro.sample("y", dist.Normal(level, 1.0), obs=now)
        return rate * now + (1 - rate) * level, None

    scan(step, jnp.zeros(()), y)


def stochastic_volatility(x, y):
    log_scale = numpyro.sample("log_scale", dist.GaussianRandomWalk(0.1, num_steps=len(y)))
    numpyro.sample("y", dist.Normal(0.0, jnp.exp(log_scale)), obs=y)


def trend(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * jnp.arange(len(y)), 1.0), obs=y)


def centred(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * (x[:, 0] - x[:, 0].mean()), 1.0), obs=y)


def ranked(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * jnp.argsort(jnp.argsort(x[:, 0])), 1.0), obs=y)


def total(x, y):
    numpyro.sample("total", dist.Normal(numpyro.sample("mean", dist.Normal(0.0, 1.0)), 1.0), obs=jnp.sum(y))


def column_and_vector(x, y):
    numpyro.sample("y", dist.Normal(x @ weights(x), 1.0), obs=y[:, None])


def column_and_vector_under_a_plate(x, y):
    w = weights(x)
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y[:, None])


def crossed(x, y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("a", x.shape[0], dim=-1), numpyro.plate("b", x.shape[0], dim=-2):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def subsampled_beside_another(x, y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("a", 1000, subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    with numpyro.plate("b", x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, 1.0), obs=x[:, 0])


DEPENDENT = {
    gaussian_process: "'y' observes all records in one MultivariateNormal, as a Gaussian process",
    latent_gaussian_process: "'f' draws one value for every record in one MultivariateNormal, as a Gaussian process",
    autoregression: "'y' observes fewer values than there are records, as in an autoregression",
    autoregression_with_a_start: "Records are coupled",
    smoothing: "'y' is in a loop over the records, as in a time series",
    stochastic_volatility: "'log_scale' draws one value for every record as one path through time",
    trend: "changes when it is alone in the batch",
    centred: "Records are coupled",
    ranked: "Records are coupled",
    total: "none follows the data",
    column_and_vector: "'y' pairs every record with every other",
    column_and_vector_under_a_plate: "'y' pairs every record with every other",
    crossed: "'y' pairs every record with every other",
    subsampled_beside_another: "'a', 'b' all do",
}


@pytest.mark.parametrize("model", DEPENDENT, ids=lambda model: model.__name__)
def test_records_that_depend_on_each_other_stay_refused(model):
    with pytest.raises(ModelError) as caught:
        check(model, DATA)
    assert DEPENDENT[model] in str(caught.value)
    assert "put the observed sites under" not in str(caught.value) or model is total


def test_a_guide_needs_no_plate_in_the_model_either():
    plan = private_plan(num_steps=3)
    with pytest.warns(dpvi.ModelNotice, match="no plate spans the records at 'y'"):
        result = dpvi.fit(linear, DATA, plan, guide=AutoNormal(linear), progress=False)
    assert result.model.layout.record_plate == "records"
