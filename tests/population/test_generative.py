"""Whole records drawn from a model, or one sentence that says why they cannot be."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from support.numpyro_models import EXAMPLES, WIDE, logistic, nested_right
from support.small_models import location_model
from support.statistics import assert_close, assert_rates

from dpvi.models.base import ModelError
from dpvi.models.numpyro import NumPyroModel
from dpvi.population.generative import enumerated_response, generative_findings, prior_center, simulate_records
from dpvi.records.arrays import structure_of

FLOAT = jax.ShapeDtypeStruct((), jnp.dtype("float32"))
WHOLE = jax.ShapeDtypeStruct((), jnp.dtype("int32"))
KEY = jax.random.key(1)
SIZE = 4000


def one_site(distribution, structure=FLOAT, prior=dist.Normal(0.0, 1.0)):
    """``distribution(z)`` for every record."""

    def model(y):
        z = numpyro.sample("z", prior)
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", distribution(z), obs=y)

    return NumPyroModel(model, structure)


def chain(x, y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(2.0 * x, 0.5), obs=y)  # before x, on purpose
        numpyro.sample("x", dist.Normal(mean, 1.0), obs=x)


def circle(x, y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x, 0.5), obs=y)
        numpyro.sample("x", dist.Normal(mean + y, 1.0), obs=x)


def scaled(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]), handlers.scale(scale=0.5):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def tilted(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        numpyro.factor("tilt", jnp.tanh(y))


def twice(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("first", dist.Normal(mean, 1.0), obs=y)
        numpyro.sample("second", dist.Cauchy(mean, 1.0), obs=y)


def test_draws_follow_the_model_at_z():
    coin = one_site(lambda z: dist.Bernoulli(logits=z), WHOLE)
    y = simulate_records(coin, jnp.array([-0.8]), KEY, SIZE)
    assert y.dtype == jnp.int32
    assert y.shape == (SIZE,)
    assert_rates(int(y.sum()), SIZE, 1 / (1 + np.exp(0.8)))
    with pytest.raises(AssertionError):
        assert_rates(int(y.sum()), SIZE, 1 / (1 + np.exp(0.5)))


def test_a_response_that_depends_on_another_is_drawn_after_it():
    model = NumPyroModel(chain, (FLOAT, FLOAT))
    x, y = simulate_records(model, jnp.array([1.5]), KEY, SIZE)
    assert_close(np.mean(x), 1.5, 1 / np.sqrt(SIZE))
    assert_close(np.mean(y - 2 * x), 0.0, 0.5 / np.sqrt(SIZE))
    assert_close(np.mean((y - 2 * x) ** 2), 0.25, 0.25 * np.sqrt(2 / SIZE))


def test_covariates_come_from_their_law():
    structure = {"x": jax.ShapeDtypeStruct((2,), jnp.dtype("float32")), "y": WHOLE}
    model = NumPyroModel(logistic, structure)
    law = lambda key, n: {"x": 3.0 + jax.random.normal(key, (n, 2))}  # noqa: E731
    records = simulate_records(model, jnp.array([4.0, 4.0]), KEY, SIZE, law)
    assert set(records) == {"x", "y"}
    assert_close(np.mean(records["x"], axis=0), 3.0, 1 / np.sqrt(SIZE))
    assert np.mean(records["y"]) > 0.98
    with pytest.raises(ModelError, match="n rows of shape"):
        simulate_records(model, jnp.zeros(2), KEY, 5, lambda key, n: jnp.zeros((n, 3)))
    with pytest.raises(ModelError, match="one array for each of data"):
        simulate_records(model, jnp.zeros(2), KEY, 5, lambda key, n: ())


@pytest.mark.parametrize(
    ("model", "structure", "sentence"),
    [
        (logistic, (jax.ShapeDtypeStruct((2,), jnp.dtype("float32")), WHOLE), r"No site observes data\[0\]"),
        (nested_right, structure_of(WIDE), "transformed leaf"),
        (scaled, FLOAT, "power of a density"),
        (tilted, FLOAT, "Factor 'tilt'"),
        (twice, FLOAT, "another site observes too"),
        (circle, (FLOAT, FLOAT), "in a circle"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_a_sentence(model, structure, sentence):
    ready = NumPyroModel(model, structure)
    assert any(sentence.replace("\\", "") in finding for finding in generative_findings(ready))
    with pytest.raises(ModelError, match=sentence):
        simulate_records(ready, jnp.zeros(ready.dimension), KEY, 5)


def test_a_model_of_plain_functions_cannot_be_simulated():
    assert "models written for NumPyro or PyMC only" in generative_findings(location_model())[0]


@pytest.mark.parametrize("name", ["nested", "mixture", "dynamic", "bounded", "reparameterised"])
def test_ordinary_models_without_covariates_can_be_simulated(name):
    example = next(example for example in EXAMPLES if example.name == name)
    model = NumPyroModel(example.model, structure_of(example.data))
    assert generative_findings(model) == []
    records = simulate_records(model, jnp.full(model.dimension, 0.1), KEY, 7)
    assert jax.tree.map(lambda leaf: leaf.shape[1:], records) == jax.tree.map(lambda leaf: leaf.shape[1:], example.data)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(records))


def test_small_finite_supports_are_enumerated():
    categories = one_site(lambda z: dist.Categorical(logits=jnp.stack([z, 2 * z, 0 * z])), WHOLE)
    counts = one_site(lambda z: dist.BetaBinomial(jnp.exp(z), 2.0, total_count=4), WHOLE)
    assert enumerated_response(one_site(lambda z: dist.Bernoulli(logits=z), WHOLE))[1].tolist() == [0, 1]
    assert enumerated_response(categories)[1].tolist() == [0, 1, 2]
    assert enumerated_response(counts)[1].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "distribution",
    [lambda z: dist.Poisson(jnp.exp(z)), lambda z: dist.Normal(z, 1.0), lambda z: dist.Binomial(10_000, logits=z)],
)
def test_other_supports_are_not(distribution):
    assert enumerated_response(one_site(distribution, WHOLE)) is None


def test_the_prior_center_is_its_median():
    center = prior_center(one_site(lambda z: dist.Bernoulli(z), WHOLE, dist.Beta(10.0, 10.0)), KEY)
    assert_close(center, 0.0, 1.2533 * 0.46 / np.sqrt(1000))
    improper = dist.ImproperUniform(dist.constraints.real, (), ())
    assert prior_center(one_site(lambda z: dist.Normal(z, 1.0), prior=improper), KEY).tolist() == [0.0]
