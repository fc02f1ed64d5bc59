"""Discrete latents of a record: their sum against densities with a formula, and against all values one by one."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from support.small_models import private_plan

import dpvi
from dpvi.models.base import ModelError
from dpvi.models.check import check
from dpvi.models.numpyro import NumPyroModel
from dpvi.population.generative import generative_findings, simulate_records
from dpvi.posterior.discrete import discrete_draws
from dpvi.records.arrays import structure_of

_random = np.random.default_rng(11)
Y = _random.normal(size=12)
HISTORIES = (_random.random((12, 4)) < 0.5).astype(int)
LABELS = _random.integers(0, 3, (12, 5))


def mixture(y, latent=True):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    centres = numpyro.sample("centres", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        if latent:
            component = numpyro.sample("component", dist.Categorical(weights))
            numpyro.sample("y", dist.Normal(centres[component], 0.5), obs=y)
        else:
            parts = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(centres, 0.5))
            numpyro.sample("y", parts, obs=y)


def with_formula(y):
    mixture(y, latent=False)


def capture_recapture(histories):
    """Animals that survive and are seen, or not: a chain of discrete states in a scan."""
    survival = numpyro.sample("survival", dist.Uniform(0.0, 1.0))
    seen = numpyro.sample("seen", dist.Uniform(0.0, 1.0))

    def occasion(alive, caught):
        with numpyro.plate("animals", histories.shape[0]):
            alive = numpyro.sample("alive", dist.Bernoulli(0.01 + 0.98 * survival * alive))
            numpyro.sample("caught", dist.Bernoulli(0.01 + 0.98 * seen * alive), obs=caught)
        return alive, None

    scan(occasion, jnp.ones(histories.shape[0], jnp.int32), histories.T)


def annotators(labels):
    """Items with a true class each, which every annotator reports with errors of their own."""
    prevalence = numpyro.sample("prevalence", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("annotators", 5, dim=-1), numpyro.plate("classes", 3, dim=-2):
        reports = numpyro.sample("reports", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("items", labels.shape[0], dim=-2):
        truth = numpyro.sample("truth", dist.Categorical(prevalence))
        with numpyro.plate("annotator", 5, dim=-1):
            numpyro.sample("labels", dist.Categorical(reports[truth, jnp.arange(5)]), obs=labels)


def several(y):
    """A pair of coins and a choice of a record's own: 2 · 2 · 3 combinations."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0], dim=-1):
        with numpyro.plate("pair", 2, dim=-2):
            coins = numpyro.sample("coins", dist.Bernoulli(0.3))
        which = numpyro.sample("which", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        location = mean * coins.sum(0) + jnp.array([-1.0, 0.0, 1.0])[which]
        numpyro.sample("y", dist.Normal(location, 1.0), obs=y)


def test_a_mixture_has_the_terms_of_its_formula():
    ours, theirs = check(mixture, Y), check(with_formula, Y)
    assert [site.name for site in ours.sites] == ["weights", "centres"]
    z = jnp.linspace(-1.0, 1.0, ours.dimension)
    for record in jnp.asarray(Y[:3], jnp.float32):
        value, gradient = jax.value_and_grad(ours.log_likelihood)(z, record)
        expected, expected_gradient = jax.value_and_grad(theirs.log_likelihood)(z, record)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.log_prior(z), theirs.log_prior(z), rtol=1e-6)


def one_by_one(model, data, z, ready, values):
    """log Σ p(record, c) with NumPyro's own log joint, for a batch of one record."""
    parameters = ready.constrain(z)

    def joint(latents):
        with jax.numpy_dtype_promotion("standard"):
            handled = handlers.substitute(handlers.seed(model, 0), data={**parameters, **latents})
            trace = handlers.trace(handled).get_trace(data)
            inside = [m for name, m in trace.items() if m["type"] == "sample" and name not in parameters]
            return sum(jnp.sum(m["fn"].log_prob(m["value"])) for m in inside)

    return float(jax.nn.logsumexp(jnp.stack([joint(latents) for latents in values])))


def chains():
    return [{"alive": jnp.array(states)[:, None]} for states in itertools.product((0, 1), repeat=4)]


def truths():
    return [{"truth": jnp.array([[k]])} for k in range(3)]


def pairs():
    return [
        {"coins": jnp.array(coins)[:, None], "which": jnp.array([k])}
        for coins in itertools.product((0, 1), repeat=2)
        for k in range(3)
    ]


@pytest.mark.parametrize(
    ("model", "data", "values"),
    [(capture_recapture, HISTORIES, chains), (annotators, LABELS, truths), (several, Y, pairs)],
    ids=lambda each: getattr(each, "__name__", "data"),
)
def test_terms_are_the_sum_over_all_values(model, data, values):
    ready = check(model, data)
    records = jnp.asarray(data, jnp.float32 if data.dtype == float else jnp.int32)
    z = jnp.linspace(-1.0, 1.0, ready.dimension)
    for row in (0, 5):
        expected = one_by_one(model, records[row : row + 1], z, ready, values())
        np.testing.assert_allclose(float(ready.log_likelihood(z, records[row])), expected, rtol=1e-4)


def test_records_are_drawn_with_latents_of_their_own():
    model = NumPyroModel(mixture, structure_of(Y))
    assert generative_findings(model) == []
    z = model.unconstrain({"weights": jnp.array([0.5, 0.3, 0.2]), "centres": jnp.array([-20.0, 0.0, 20.0])})
    drawn = np.asarray(simulate_records(model, z, jax.random.key(0), 2000))
    shares = [np.mean(np.abs(drawn - centre) < 5) for centre in (-20.0, 0.0, 20.0)]
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=4 * 0.5 / np.sqrt(2000))


def test_a_mixture_with_latents_fits():
    truth = np.random.default_rng(0)
    y = np.where(truth.random(2000) < 0.7, 2.0, -2.0) + 0.5 * truth.standard_normal(2000)

    def model(y):
        share = numpyro.sample("share", dist.Beta(1.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            component = numpyro.sample("component", dist.Bernoulli(share))
            numpyro.sample("y", dist.Normal(4.0 * component - 2.0, 0.5), obs=y)

    plan = private_plan(num_steps=300, sampling_rate=0.1, noise_multiplier=0.5)
    result = dpvi.fit(model, y, plan, seed=2**200, progress=False)
    posterior = result.posterior("average")
    share = np.asarray(posterior.sample(500)["share"])
    assert abs(share.mean() - 0.7) < 0.05  # non-private sd 0.01, noise about as much again; 0.5 would be no fit
    drawn = posterior.infer_discrete(np.array([-2.0, 0.0, 2.0]), 400, jax.random.key(1))["component"]
    assert drawn.shape == (400, 3)
    assert drawn[:, 0].sum() == 0  # e^-16 away
    assert drawn[:, 2].sum() == 400
    assert abs(drawn[:, 1].mean() - share.mean()) < 4 * np.sqrt(0.21 / 400)  # a record in the middle says nothing
    with pytest.raises(ValueError, match="form of the run's records"):
        posterior.infer_discrete((np.zeros(3), np.zeros(3)))


def test_draws_of_latents_have_their_probabilities_given_the_record():
    ready = check(mixture, Y)
    z = jnp.linspace(-1.0, 1.0, ready.dimension)
    batch = jnp.asarray(Y[:2], jnp.float32)
    values = ready.constrain(z)
    joint = jnp.log(values["weights"]) + dist.Normal(values["centres"], 0.5).log_prob(batch[:, None])
    expected = np.asarray(jax.nn.softmax(joint, axis=1))
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = jax.jit(jax.vmap(lambda key: ready.draw_discrete(z, batch, key)["component"]))(keys)
    shares = np.stack([np.mean(np.asarray(drawn) == k, axis=0) for k in range(3)], axis=1)
    error = np.sqrt(expected * (1 - expected) / 4000) + 1e-4
    assert np.all(np.abs(shares - expected) < 4.5 * error)
    assert np.any(np.abs(shares - np.asarray(values["weights"])) > 10 * error)  # the prior's would not do


def test_latents_are_inferred_where_there_are_any():
    def plain(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    with pytest.raises(ValueError, match="no discrete latents"):
        discrete_draws(check(plain, Y), jnp.zeros((2, 1)), Y, jax.random.key(0))
    with pytest.raises(ValueError, match="load the result with its model"):
        discrete_draws(None, jnp.zeros((2, 1)), Y, jax.random.key(0))


def long_chain(y):
    stay = numpyro.sample("stay", dist.Beta(2.0, 2.0))

    def step(state, now):
        with numpyro.plate("series", y.shape[0]):
            state = numpyro.sample("state", dist.Bernoulli(0.5 + 0.4 * stay * state))
            numpyro.sample("y", dist.Normal(state.astype(float), 1.0), obs=now)
        return state, None

    scan(step, jnp.zeros(y.shape[0], jnp.int32), y.T)


def endless(y):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        count = numpyro.sample("count", dist.Poisson(rate))
        numpyro.sample("y", dist.Normal(count.astype(float), 1.0), obs=y)


def many_coins(y):
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    with numpyro.plate("records", y.shape[0], dim=-1), numpyro.plate("coins", 20, dim=-2):
        coins = numpyro.sample("coin", dist.Bernoulli(share))
    with numpyro.plate("records", y.shape[0], dim=-1):
        numpyro.sample("y", dist.Normal(coins.sum(0), 1.0), obs=y)


def shared(y):
    which = numpyro.sample("which", dist.Bernoulli(0.5))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(which.astype(float), 1.0), obs=y)


def coupled(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        coin = numpyro.sample("coin", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Normal(mean * coin.sum(), 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "data", "sentence"),
    [
        (long_chain, np.zeros((12, 40)), "by the forward algorithm in jax.lax.scan"),
        (many_coins, Y, "'coin', have more than 4096 combinations"),
        (endless, Y, "'count' is discrete, and its values are not a fixed finite number"),
        (shared, Y, "'which' is discrete and shared by all records"),
        (coupled, Y, "alone in the batch"),
    ],
    ids=lambda each: getattr(each, "__name__", "-"),
)
def test_what_cannot_be_summed_is_refused_with_advice(model, data, sentence):
    with pytest.raises(ModelError) as caught:
        check(model, data)
    assert sentence in str(caught.value)


def test_models_without_discrete_latents_run_as_before():
    ready = NumPyroModel(with_formula, structure_of(Y))
    assert ready.layout.enumerated == {}
    z, record = jnp.zeros(ready.dimension), jnp.zeros(())
    text = str(jax.make_jaxpr(ready.record_terms)(z, record[None]))
    inside = str(jax.make_jaxpr(lambda z, batch: ready.run(z, batch)["y"]["fn"].log_prob(batch))(z, record[None]))
    assert text.count("exp") <= inside.count("exp")  # no further logsumexp
