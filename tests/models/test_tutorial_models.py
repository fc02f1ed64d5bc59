"""Models after NumPyro's and Stan's tutorials, in our own words: which pass as they are, and why others do not.

Each is checked and none is fitted, so that the table stays cheap. A verdict is ``FITS``, or a part of the sentence that
refuses the model.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from dpvi.models.base import ModelError
from dpvi.models.check import check

FITS = None
N = 30
_random = np.random.default_rng(0)
X, Y, T = _random.normal(size=(N, 3)), _random.normal(size=N), np.linspace(0.0, 1.0, N)
BITS, COUNTS = _random.integers(0, 2, N), _random.poisson(2.0, N)
SCHOOL, GRADES = _random.integers(0, 4, N), _random.integers(0, 3, N)
SERIES, LABELS = _random.normal(size=(N, 6)), _random.integers(0, 2, (N, 4))
POSITIVE = 1.0 + _random.exponential(size=N)


def normal(name, scale=1.0, shape=()):
    return numpyro.sample(name, dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))


def linear(x, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(normal("a") + x @ normal("w", 1.0, (3,)), scale), obs=y)


def robust(x, y):
    freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
    numpyro.sample("y", dist.StudentT(freedom, x @ normal("w", 1.0, (3,)), 1.0), obs=y)


def logistic(x, y):
    numpyro.sample("y", dist.Bernoulli(logits=x @ normal("w", 1.0, (3,))), obs=y)


def poisson(x, y):
    numpyro.sample("y", dist.Poisson(jnp.exp(x @ normal("w", 0.3, (3,)))), obs=y)


def zero_inflated(x, y):
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    numpyro.sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(x @ normal("w", 0.3, (3,)))), obs=y)


def ordinal(x, y):
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(
        dist.Normal(0.0, 1.0).expand([2]).to_event(1), dist.transforms.OrderedTransform()))  # fmt: skip
    numpyro.sample("y", dist.OrderedLogistic(x @ normal("w", 1.0, (3,)), cuts), obs=y)


def horseshoe(x, y):
    shrink = numpyro.sample("shrink", dist.HalfCauchy(1.0))
    local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ (shrink * local * normal("w", 1.0, (3,))), 1.0), obs=y)


def network(x, y):
    hidden = jnp.tanh(x @ normal("first", 1.0, (3, 5)))
    numpyro.sample("y", dist.Normal((hidden @ normal("second", 1.0, (5, 1)))[:, 0], 1.0), obs=y)


def varying_intercepts(school, y, num_schools):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("schools", num_schools):
        effect = numpyro.sample("effect", dist.Normal(normal("mean"), spread))
    with numpyro.plate("pupils", len(y)):
        numpyro.sample("y", dist.Normal(effect[school], 1.0), obs=y)


def basis_functions(t, y):
    frequencies = jnp.arange(1, 6)
    basis = jnp.sin(jnp.pi * frequencies * t[:, None])
    numpyro.sample("y", dist.Normal(basis @ normal("weights", 1.0, (5,)), 0.3), obs=y)


def survival(x, y, event):
    rate = jnp.exp(x @ normal("w", 0.3, (3,)))
    with numpyro.plate("people", len(y)), numpyro.handlers.mask(mask=event > 0):
        numpyro.sample("died", dist.Exponential(rate), obs=y)
    with numpyro.plate("alive", len(y)):
        numpyro.factor("survived", jnp.where(event > 0, 0.0, -rate * y))


def truncated(y):
    numpyro.sample("y", dist.LeftTruncatedDistribution(dist.Normal(normal("mean"), 1.0), low=0.5), obs=y)


def multivariate(x):
    factor = numpyro.sample("factor", dist.LKJCholesky(3, 2.0))
    numpyro.sample("x", dist.MultivariateNormal(normal("mean", 1.0, (3,)), scale_tril=factor), obs=x)


def series_of_each(series):
    """One autoregression per record, time along its own axis."""
    slope = normal("slope", 0.5)
    with numpyro.plate("people", series.shape[0], dim=-2), numpyro.plate("time", 5, dim=-1):
        numpyro.sample("later", dist.Normal(slope * series[:, :-1], 1.0), obs=series[:, 1:])


def soft_clusters(x):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("clusters", 2):
        centre = numpyro.sample("centre", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    with numpyro.plate("people", x.shape[0]):
        cluster = numpyro.sample("cluster", dist.Categorical(weights))
        numpyro.sample("x", dist.Normal(centre[cluster], 1.0).to_event(1), obs=x)


def raters(labels):
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    with numpyro.plate("raters", 4, dim=-1):
        right = numpyro.sample("right", dist.Beta(8.0, 2.0))
    with numpyro.plate("items", labels.shape[0], dim=-2):
        truth = numpyro.sample("truth", dist.Bernoulli(share))
        numpyro.sample("labels", dist.Bernoulli(jnp.where(truth == 1, right, 1 - right)), obs=labels)


def hidden_chain(series):
    centres = normal("centres", 2.0, (2,))
    stay = numpyro.sample("stay", dist.Beta(5.0, 2.0))

    def step(state, now):
        with numpyro.plate("people", series.shape[0]):
            state = numpyro.sample("state", dist.Bernoulli(jnp.where(state == 1, stay, 1 - stay)))
            numpyro.sample("y", dist.Normal(centres[state], 1.0), obs=now)
        return state, None

    scan(step, jnp.zeros(series.shape[0], jnp.int32), series.T)


def missing_covariate(x, known, y):
    """A binary covariate that some people did not report."""
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    effect = normal("effect")
    with numpyro.plate("people", len(y)):
        with numpyro.handlers.mask(mask=known == 0):
            guessed = numpyro.sample("guessed", dist.Bernoulli(share))
        with numpyro.handlers.mask(mask=known == 1):
            numpyro.sample("x", dist.Bernoulli(share), obs=x)
        numpyro.sample("y", dist.Normal(effect * jnp.where(known == 1, x, guessed), 1.0), obs=y)


def gaussian_process(t, y):
    length = numpyro.sample("length", dist.LogNormal(0.0, 1.0))
    kernel = jnp.exp(-(((t[:, None] - t) / length) ** 2)) + 0.1 * jnp.eye(len(t))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(t)), kernel), obs=y)


def local_level(y):
    level = numpyro.sample("level", dist.GaussianRandomWalk(0.3, num_steps=y.shape[0]))
    numpyro.sample("y", dist.Normal(level, 1.0), obs=y)


def autoregression(y):
    numpyro.sample("y", dist.Normal(normal("slope") * y[:-1], 1.0), obs=y[1:])


def exponential_smoothing(y):
    rate = numpyro.sample("rate", dist.Beta(2.0, 2.0))

    def step(level, now):
        numpyro.sample("y", dist.Normal(level, 1.0), obs=now)
        return level + rate * (now - level), None

    scan(step, 0.0, y)


def random_effects(y):
    mean = normal("mean")
    with numpyro.plate("people", y.shape[0]):
        own = numpyro.sample("own", dist.Normal(mean, 1.0))
        numpyro.sample("y", dist.Normal(own, 1.0), obs=y)


def variance_reduction(x, y):
    numpyro.sample("y", dist.Normal(normal("slope") * (x[:, 0] - x[:, 0].mean()), 1.0), obs=y)


def largest(y):
    top = numpyro.sample("top", dist.Pareto(jnp.max(y), 1.0))
    numpyro.sample("y", dist.Uniform(0.0, top), obs=y)


def scaled_by_their_number(y):
    numpyro.sample("y", dist.Normal(normal("mean"), jnp.sqrt(1.0 * y.shape[0])), obs=y)


def column_response(x, y):
    numpyro.sample("y", dist.Normal(x @ normal("w", 1.0, (3,)), 1.0), obs=y)


def eight_schools(y):
    effects = numpyro.sample("effects", dist.Normal(0.0, 1.0).expand([y.shape[0]]))
    numpyro.sample("y", dist.Normal(normal("mean") + effects, 1.0), obs=y)


TABLE = [
    (linear, (X, Y), FITS),
    (robust, (X, Y), FITS),
    (logistic, (X, BITS), FITS),
    (poisson, (X, COUNTS), FITS),
    (zero_inflated, (X, COUNTS), FITS),
    (ordinal, (X, GRADES), FITS),
    (horseshoe, (X, Y), FITS),
    (network, (X, Y), FITS),
    (varying_intercepts, (SCHOOL, Y, 4), FITS),
    (basis_functions, (T, Y), FITS),
    (survival, (X, POSITIVE, BITS), FITS),
    (truncated, (POSITIVE,), FITS),
    (multivariate, (X,), FITS),
    (series_of_each, (SERIES,), FITS),
    (soft_clusters, (X,), FITS),
    (raters, (LABELS,), FITS),
    (hidden_chain, (SERIES,), FITS),
    (missing_covariate, (BITS, LABELS[:, 0], Y), FITS),
    (gaussian_process, (T, Y), "as a Gaussian process does"),
    (local_level, (Y,), "as one path through time"),
    (autoregression, (Y,), "as in an autoregression"),
    (exponential_smoothing, (Y,), "as in a time series"),
    (random_effects, (Y,), FITS),
    (variance_reduction, (X, Y), "Records are coupled"),
    (largest, (POSITIVE,), "support of 'top' reads records"),
    (scaled_by_their_number, (Y,), "alone in the batch"),
    (column_response, (X, Y[:, None]), "pass y[:, 0], a vector"),
    (eight_schools, (Y,), FITS),
]


@pytest.mark.filterwarnings("ignore::dpvi.ModelNotice")
@pytest.mark.parametrize(("model", "data", "verdict"), TABLE, ids=[model.__name__ for model, _, _ in TABLE])
def test_the_verdict_on_a_tutorial_model(model, data, verdict):
    if verdict is FITS:
        ready = check(model, data)
        record = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), ready.structure)
        assert jax.eval_shape(ready.log_likelihood, jnp.zeros(ready.dimension), record).shape == ()
        return
    with pytest.raises(ModelError) as caught:
        check(model, data)
    assert verdict in str(caught.value)
