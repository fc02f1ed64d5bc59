"""Models with guides that users write: amortised local latents, shared latents, parameters in the model."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

WIDTH, LATENT = 5, 2
PIXELS = np.random.default_rng(5).integers(0, 2, (7, WIDTH)).astype(float)


def _weights(name, shape):
    return numpyro.param(name, lambda key: 0.3 * jax.random.normal(key, shape))


def _vae(x, records):
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    decoder = _weights("decoder", (LATENT, x.shape[1]))
    with records:
        code = numpyro.sample("code", dist.Normal(0.0, 1.0).expand([LATENT]).to_event(1))
        numpyro.sample("x", dist.Bernoulli(logits=jnp.tanh(code) @ decoder + shift).to_event(1), obs=x)


def _vae_guide(x, records):
    location = numpyro.param("shift_location", 0.1)
    spread = numpyro.param("shift_spread", 0.5, constraint=constraints.positive)
    numpyro.sample("shift", dist.Normal(location, spread))
    encoder, widths = _weights("encoder", (x.shape[1], LATENT)), _weights("widths", (x.shape[1], LATENT))
    with records:
        numpyro.sample("code", dist.Normal(x @ encoder, jnp.exp(jnp.tanh(x @ widths) - 1.0)).to_event(1))


def vae(x):
    """A decoder that is a parameter, a latent per record and a shift that all records share."""
    _vae(x, numpyro.plate("records", x.shape[0]))


def vae_guide(x):
    _vae_guide(x, numpyro.plate("records", x.shape[0]))


def subsampled_vae(x):
    """The same with a plate that subsamples, as a script for NumPyro's SVI has it."""
    _vae(x, numpyro.plate("records", 1000, subsample_size=x.shape[0]))


def subsampled_vae_guide(x):
    _vae_guide(x, numpyro.plate("records", 1000, subsample_size=x.shape[0]))


def _two_codes(x, first, second, scale=1.0, tails=dist.Normal):
    """Two latents of a record, drawn in the order given; the later one is drawn around the earlier."""
    decoder = _weights("decoder", (2, x.shape[1]))
    with numpyro.plate("records", x.shape[0]), handlers.scale(scale=scale):
        one = numpyro.sample(first, tails(0.0, 1.0))
        other = numpyro.sample(second, tails(one, 1.0))
        codes = jnp.stack([one, other] if first == "a" else [other, one], axis=-1)
        numpyro.sample("x", dist.Bernoulli(logits=codes @ decoder).to_event(1), obs=x)


def _two_codes_guide(x, scale=1.0):
    encoder = _weights("encoder", (x.shape[1], 2))
    with numpyro.plate("records", x.shape[0]), handlers.scale(scale=scale):
        a = numpyro.sample("a", dist.Normal((x @ encoder)[:, 0], 0.5))
        numpyro.sample("b", dist.Normal((x @ encoder)[:, 1] + 0.3 * a, 0.5))


def _loop(x):
    """Two latents a pixel in turn: a_t around the last b, b_t around a_t."""
    decoder = _weights("decoder", (x.shape[1],))

    def step(last, _):
        with numpyro.plate("records", x.shape[0]):
            a = numpyro.sample("a", dist.Normal(1.5 * last, 1.0))
            b = numpyro.sample("b", dist.Normal(0.5 * a, 1.0))
        return b, b

    _, codes = scan(step, jnp.zeros(x.shape[0]), jnp.arange(x.shape[1]))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("x", dist.Bernoulli(logits=decoder * codes.T).to_event(1), obs=x)


def _loop_guide(x):
    """All of a first, and then b around the a that follows it, as no order of names tells."""
    weight, pull = _weights("weight", ()), _weights("pull", ())
    with numpyro.plate("pixels", x.shape[1], dim=-2), numpyro.plate("records", x.shape[0], dim=-1):
        a = numpyro.sample("a", dist.Normal(weight * x.T, 0.5))
        numpyro.sample("b", dist.Normal(pull * jnp.roll(a, -1, axis=0), 0.5))


def _masked(function, mask):
    return lambda *args: handlers.mask(function, mask=jnp.asarray(mask))(*args)


_IN_ORDER = partial(_two_codes, first="a", second="b")
# model, guide, and the latents of a record whose divergence has a closed form
DIVERGENCES = {
    "one latent": (vae, vae_guide, ("code",)),
    "two latents": (_IN_ORDER, _two_codes_guide, ("a", "b")),
    "another order": (partial(_two_codes, first="b", second="a"), _two_codes_guide, ("b",)),
    "loop": (_loop, _loop_guide, ("b",)),
    "scaled": (partial(_IN_ORDER, scale=0.5), partial(_two_codes_guide, scale=0.5), ()),
    "no formula": (partial(_IN_ORDER, tails=dist.Laplace), _two_codes_guide, ()),
    "masked": (_masked(_IN_ORDER, True), _masked(_two_codes_guide, True), ()),
}


def mean(y):
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)


def mean_guide(y):
    location, spread = numpyro.param("location", 0.0), numpyro.param("spread", 1.0, constraint=constraints.positive)
    numpyro.sample("centre", dist.Normal(location, spread))
