"""Networks of flax, flax's nnx and equinox in guide and model, through ``numpyro.contrib.module``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.module import eqx_module, flax_module, nnx_module, random_flax_module
from numpyro.infer.autoguide import AutoNormal
from support.guide_models import LATENT, PIXELS, WIDTH
from support.small_models import private_plan

import dpvi
from dpvi.models.numpyro.guides.check import check_guide

NUM_PARAMETERS = (WIDTH + 1) * 2 * LATENT + (LATENT + 1) * WIDTH


def pair(encoder, decoder):
    """A variational auto-encoder from two functions that make networks inside a NumPyro program."""

    def model(x):
        decode = decoder()
        with numpyro.plate("records", x.shape[0]):
            code = numpyro.sample("code", dist.Normal(0.0, 1.0).expand([LATENT]).to_event(1))
            numpyro.sample("x", dist.Bernoulli(logits=decode(code)).to_event(1), obs=x)

    def guide(x):
        encode = encoder()
        with numpyro.plate("records", x.shape[0]):
            location, scale = jnp.split(encode(x), 2, axis=-1)
            numpyro.sample("code", dist.Normal(location, jnp.exp(0.1 * scale)).to_event(1))

    return model, guide


def flax_pair():
    linen = pytest.importorskip("flax.linen", reason="flax is in the extra 'deep'")
    return pair(
        lambda: flax_module("encoder", linen.Dense(2 * LATENT), input_shape=(WIDTH,)),
        lambda: flax_module("decoder", linen.Dense(WIDTH), input_shape=(LATENT,)),
    )


def nnx_pair():
    nnx = pytest.importorskip("flax.nnx", reason="flax is in the extra 'deep'")
    encoder, decoder = (nnx.Linear(*sizes, rngs=nnx.Rngs(0)) for sizes in ((WIDTH, 2 * LATENT), (LATENT, WIDTH)))
    return pair(lambda: nnx_module("encoder", encoder), lambda: nnx_module("decoder", decoder))


def equinox_pair():
    nn = pytest.importorskip("equinox.nn", reason="equinox is in the extra 'deep'")
    sizes = ((WIDTH, 2 * LATENT), (LATENT, WIDTH))
    encoder, decoder = (nn.Linear(*each, key=jax.random.key(0)) for each in sizes)
    return pair(
        lambda: jax.vmap(eqx_module("encoder", encoder)),
        lambda: jax.vmap(eqx_module("decoder", decoder)),
    )


@pytest.mark.parametrize("make", [flax_pair, nnx_pair, equinox_pair])
def test_a_network_is_fitted_stored_and_reloaded(make, tmp_path):
    model, guide = make()
    result = dpvi.fit(model, PIXELS, private_plan(5), guide=guide, seed=0, progress=False)
    assert result.trace.iterates.shape == (5, NUM_PARAMETERS)
    assert np.all(result.trace.final != result.trace.iterates[0])
    path = tmp_path / "result.npz"
    result.save(path)
    stored = dpvi.Result.load(path, model=model, guide=guide).posterior("last").params
    expected = result.posterior("last").params
    assert set(stored) == {"encoder$params", "decoder$params"}
    for one, other in zip(jax.tree.leaves(stored), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_with_a_prior_leave_a_parameter_behind_and_the_sentence_says_how_to_hide_it():
    linen = pytest.importorskip("flax.linen", reason="flax is in the extra 'deep'")

    def model(x):
        network = random_flax_module("network", linen.Dense(1), dist.Normal(0.0, 1.0), input_shape=(WIDTH - 1,))
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("x", dist.Normal(network(x[:, 1:])[:, 0], 1.0), obs=x[:, 0])

    with pytest.raises(dpvi.ModelError, match=r"hide=\['network\$params'\]"):
        check_guide(model, AutoNormal(model), PIXELS)
    hidden = handlers.block(model, hide=["network$params"])
    ready = check_guide(hidden, AutoNormal(hidden), PIXELS)
    assert [site.name for site in ready.sites] == ["network/bias", "network/kernel"]
    assert ready.num_parameters == 2 * WIDTH
