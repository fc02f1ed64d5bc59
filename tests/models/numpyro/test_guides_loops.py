"""Guides and models with loops: plates in their bodies, and draws there that are a record's own or shared."""

from __future__ import annotations

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import Trace_ELBO
from numpyro.infer.util import log_density

from dpvi.models.base import ModelError
from dpvi.models.numpyro import NumPyroModel
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.models.numpyro.guides.check import check_guide
from dpvi.models.numpyro.guides.execution import RecordDraws, shared_key

X = np.random.default_rng(1).normal(size=(5, 3))
TURNS = 3
ROW, NUMBER = (jax.ShapeDtypeStruct(shape, jnp.dtype("float32")) for shape in ((3,), ()))


def eta(seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(4), jnp.result_type(float))


def full(x):
    return numpyro.plate("records", x.shape[0])


def subsampled(x):
    return numpyro.plate("records", 1000, subsample_size=x.shape[0])


@contextmanager
def weighted(x):
    with full(x), handlers.scale(scale=2.0):
        yield


def chain(x, plate=full):
    """A latent of a record's own in every turn, around the last one; the plate is in the body of the loop alone."""
    pull = numpyro.sample("pull", dist.Normal(0.0, 1.0))

    def turn(last, seen):
        with plate(x):
            state = numpyro.sample("state", dist.Normal(pull * last, 1.0))
            numpyro.sample("x", dist.Normal(state, 0.5), obs=seen)
        return state, None

    scan(turn, jnp.zeros(x.shape[0]), x.T)


def chain_guide(x):
    numpyro.sample("pull", dist.Normal(numpyro.param("location", 0.2), numpyro.param("spread", 0.7)))
    slope, keep = numpyro.param("slope", 0.5), numpyro.param("keep", 0.1)

    def turn(last, seen):
        with full(x):
            state = numpyro.sample("state", dist.Normal(slope * seen + keep * last, 0.8))
        return state, None

    scan(turn, jnp.zeros(x.shape[0]), x.T)


def test_a_record_has_numpyros_elbo_in_a_loop(x64):
    ready = check_guide(chain, chain_guide, X)
    assert (ready.record_plate, ready.layout.guide_plate) == ("records", "records")
    assert ready.layout.local_sites == ("state",)
    xi, seed = ready.initial(jax.random.key(0)), eta()
    record = jnp.asarray(X[0])
    key = ready.own_key(seed, record)

    def found(xi):
        return ready.term(xi, seed, key, record, closed_form=False) + ready.record_free(xi, seed)

    def expected(xi):
        guide, model = (RecordDraws(each, shared_key(seed), key, "records") for each in (chain_guide, chain))
        params = ready.parameters.constrain(xi)
        return -Trace_ELBO().loss(jax.random.key(0), params, model, guide, record[None])

    with jax.numpy_dtype_promotion("standard"):
        (value, gradient), (elbo, elbo_gradient) = (jax.jit(jax.value_and_grad(each))(xi) for each in (found, expected))
    np.testing.assert_allclose(value, elbo, rtol=1e-10)
    np.testing.assert_allclose(gradient, elbo_gradient, rtol=1e-8, atol=1e-12)


def test_draws_in_a_loop_are_the_records_own_and_shared_ones_are_shared():
    ready = GuidedModel(chain, chain_guide, ROW)
    xi, seed = ready.initial(jax.random.key(0)), eta()

    def draws(record):
        guide_trace, _ = ready.run(xi, seed, ready.own_key(seed, record), record[None])
        state = guide_trace["state"]
        return jnp.ravel(state["value"] - state["fn"].loc) / 0.8, guide_trace["pull"]["value"]

    records = jnp.asarray(np.random.default_rng(2).normal(size=(2000, 3)), jnp.float32)
    noise, pulls = (np.asarray(each) for each in jax.jit(jax.vmap(draws))(records))
    assert np.ptp(pulls) == 0
    limit = 4.5 / np.sqrt(len(noise))  # of a mean of independent standard normals, or of a product of two
    assert np.all(np.abs(noise.mean(axis=0)) < limit)  # the wrong answer: one draw for all records
    products = noise.T @ noise / len(noise) - np.eye(TURNS)
    assert np.all(np.abs(products[~np.eye(TURNS, dtype=bool)]) < limit)  # another: one draw for all turns
    assert np.all(np.abs(np.diag(products)) < np.sqrt(2) * limit)


def test_two_loops_do_not_share_their_draws():
    def loops(law):
        def turn(name):
            def body(last, _):
                return numpyro.sample(name, law()), None

            return body

        for name in ("first", "second"):
            scan(turn(name), jnp.zeros(()), jnp.arange(TURNS))

    def model(y):
        loops(lambda: dist.Normal(0.0, 1.0))
        with full(y):
            numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    def guide(y):
        location = numpyro.param("location", 0.0)
        loops(lambda: dist.Normal(location, 1.0))

    ready = GuidedModel(model, guide, NUMBER)
    draws = np.stack([ready.draw(jnp.zeros(1), eta(seed)) for seed in range(400)])
    correlations = np.mean(draws[:, :TURNS] * draws[:, TURNS:], axis=0)
    assert np.all(np.abs(correlations) < 4.5 / np.sqrt(len(draws)))  # 1 where both have one key


def drawn_by_turn(shape):
    """A model with one shared latent a turn, and a guide that draws it in this shape."""

    def model(y):
        _, states = scan(lambda last, _: (numpyro.sample("state", dist.Normal(last, 1.0)),) * 2, 0.0, jnp.arange(TURNS))
        with full(y):
            numpyro.sample("y", dist.Normal(states.sum(), 1.0), obs=y)

    def guide(y):
        numpyro.sample("state", dist.Normal(numpyro.param("location", jnp.zeros(shape)), 1.0))

    return model, guide


@pytest.mark.parametrize("shape", [(), (TURNS - 1,)])
def test_a_guide_that_draws_too_few_turns_is_refused(shape):
    """NumPyro takes one value for all turns, or draws what is missing from the prior."""
    with pytest.raises(ModelError, match=r"in the model, \(3,\), but the guide draws"):
        GuidedModel(*drawn_by_turn(shape), NUMBER)
    assert GuidedModel(*drawn_by_turn((TURNS,)), NUMBER).dimension == TURNS


@pytest.mark.parametrize("plate", [subsampled, weighted])
def test_a_scale_whose_parts_nobody_can_tell_is_refused(plate):
    with pytest.raises(ModelError, match=r"'state' is scaled in the body of a loop.*leave both out"):
        GuidedModel(lambda x: chain(x, plate), chain_guide, ROW)


def observed(x, plate=full):
    """Without latents of its own a record needs no guide; its plate is in the body of the loop alone here, too."""
    pull = numpyro.sample("pull", dist.Normal(0.0, 1.0))

    def turn(last, seen):
        with plate(x):
            numpyro.sample("x", dist.Normal(pull * last, 1.0), obs=seen)
        return seen, None

    scan(turn, jnp.zeros(x.shape[0]), x.T)


def test_a_model_without_a_guide_may_have_its_plate_in_a_loop(x64):
    structure = jax.ShapeDtypeStruct((3,), jnp.dtype("float64"))
    model, records, z = NumPyroModel(observed, structure), jnp.asarray(X), jnp.asarray([0.4])
    found = model.log_prior(z) + jnp.sum(jax.vmap(lambda record: model.log_likelihood(z, record))(records))
    with jax.numpy_dtype_promotion("standard"):
        expected, _ = log_density(observed, (records,), {}, {"pull": z[0]})
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    with pytest.raises(ModelError, match="'x' is scaled in the body of a loop"):
        NumPyroModel(lambda x: observed(x, subsampled), structure)
