"""Deterministic sites of the parameters are part of a posterior; those of records are not."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.autoguide import AutoNormal
from support.small_models import location_model, private_plan

from dpvi.models.numpyro import NumPyroModel
from dpvi.models.numpyro.deterministic import deterministic_sites
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.models.sites import StaticBijections
from dpvi.posterior import Gaussian, Posterior

ONE = jax.ShapeDtypeStruct((), jnp.dtype("float32"))
GUARANTEE = private_plan(5).guarantee


def model(y):
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    numpyro.deterministic("ratio", centre / spread)
    numpyro.deterministic("pair", jnp.stack([centre, -centre]))
    numpyro.deterministic("total", centre * y.shape[0])
    numpyro.deterministic("each", jnp.full(y.shape[0], centre))
    with numpyro.plate("records", y.shape[0]):
        numpyro.deterministic("residual", y - centre)
        numpyro.sample("y", dist.Normal(centre, spread), obs=y)


def local(y):
    centre = numpyro.sample("centre", dist.Normal(numpyro.param("start", 0.5), 1.0))
    numpyro.deterministic("twice", 2 * centre + numpyro.param("start", 0.5))
    with numpyro.plate("records", y.shape[0]):
        code = numpyro.sample("code", dist.Normal(centre, 1.0))
        numpyro.deterministic("of a draw", code.sum())
        numpyro.sample("y", dist.Normal(code, 1.0), obs=y)


def local_guide(y):
    numpyro.sample("centre", dist.Normal(numpyro.param("location", 0.1), 0.5))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("code", dist.Normal(numpyro.param("slope", 0.3) * y, 1.0))


def test_what_reads_records_or_their_number_is_left_out():
    derived = deterministic_sites(NumPyroModel(model, ONE))
    values = derived(jnp.array([0.6, jnp.log(2.0)]))
    assert list(values) == ["pair", "ratio"]
    np.testing.assert_allclose(values["ratio"], 0.3, rtol=1e-6)


def test_a_posterior_has_them_after_the_latent_sites():
    ready = NumPyroModel(model, ONE)
    gaussian = Gaussian(np.array([1.0, 0.0], np.float32), np.array([0.1, 0.1], np.float32))
    posterior = Posterior(gaussian, ready, "average", GUARANTEE)
    draws = posterior.sample(30, jax.random.key(1))
    assert {name: draw.shape for name, draw in draws.items()} == {
        "centre": (30,), "spread": (30,), "pair": (30, 2), "ratio": (30,)
    }  # fmt: skip
    np.testing.assert_allclose(draws["ratio"], draws["centre"] / draws["spread"], rtol=1e-5)
    assert posterior.summary(num_samples=20).names == ("centre", "spread", "pair[0]", "pair[1]", "ratio")
    assert set(posterior.to_arviz(5)["posterior"]) == set(draws)
    assert set(posterior.sample(3, deterministic=False)) == {"centre", "spread"}
    assert set(posterior.quantile(0.5, 20)) == set(draws)
    assert set(pickle.loads(pickle.dumps(posterior)).sample(3)) == set(draws)
    loaded = Posterior(gaussian, StaticBijections(ready.sites), "average", GUARANTEE)
    assert set(loaded.sample(3)) == {"centre", "spread"}


def test_predictions_compute_them_again_at_new_records():
    ready = NumPyroModel(model, ONE)
    gaussian = Gaussian(np.array([1.0, 0.0], np.float32), np.array([0.1, 0.1], np.float32))
    drawn = Posterior(gaussian, ready, "average", GUARANTEE).predict(model, jnp.zeros(4), num_samples=6)
    assert drawn["residual"].shape == (6, 4)
    assert drawn["ratio"].shape == (6,)


def test_parameters_of_guide_and_model_count_and_draws_of_records_do_not():
    ready = GuidedModel(local, local_guide, ONE)
    xi = ready.initial(jax.random.key(0))
    derived = deterministic_sites(ready, xi)
    values = derived(jnp.array([2.0]))
    assert list(values) == ["twice"]
    np.testing.assert_allclose(values["twice"], 4.5, rtol=1e-6)


def test_models_without_such_sites_have_none():
    def plain(y):
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)

    assert deterministic_sites(NumPyroModel(plain, ONE)) is None
    assert deterministic_sites(GuidedModel(plain, AutoNormal(plain), ONE), jnp.zeros(2)) is None
    assert deterministic_sites(location_model()) is None
