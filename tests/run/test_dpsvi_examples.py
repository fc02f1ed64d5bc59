"""Models and guides after d3p's four examples, in our own words, through ``DPSVI`` as they are.

Each has the answer of its formula or of an exact sampler within what the noise allows, or a warning says why not.
"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax.nn import log_sigmoid, sigmoid, softplus
from numpyro import handlers
from numpyro.distributions import constraints

import dpvi
from dpvi.declared.validation import ConvergenceWarning, IntervalWarning

pytestmark = pytest.mark.filterwarnings("ignore::dpvi.PrivacyWarning")  # of seeds and of a large ε

_random = np.random.default_rng(0)
N = 2000
X = _random.normal(size=(N, 2)).astype(np.float32)
BITS = (_random.random(N) < 1 / (1 + np.exp(-(X @ np.array([1.0, -0.7]) + 0.5)))).astype(np.int32)
POINTS = (np.array([0.8, -0.3]) + np.sqrt(0.1) * _random.normal(size=(N, 2))).astype(np.float32)
CENTRES = np.array([[-6.0, -6.0], [6.0, 6.0], [-2.0, 3.0]])
MIXED = (CENTRES[_random.integers(0, 3, N)] + 0.5 * _random.normal(size=(N, 2))).astype(np.float32)
IMAGES = (_random.random((600, 4, 4)) < np.where(_random.random((600, 1, 1)) < 0.5, 0.9, 0.1)).astype(np.float32)


def plan(num_steps, clip_norm, sampling_rate=0.1, noise_multiplier=1.0):
    return dpvi.plan(
        noise_multiplier=noise_multiplier,
        delta=1e-6,
        sampling_rate=sampling_rate,
        num_steps=num_steps,
        clip_norm=clip_norm,
    )


def trained(model, guide, data, plan, rate=0.05, **constants):
    """What was run, and what was said of it."""
    svi = dpvi.DPSVI(model, guide, optax.adam(rate), plan=plan, **constants)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ran = svi.run(jax.random.key(5), *data, progress_bar=False)
        draws = ran.result.posterior().sample(1000, key=jax.random.key(6))
    return ran, draws, {each.category for each in said}


def logistic(batch_x, batch_y=None, num_obs_total=None):
    batch_size, size = jnp.shape(batch_x)
    total = batch_size if num_obs_total is None else num_obs_total
    w = numpyro.sample("w", dist.Normal(jnp.zeros(size), jnp.ones(size)))
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    with numpyro.plate("batch", total, batch_size):
        return numpyro.sample("obs", dist.Bernoulli(logits=batch_x @ w + intercept), obs=batch_y)


def logistic_guide(batch_x, batch_y=None, num_obs_total=None):
    size = jnp.shape(batch_x)[1]
    spread = jnp.exp(numpyro.param("w_std_log", jnp.zeros(size)))
    numpyro.sample("w", dist.Normal(numpyro.param("w_loc", jnp.zeros(size)), spread))
    spread = jnp.exp(numpyro.param("intercept_std_log", 0.0))
    numpyro.sample("intercept", dist.Normal(numpyro.param("intercept_loc", 0.0), spread))


def laplace():
    """Mode and standard deviations of the logistic regression."""
    design, theta = np.column_stack([X, np.ones(N)]).astype(float), np.zeros(3)
    for _ in range(30):
        share = 1 / (1 + np.exp(-design @ theta))
        precision = design.T @ (design * (share * (1 - share))[:, None]) + np.eye(3)
        theta = theta + np.linalg.solve(precision, design.T @ (BITS - share) - theta)
    return theta, np.sqrt(np.diag(np.linalg.inv(precision)))


@pytest.mark.parametrize(("num_steps", "clip_norm"), [(500, 8.0), (60, 1.0)], ids=["enough steps", "too few"])
def test_a_logistic_regression_is_right_or_says_why_not(num_steps, clip_norm):
    mode, sds = laplace()
    _, draws, said = trained(logistic, logistic_guide, (X, BITS), plan(num_steps, clip_norm), num_obs_total=N)
    means = np.array([*np.asarray(draws["w"]).mean(0), np.asarray(draws["intercept"]).mean()])
    right = np.all(np.abs(means - mode) < 4 * sds)  # noise of about one standard deviation on top of the posterior's
    assert right or ConvergenceWarning in said
    assert right == (num_steps == 500)  # the first says nothing wrong by being silent, the second is wrong and warns


def points(obs=None, num_obs_total=None, d=None):
    batch_size = jnp.shape(obs)[0]
    total = batch_size if num_obs_total is None else num_obs_total
    mu = numpyro.sample("mu", dist.Normal(jnp.zeros((jnp.shape(obs)[1],)), 1.0))
    with numpyro.plate("batch", total, batch_size):
        law = dist.Normal(mu, np.sqrt(0.1)).to_event(1)
        numpyro.sample("obs", law, obs=obs, sample_shape=(batch_size,))


def points_guide(obs=None, num_obs_total=None, d=None):
    spread = jnp.exp(numpyro.param("mu_std_log", jnp.zeros(d)))
    numpyro.sample("mu", dist.Normal(numpyro.param("mu_loc", jnp.zeros(d)), spread))


def test_a_normal_mean_has_its_formula():
    _, draws, _ = trained(points, points_guide, (POINTS,), plan(500, 20.0), d=2)
    precision = 1 + N / 0.1
    exact, sd = POINTS.sum(0) / 0.1 / precision, 1 / np.sqrt(precision)
    # σC/κ = 200 of noise on a gradient, averaged over some hundred steps, over the precision: about twice the sd
    np.testing.assert_allclose(np.asarray(draws["mu"]).mean(0), exact, atol=6 * sd)


class Mixture(dist.Distribution):
    """A mixture of normals with its components summed out, a class of the user's own."""

    support = constraints.real_vector

    def __init__(self, means, spreads, shares):
        self.means, self.spreads, self.shares = means, spreads, shares
        super().__init__(batch_shape=(), event_shape=(means.shape[-1],))

    def log_prob(self, value):
        inside = dist.Normal(self.means, self.spreads).log_prob(value[..., None, :]).sum(-1)
        return jax.nn.logsumexp(inside + jnp.log(self.shares), axis=-1)


def mixture(k, obs=None, num_obs_total=None):
    batch_size, size = jnp.shape(obs)
    total = batch_size if num_obs_total is None else num_obs_total
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(k)))
    means = numpyro.sample("means", dist.Normal(jnp.zeros((k, size)), 10.0))
    spreads = numpyro.sample("spreads", dist.InverseGamma(1.0, 1.0), sample_shape=jnp.shape(means))
    with numpyro.plate("batch", total, batch_size):
        numpyro.sample("obs", Mixture(means, spreads, shares), obs=obs, sample_shape=(batch_size,))


def mixture_guide(k, obs=None, num_obs_total=None):
    size = jnp.shape(obs)[1]
    numpyro.sample("shares", dist.Dirichlet(jnp.exp(numpyro.param("alpha_log", jnp.zeros(k)))))
    means = numpyro.sample("means", dist.Normal(numpyro.param("means_loc", jnp.zeros((k, size))), 1.0))
    numpyro.sample("spreads", dist.InverseGamma(1.0, 1.0), sample_shape=jnp.shape(means))


def test_a_mixture_with_a_law_of_its_own_finds_its_modes():
    ran, _, _ = trained(mixture, mixture_guide, (3, MIXED), plan(400, 20.0), rate=0.1)
    found = np.asarray(ran.params["means_loc"])
    for centre in CENTRES:
        assert np.min(np.linalg.norm(found - centre, axis=1)) < 1.5  # at the start all are at zero, 3.6 or more away


def dense(size):
    """A layer as pairs of functions, as jax.example_libraries.stax makes them."""

    def start(key, shape):
        return (*shape[:-1], size), (0.3 * jax.random.normal(key, (shape[-1], size)), jnp.zeros(size))

    return start, lambda params, inputs: inputs @ params[0] + params[1]


def decoder(hidden, size):
    (first, apply_first), (second, apply_second) = dense(hidden), dense(size)

    def start(key, shape):
        one, two = jax.random.split(key)
        shape, a = first(one, shape)
        shape, b = second(two, shape)
        return shape, (a, b)

    return start, lambda params, inputs: sigmoid(apply_second(params[1], softplus(apply_first(params[0], inputs))))


def encoder(hidden, size):
    (first, apply_first), (second, apply_second) = dense(hidden), dense(2 * size)

    def start(key, shape):
        one, two = jax.random.split(key)
        shape, a = first(one, shape)
        shape, b = second(two, shape)
        return shape, (a, b)

    def run(params, inputs):
        both = apply_second(params[1], softplus(apply_first(params[0], inputs)))
        return both[..., :size], jnp.exp(both[..., size:])

    return start, run


def images(batch, z_dim, hidden, num_obs_total=None):
    batch_size = jnp.shape(batch)[0]
    flat = jnp.reshape(batch, (batch_size, -1))
    decode = numpyro.module("decoder", decoder(hidden, flat.shape[1]), (batch_size, z_dim))
    with numpyro.plate("batch", num_obs_total or batch_size, batch_size):
        z = numpyro.sample("z", dist.Normal(jnp.zeros((z_dim,)), jnp.ones((z_dim,))).to_event(1))
        numpyro.sample("obs", dist.Bernoulli(jnp.clip(decode(z), 1e-5, 1 - 1e-5)).to_event(1), obs=flat)


def images_guide(batch, z_dim, hidden, num_obs_total=None):
    batch_size = jnp.shape(batch)[0]
    flat = jnp.reshape(batch, (batch_size, -1))
    encode = numpyro.module("encoder", encoder(hidden, z_dim), (batch_size, flat.shape[1]))
    with numpyro.plate("batch", num_obs_total or batch_size, batch_size):
        loc, spread = encode(flat)
        numpyro.sample("z", dist.Normal(loc, spread).to_event(1))


def reconstruction(params):
    """Mean log-density of the images given the means of their codes."""
    flat = jnp.reshape(jnp.asarray(IMAGES), (len(IMAGES), -1))
    codes, _ = encoder(8, 1)[1](params["encoder$params"], flat)
    logits = jax.scipy.special.logit(jnp.clip(decoder(8, 16)[1](params["decoder$params"], codes), 1e-5, 1 - 1e-5))
    return float(jnp.mean(jnp.sum(flat * log_sigmoid(logits) + (1 - flat) * log_sigmoid(-logits), axis=1)))


def test_an_auto_encoder_learns_and_the_scaled_one_is_warned_of():
    settings = plan(150, 5.0, sampling_rate=0.2, noise_multiplier=0.7)
    ran, _, _ = trained(images, images_guide, (IMAGES,), settings, rate=0.02, z_dim=1, hidden=8)
    shares = IMAGES.mean(0).ravel()
    nothing = float(np.sum(shares * np.log(shares) + (1 - shares) * np.log(1 - shares)))
    assert reconstruction(ran.params) > nothing + 2.0  # pixels alone, without a code, reach ``nothing``, −11
    scaled = [handlers.scale(each, 1.0 / len(IMAGES)) for each in (images, images_guide)]
    svi = dpvi.DPSVI(*scaled, optax.adam(0.02), plan=settings, z_dim=1, hidden=8)
    with pytest.warns(IntervalWarning, match=r"because of handlers\.scale"):
        svi.run(jax.random.key(5), IMAGES, progress_bar=False)
