"""Regressions and other models without latents of a record."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from tutorials.entry import (
    BITS,
    COUNTS,
    GRADES,
    GROUP,
    HITS,
    OTHER_GROUP,
    PAIRS,
    POSITIVE,
    SERIES,
    SHARES,
    TIMES,
    TRIALS,
    Entry,
    X,
    Y,
    normal,
    positive,
)


def linear(x, y):
    numpyro.sample("y", dist.Normal(normal("a") + x @ normal("w", 1.0, (3,)), positive("scale")), obs=y)


def with_plate_and_default(x, y=None):
    w, scale = normal("w", 1.0, (3,)), positive("scale")
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, scale), obs=y)


def subsampled(x, y, size):
    w = normal("w", 1.0, (3,))
    with numpyro.plate("records", x.shape[0], subsample_size=size) as chosen:
        numpyro.sample("y", dist.Bernoulli(logits=x[chosen] @ w), obs=y[chosen])


def whole_response(x, y):
    scale = positive("scale")
    numpyro.sample("y", dist.Normal(x @ normal("w", 1.0, (3,)), scale).to_event(1), obs=y)


def robust(x, y):
    freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
    numpyro.sample("y", dist.StudentT(freedom, x @ normal("w", 1.0, (3,)), 1.0), obs=y)


def lasso(x, y):
    w = numpyro.sample("w", dist.Laplace(0.0, 0.5).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ w, positive("scale")), obs=y)


def horseshoe(x, y):
    shrink = numpyro.sample("shrink", dist.HalfCauchy(1.0))
    local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ (shrink * local * normal("w", 1.0, (3,))), 1.0), obs=y)


def changing_scale(x, y):
    mean, log_scale = x @ normal("w", 1.0, (3,)), normal("b") + x @ normal("v", 0.3, (3,))
    numpyro.sample("y", dist.Normal(mean, jnp.exp(log_scale)), obs=y)


def logistic(x, y):
    numpyro.sample("y", dist.Bernoulli(logits=normal("a") + x @ normal("w", 1.0, (3,))), obs=y)


def probit(x, y):
    share = jax.scipy.stats.norm.cdf(x @ normal("w", 1.0, (3,)))
    numpyro.sample("y", dist.Bernoulli(probs=jnp.clip(share, 1e-5, 1 - 1e-5)), obs=y)


def poisson(x, y):
    numpyro.sample("y", dist.Poisson(jnp.exp(normal("a") + x @ normal("w", 0.3, (3,)))), obs=y)


def overdispersed(x, y):
    size = numpyro.sample("size", dist.Exponential(1.0))
    numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(normal("a") + x @ normal("w", 0.3, (3,))), size), obs=y)


def zero_inflated(x, y):
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    numpyro.sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(x @ normal("w", 0.3, (3,)))), obs=y)


def shares(x, y):
    mean, weight = jax.nn.sigmoid(x @ normal("w", 1.0, (3,))), numpyro.sample("weight", dist.Gamma(2.0, 0.2))
    numpyro.sample("y", dist.Beta(mean * weight, (1 - mean) * weight), obs=y)


def gamma_law(x, y):
    shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Gamma(shape, shape / jnp.exp(x @ normal("w", 0.5, (3,)))), obs=y)


def several_classes(x, y):
    logits = x @ normal("w", 1.0, (3, 3)) + normal("a", 1.0, (3,))
    numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def ordered(x, y):
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(
        dist.Normal(0.0, 1.0).expand([2]).to_event(1), dist.transforms.OrderedTransform()))  # fmt: skip
    numpyro.sample("y", dist.OrderedLogistic(x @ normal("w", 1.0, (3,)), cuts), obs=y)


def network(x, y):
    hidden = jnp.tanh(x @ normal("first", 1.0, (3, 5)))
    numpyro.sample("y", dist.Normal((hidden @ normal("second", 1.0, (5, 1)))[:, 0], 1.0), obs=y)


def decay(t, y):
    rate, top = positive("rate", 3.0), normal("top", 3.0)
    numpyro.sample("y", dist.Normal(top * jnp.exp(-rate * t) + normal("rest"), positive("scale")), obs=y)


def basis_functions(t, y):
    basis = jnp.sin(jnp.pi * jnp.arange(1, 6) * t[:, None])
    spread = positive("spread")
    numpyro.sample("y", dist.Normal(basis @ normal("weights", spread, (5,)), 0.3), obs=y)


def censored(x, y, seen):
    rate = jnp.exp(normal("a") + x @ normal("w", 0.3, (3,)))
    with numpyro.plate("people", len(y)), numpyro.handlers.mask(mask=seen > 0):
        numpyro.sample("died", dist.Exponential(rate), obs=y)
    with numpyro.plate("alive", len(y)):
        numpyro.factor("survived", jnp.where(seen > 0, 0.0, -rate * y))


def weibull(y):
    shape, scale = numpyro.sample("shape", dist.Gamma(2.0, 1.0)), positive("scale", 2.0)
    numpyro.sample("y", dist.Weibull(scale, shape), obs=y)


def truncated(y):
    mean = numpyro.sample("mean", dist.Normal(1.0, 1.0))
    numpyro.sample("y", dist.LeftTruncatedDistribution(dist.Normal(mean, 1.0), low=0.05), obs=y)


def correlated_responses(x):
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    scales = numpyro.sample("scales", dist.HalfNormal(2.0).expand([2]).to_event(1))
    law = dist.MultivariateNormal(normal("mean", 1.0, (2,)), scale_tril=scales[:, None] * factor)
    numpyro.sample("x", law, obs=x)


def putting(distance, trials, hits):
    spread = positive("spread", 0.5)
    share = 2 * jax.scipy.stats.norm.cdf(jnp.arcsin(0.2 / (1.0 + distance)) / (spread + 0.02)) - 1
    numpyro.sample("hits", dist.Binomial(trials, probs=jnp.clip(share, 1e-4, 1 - 1e-4)), obs=hits)


def doses(dose, trials, deaths):
    logits = normal("a", 2.0) + normal("b", 2.0) * dose
    numpyro.sample("deaths", dist.Binomial(trials, logits=logits), obs=deaths)


def games(home, away, won, num_teams):
    skill = normal("skill", 1.0, (num_teams,))
    numpyro.sample("won", dist.Bernoulli(logits=normal("advantage") + skill[home] - skill[away]), obs=won)


def piecewise(t, y):
    place = numpyro.sample("place", dist.Uniform(0.0, 1.0))
    slopes = normal("slopes", 2.0, (2,))
    after = jax.nn.softplus(30 * (t - place)) / 30
    numpyro.sample("y", dist.Normal(normal("a") + slopes[0] * t + slopes[1] * after, 0.5), obs=y)


def series_of_each(series):
    """One autoregression per record, time along its own axis."""
    slope, scale = normal("slope", 0.5), positive("scale")
    with numpyro.plate("people", series.shape[0], dim=-2), numpyro.plate("time", 4, dim=-1):
        numpyro.sample("later", dist.Normal(slope * series[:, :-1], scale), obs=series[:, 1:])


def two_outcomes(x, y, z):
    """Two observed sites with one plate each."""
    w = normal("w", 1.0, (3,))
    with numpyro.plate("first", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)
    with numpyro.plate("second", x.shape[0]):
        numpyro.sample("z", dist.Bernoulli(logits=0.5 * x @ w), obs=z)


ENTRIES = [
    Entry(linear, "NumPyro: Bayesian regression", (X, Y)),
    Entry(with_plate_and_default, "NumPyro: getting started", (X, Y)),
    Entry(subsampled, "NumPyro: covtype, HMCECS", (X, BITS, 100)),
    Entry(whole_response, "Pyro: Bayesian regression, to_event", (X, Y)),
    Entry(robust, "PyMC: robust regression", (X, Y)),
    Entry(lasso, "Stan: regularised regression", (X, Y)),
    Entry(horseshoe, "NumPyro: horseshoe regression", (X, Y)),
    Entry(changing_scale, "PyMC: heteroscedastic regression", (X, Y)),
    Entry(logistic, "NumPyro: logistic regression", (X, BITS)),
    Entry(probit, "Stan: probit regression", (X, BITS)),
    Entry(poisson, "PyMC: Poisson regression", (X, COUNTS)),
    Entry(overdispersed, "PyMC: negative binomial regression", (X, COUNTS)),
    Entry(zero_inflated, "NumPyro: zero-inflated Poisson", (X, COUNTS)),
    Entry(shares, "Stan: beta regression", (X, SHARES)),
    Entry(gamma_law, "PyMC: gamma regression", (X, POSITIVE)),
    Entry(several_classes, "Stan: multi-logit", (X, GRADES)),
    Entry(ordered, "NumPyro: ordinal regression", (X, GRADES)),
    Entry(network, "NumPyro: Bayesian neural network", (X, Y)),
    Entry(decay, "NumPyro: consensus Monte Carlo", (TIMES, Y)),
    Entry(basis_functions, "NumPyro: Hilbert space basis functions", (TIMES, Y)),
    Entry(censored, "PyMC: censored survival", (X, POSITIVE, BITS)),
    Entry(weibull, "PyMC: Weibull survival", (POSITIVE,)),
    Entry(truncated, "NumPyro: truncated distributions", (POSITIVE,)),
    Entry(correlated_responses, "Stan: covariance with LKJ", (PAIRS,)),
    Entry(putting, "Stan: golf putting", (POSITIVE, TRIALS, HITS)),
    Entry(doses, "Stan: dose and response", (Y, TRIALS, HITS)),
    Entry(games, "Stan: Bradley and Terry", (GROUP, OTHER_GROUP, BITS, 6)),
    Entry(piecewise, "PyMC: change of slope", (TIMES, Y)),
    Entry(series_of_each, "NumPyro: many short series", (SERIES,)),
    Entry(two_outcomes, "NumPyro: two stages", (X, Y, BITS)),
]
