"""NumPyro models that ordinary users write, with small data for each."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers


class Example(NamedTuple):
    name: str
    model: Any
    data: Any


_random = np.random.default_rng(7)
N = 6
X = _random.normal(size=(N, 3))
Y_REAL = _random.normal(size=N)
Y_BIT = _random.integers(0, 2, N)
GROUP = _random.integers(0, 4, N)
COUNT = _random.poisson(2.0, N)
WIDE = _random.normal(size=(N, 2))
MASK = np.array([True, False, True, True, False, True])


def logistic(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def linear(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, scale), obs=y)


def hierarchical(group, y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfCauchy(1.0))
    with numpyro.plate("groups", 4):
        effect = numpyro.sample("effect", dist.Normal(mean, spread))
    numpyro.deterministic("range", effect.max() - effect.min())
    with numpyro.plate("records", group.shape[0]):
        numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


def two_sites(x, y, count):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.factor("penalty", -0.1 * jnp.sum(w**2))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)
        numpyro.sample("count", dist.Poisson(rate), obs=count)
        numpyro.factor("tilt", 0.1 * jnp.tanh(y))


def nested(wide):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("records", wide.shape[0], dim=-2), numpyro.plate("columns", 2, dim=-1):
        numpyro.sample("wide", dist.StudentT(4.0, mean, 1.0), obs=wide)


def nested_right(wide):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("columns", 2, dim=-2), numpyro.plate("records", wide.shape[0], dim=-1):
        numpyro.sample("wide", dist.Normal(mean[:, None], 1.0), obs=wide.T)


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    centres = numpyro.sample("centres", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    scales = numpyro.sample("scales", dist.LogNormal(0.0, 0.5).expand([3]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        components = dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(centres, scales))
        numpyro.sample("y", components, obs=y)


def subsampled(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", 1000, subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def subsampled_inside(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0], subsample_size=2) as index:
        numpyro.sample("y", dist.Bernoulli(logits=x[index] @ w), obs=y[index])


def dynamic(y):
    low = numpyro.sample("low", dist.Normal(0.0, 1.0))
    high = numpyro.sample("high", dist.TruncatedNormal(low + 1.0, 1.0, low=low))
    share = numpyro.sample("share", dist.Uniform(low, high))
    cholesky = numpyro.sample("cholesky", dist.LKJCholesky(2, 1.5))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(share + cholesky[1, 0], 1.0), obs=y)


def bounded(y):
    rates = numpyro.sample("rates", dist.Uniform(jnp.zeros(2), jnp.array([1.0, 2.0])).to_event(1))
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    improper = numpyro.sample("improper", dist.ImproperUniform(dist.constraints.positive, (), ()))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(rates.sum() * share, improper), obs=y)


def masked(y, mask):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]), handlers.mask(mask=mask), handlers.scale(scale=0.5):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def nested_data(inputs, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(inputs["x"] @ w + inputs["more"][0], 1.0), obs=y)


def reparameterised(y):
    config = {"effect": numpyro.infer.reparam.LocScaleReparam(0)}
    with handlers.reparam(config=config):
        effect = numpyro.sample("effect", dist.Normal(jnp.zeros(2), 3.0).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(effect.sum(), 1.0), obs=y)


EXAMPLES = [
    Example("logistic", logistic, (X, Y_BIT)),
    Example("logistic_dict", logistic, {"x": X, "y": Y_BIT}),
    Example("linear", linear, (X, Y_REAL)),
    Example("hierarchical", hierarchical, (GROUP, Y_REAL)),
    Example("two_sites", two_sites, (X, Y_REAL, COUNT)),
    Example("nested", nested, WIDE),
    Example("nested_right", nested_right, WIDE),
    Example("mixture", mixture, Y_REAL),
    Example("dynamic", dynamic, Y_REAL),
    Example("bounded", bounded, Y_REAL),
    Example("masked", masked, (Y_REAL, MASK)),
    Example("nested_data", nested_data, ({"x": X, "more": [Y_REAL]}, Y_REAL)),
    Example("reparameterised", reparameterised, Y_REAL),
]
SUBSAMPLED = [
    Example("subsampled", subsampled, (X, Y_BIT)),
    Example("subsampled_inside", subsampled_inside, (X, Y_BIT)),
]
