"""The split into prior and per-record terms is NumPyro's own log joint, term by term."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import potential_energy
from support import numpyro_models as examples

from dpvi.models.base import Model, ModelError
from dpvi.models.numpyro import NumPyroModel
from dpvi.records.arrays import as_records, structure_of

ALL = examples.EXAMPLES + examples.SUBSAMPLED


def build(example):
    records, _ = as_records(example.data)
    return NumPyroModel(example.model, structure_of(records)), records


def point(model, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=model.dimension), dtype=jnp.result_type(float))


def total(model, z, records):
    return model.log_prior(z) + jnp.sum(jax.vmap(model.log_likelihood, (None, 0))(z, records))


def rows(model, z, records):
    return jax.jit(jax.vmap(model.log_likelihood, (None, 0)))(z, records)


def numpyro_log_joint(example, model, z, records):
    args = records if isinstance(records, tuple) else () if isinstance(records, dict) else (records,)
    kwargs = records if isinstance(records, dict) else {}
    parameters = {site.name: site.of(z) for site in model.sites}
    with jax.numpy_dtype_promotion("standard"):
        return -potential_energy(example.model, args, kwargs, parameters)


@pytest.mark.parametrize("example", examples.EXAMPLES, ids=lambda e: e.name)
def test_prior_plus_rows_is_the_negative_potential_energy(example, x64):
    model, records = build(example)
    z = point(model)
    ours, gradient = jax.jit(jax.value_and_grad(lambda v: total(model, v, records)))(z)
    theirs, expected = jax.jit(jax.value_and_grad(lambda v: numpyro_log_joint(example, model, v, records)))(z)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("example", examples.SUBSAMPLED, ids=lambda e: e.name)
def test_a_subsampling_plate_leaves_no_scale_on_a_record(example):
    plain, records = build(examples.Example("logistic", examples.logistic, example.data))
    model, _ = build(example)
    z = point(model)
    np.testing.assert_allclose(model.log_prior(z), plain.log_prior(z), rtol=1e-6)
    np.testing.assert_allclose(rows(model, z, records), rows(plain, z, records), rtol=1e-6)


@pytest.mark.parametrize("example", ALL, ids=lambda e: e.name)
def test_constrain_and_unconstrain_are_inverse(example):
    model, _ = build(example)
    assert isinstance(model, Model)
    z = point(model, seed=3)
    values = jax.jit(model.constrain)(z)
    assert {name: value.shape for name, value in values.items()} == {site.name: site.shape for site in model.sites}
    np.testing.assert_allclose(jax.jit(model.unconstrain)(values), z, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("example", ALL, ids=lambda e: e.name)
def test_batch_terms_equal_single_terms(example):
    model, records = build(example)
    z = point(model)
    terms = jax.jit(model.record_terms)(z, records)
    np.testing.assert_allclose(terms, rows(model, z, records), rtol=1e-4, atol=1e-5)


def test_sites_follow_the_order_of_the_model():
    model, _ = build(examples.Example("dynamic", examples.dynamic, examples.Y_REAL))
    assert [(site.name, site.offset) for site in model.sites] == [
        ("low", 0),
        ("high", 1),
        ("share", 2),
        ("cholesky", 3),
    ]
    assert [site.support is None for site in model.sites] == [False, True, True, False]
    assert model.dimension == 4


def test_constant_array_bounds_are_static():
    model, _ = build(examples.Example("bounded", examples.bounded, examples.Y_REAL))
    assert all(site.support is not None for site in model.sites)
    values = model.constrain(jnp.full((4,), 30.0))
    np.testing.assert_allclose(values["rates"], [1.0, 2.0], rtol=1e-5)


def test_missing_responses_drop_out():
    def model(y, seen):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y, obs_mask=seen)

    ready, _ = build(examples.Example("obs_mask", model, (examples.Y_REAL, examples.MASK)))
    z = jnp.array([0.3])
    assert [site.name for site in ready.sites] == ["mean"]
    record = (jnp.float32(1.0), jnp.array(True))
    np.testing.assert_allclose(ready.log_likelihood(z, record), dist.Normal(0.3, 1.0).log_prob(1.0), rtol=1e-6)
    assert ready.log_likelihood(z, (jnp.float32(1.0), jnp.array(False))) == 0.0


def test_a_mask_or_scale_on_a_latent_keeps_the_log_determinant():
    def model(y):
        with numpyro.handlers.mask(mask=False):
            scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(0.0, scale), obs=y)

    ready, _ = build(examples.Example("flat", model, examples.Y_REAL))
    np.testing.assert_allclose(ready.log_prior(jnp.array([0.7])), 0.7, rtol=1e-6)


def test_a_scale_column_of_zeros_does_not_stop_the_prior():
    def model(y, error):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(mean, error), obs=y)

    ready, _ = build(examples.Example("known_error", model, (examples.Y_REAL, np.ones(examples.N))))
    assert jnp.isfinite(ready.log_prior(jnp.zeros(1)))


def test_latents_inside_numpyro_scan(x64):
    from numpyro.contrib.control_flow import scan

    def model(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))

        def step(level, _):
            level = numpyro.sample("level", dist.LogNormal(0.1 * level, scale))
            return level, level

        levels = scan(step, jnp.zeros(()), None, length=4)[1]
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(levels.sum(), 1.0), obs=y)

    example = examples.Example("scan", model, examples.Y_REAL)
    ready, records = build(example)
    z = point(ready)
    ours = jax.jit(lambda v: total(ready, v, records))(z)
    np.testing.assert_allclose(ours, numpyro_log_joint(example, ready, z, records), rtol=1e-10)


def test_the_jaxpr_of_a_record_is_lean():
    model, _ = build(examples.Example("logistic", examples.logistic, (examples.X, examples.Y_BIT)))
    record = (jnp.zeros(3), jnp.int32(1))
    text = str(jax.make_jaxpr(model.log_likelihood)(jnp.zeros(3), record))
    assert text.count("dot_general") == 1
    for junk in ("random", "threefry", "gather", "scan", "reduce_sum", "dynamic_slice", "sort"):
        assert junk not in text


def test_compiled_gradients_cost_no_more_flops_than_by_hand():
    d, batch = 200, 16
    structure = (jax.ShapeDtypeStruct((d,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32))
    model = NumPyroModel(examples.logistic, structure)

    def by_hand(w, record):
        x, y = record
        logit = x @ w
        return y.astype(jnp.float32) * logit - jnp.logaddexp(0.0, logit)

    def flops(log_likelihood):
        gradients = jax.jit(jax.vmap(jax.grad(log_likelihood), (None, 0)))
        rows = (jnp.zeros((batch, d)), jnp.zeros(batch, dtype=jnp.int32))
        return gradients.lower(jnp.zeros(d), rows).compile().cost_analysis()["flops"]

    assert flops(model.log_likelihood) < 1.2 * flops(by_hand)


@pytest.mark.parametrize("z", [jnp.zeros(2), jnp.zeros((3, 3)), jnp.zeros(())])
def test_a_vector_of_the_wrong_length_is_refused(z):
    model, _ = build(examples.Example("logistic", examples.logistic, (examples.X, examples.Y_BIT)))
    for function in (model.log_prior, model.constrain):
        with pytest.raises(ValueError, match="z must be one vector of length 3"):
            function(z)


def test_values_of_the_wrong_shape_are_refused():
    model, _ = build(examples.Example("dynamic", examples.dynamic, examples.Y_REAL))
    with pytest.raises(ValueError, match="'low' is missing"):
        model.unconstrain({})
    with pytest.raises(ValueError, match="must have shape"):
        model.unconstrain({"low": jnp.zeros(2)})


def test_a_support_without_a_bijection_is_refused():
    def model(y):
        direction = numpyro.sample("direction", dist.ProjectedNormal(jnp.zeros(2)))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(direction.sum(), 1.0), obs=y)

    with pytest.raises(ModelError, match="'direction' must have a support with a bijection"):
        build(examples.Example("sphere", model, examples.Y_REAL))
