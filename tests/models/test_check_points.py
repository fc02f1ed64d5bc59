"""Where a model is tried: near zero, where a run was told to start, and at draws from its prior."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.module import nnx_module, random_flax_module, random_nnx_module
from support.small_models import private_plan

import dpvi
from dpvi.models.base import ModelError
from dpvi.models.check import check

Y = np.linspace(-1.0, 1.0, 20)
X = np.linspace(0.0, 1.0, 40).reshape(20, 2)


def far_from_zero(y):
    width = numpyro.sample("width", dist.Normal(30.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(width - 10.0)), obs=y)


def without_a_prior_draw(y):
    width = numpyro.sample("width", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(width - 10.0)), obs=y)


def coupled_far_from_zero(y):
    width = numpyro.sample("width", dist.Normal(30.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(y.mean(), jnp.sqrt(width - 10.0)), obs=y)


def test_a_density_that_is_finite_at_prior_draws_alone_passes_and_says_where_to_start():
    with pytest.warns(dpvi.ModelNotice, match="pass initial_location="):
        check(far_from_zero, Y)
    check(far_from_zero, Y, initial_location={"width": 30.0})  # there is nothing to say


def test_a_density_that_is_finite_where_a_run_starts_passes():
    with pytest.raises(ModelError, match="neither near z = 0 nor at draws from the prior"):
        check(without_a_prior_draw, Y)
    check(without_a_prior_draw, Y, initial_location=np.array([30.0]))
    plan = private_plan(num_steps=2)
    dpvi.fit(without_a_prior_draw, Y, plan, initial_location={"width": 30.0}, progress=False)


def test_coupling_is_looked_for_where_the_density_is_finite():
    with pytest.raises(ModelError, match="Records are coupled"):
        check(coupled_far_from_zero, Y, initial_location={"width": 30.0})


def networks():
    linen = pytest.importorskip("flax.linen", reason="flax is in the extra 'deep'")
    nnx = pytest.importorskip("flax.nnx", reason="flax is in the extra 'deep'")
    normal, module = dist.Normal(0.0, 1.0), nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    return {
        "flax": lambda: random_flax_module("net", linen.Dense(1), prior=normal, input_shape=(2,)),
        "nnx": lambda: random_nnx_module("net", module, prior=normal),
        "part": lambda: random_flax_module("net", linen.Dense(1), prior={"kernel": normal}, input_shape=(2,)),
        "none": lambda: nnx_module("net", module),
    }


def through(make):
    def model(x, y):
        net = make()
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("y", dist.Normal(net(x)[:, 0], 1.0), obs=y)

    return model


@pytest.mark.parametrize("kind", ["flax", "nnx"])
def test_a_network_whose_weights_have_priors_needs_no_guide(kind):
    ready = check(through(networks()[kind]), (X, Y))
    assert sorted(site.name for site in ready.sites) == ["net/bias", "net/kernel"]
    assert ready.dimension == 3


def test_a_network_with_weights_without_a_prior_is_refused():
    with pytest.raises(ModelError, match="Some parameters of the network 'net' have no prior"):
        check(through(networks()["part"]), (X, Y))
    with pytest.raises(ModelError, match=r"'net\$params' is a numpyro\.param .* random_flax_module"):
        check(through(networks()["none"]), (X, Y))
