"""Models whose records depend on each other: none of them may be accepted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from tutorials.entry import BITS, POSITIVE, TIMES, Entry, X, Y, normal, positive


def gaussian_process(t, y):
    length = numpyro.sample("length", dist.LogNormal(0.0, 1.0))
    kernel = jnp.exp(-(((t[:, None] - t) / length) ** 2)) + 0.1 * jnp.eye(len(t))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(t)), kernel), obs=y)


def whitened_process(t, y):
    kernel = jnp.exp(-((t[:, None] - t) ** 2)) + 0.1 * jnp.eye(len(t))
    raw, scale = numpyro.sample("raw", dist.Normal(0.0, 1.0).expand([len(t)])), positive("scale")
    numpyro.sample("y", dist.Normal(jnp.linalg.cholesky(kernel) @ raw, scale), obs=y)


def local_level(y):
    level = numpyro.sample("level", dist.GaussianRandomWalk(0.3, num_steps=y.shape[0]))
    numpyro.sample("y", dist.Normal(level, positive("scale")), obs=y)


def summed_steps(y):
    scale = positive("scale")
    with numpyro.plate("times", len(y)):
        step = numpyro.sample("step", dist.Normal(0.0, 0.3))
    numpyro.sample("y", dist.Normal(jnp.cumsum(step), scale), obs=y)


def volatility(y):
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(positive("step"), num_steps=len(y)))
    numpyro.sample("y", dist.StudentT(5.0, 0.0, jnp.exp(walk)), obs=y)


def autoregression(y):
    numpyro.sample("y", dist.Normal(normal("slope") * y[:-1], 1.0), obs=y[1:])


def autoregression_by_scan(y):
    slope = normal("slope")

    def step(before, now):
        numpyro.sample("y", dist.Normal(slope * before, 1.0), obs=now)
        return now, None

    scan(step, 0.0, y)


def exponential_smoothing(y):
    rate = numpyro.sample("rate", dist.Beta(2.0, 2.0))

    def step(level, now):
        numpyro.sample("y", dist.Normal(level, 1.0), obs=now)
        return level + rate * (now - level), None

    scan(step, 0.0, y)


def moving_average(y):
    lag = normal("lag", 0.5)
    earlier = jnp.concatenate([jnp.zeros(1), y[:-1]])
    with numpyro.plate("times", len(y)):
        numpyro.sample("y", dist.Normal(lag * earlier, 1.0), obs=y)


def variance_reduction(x, y):
    numpyro.sample("y", dist.Normal(normal("slope") * (x[:, 0] - x[:, 0].mean()), 1.0), obs=y)


def standardised(x, y):
    w = normal("w", 1.0, (3,))
    with numpyro.plate("records", len(y)):
        numpyro.sample("y", dist.Normal((x - x.mean(0)) / (1.0 + x.std(0)) @ w, 1.0), obs=y)


def largest(y):
    top = numpyro.sample("top", dist.Pareto(jnp.max(y), 1.0))
    numpyro.sample("y", dist.Uniform(0.0, top), obs=y)


def prior_from_data(y):
    centre = numpyro.sample("centre", dist.Normal(y.mean(), 1.0))
    numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)


def scaled_by_their_number(y):
    numpyro.sample("y", dist.Normal(normal("mean"), jnp.sqrt(1.0 * y.shape[0])), obs=y)


def column_response(x, y):
    numpyro.sample("y", dist.Normal(x @ normal("w", 1.0, (3,)), 1.0), obs=y)


def risk_sets(x, time, died):
    """Cox's partial likelihood: everybody is compared with all who live longer."""
    risk = x @ normal("w", 1.0, (3,))
    later = jnp.where(time[None, :] >= time[:, None], risk, -jnp.inf)
    with numpyro.plate("people", len(time)):
        numpyro.factor("term", died * (risk - jax.nn.logsumexp(later, axis=1)))
        numpyro.sample("died", dist.Bernoulli(0.5), obs=died)


def neighbours(y):
    """A field in which every place is drawn to the next."""
    scale = positive("scale")
    with numpyro.plate("places", len(y)):
        field = numpyro.sample("field", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(field, scale), obs=y)
    numpyro.factor("smooth", -0.5 * jnp.sum(jnp.diff(field) ** 2))


ENTRIES = [
    Entry(gaussian_process, "NumPyro: Gaussian process", (TIMES, Y), refused="as a Gaussian process does"),
    Entry(whitened_process, "PyMC: latent Gaussian process", (TIMES, Y), refused="alone in the batch"),
    Entry(local_level, "Stan: local level", (Y,), refused="as one path through time"),
    Entry(summed_steps, "PyMC: random walk", (Y,), refused="alone in the batch"),
    Entry(volatility, "NumPyro: stochastic volatility", (Y,), refused="as one path through time"),
    Entry(autoregression, "Stan: autoregression", (Y,), refused="as in an autoregression"),
    Entry(autoregression_by_scan, "NumPyro: AR(2)", (Y,), refused="as in a time series"),
    Entry(exponential_smoothing, "NumPyro: Holt and Winters", (Y,), refused="as in a time series"),
    Entry(moving_average, "Stan: moving average", (Y,), refused="alone in the batch"),
    Entry(variance_reduction, "NumPyro: CUPED", (X, Y), refused="Records are coupled"),
    Entry(standardised, "PyMC: standardised inside", (X, Y), refused="alone in the batch"),
    Entry(largest, "BUGS: the largest tank", (POSITIVE,), refused="support of 'top' reads records"),
    Entry(prior_from_data, "PyMC: a prior from the data", (Y,), refused="The prior of 'centre' reads records"),
    Entry(scaled_by_their_number, "Stan: standard errors", (Y,), refused="alone in the batch"),
    Entry(column_response, "NumPyro: a column as response", (X, Y[:, None]), refused="pass y[:, 0], a vector"),
    Entry(risk_sets, "Stan: Cox regression", (X, POSITIVE, BITS), refused="alone in the batch"),
    Entry(neighbours, "Stan: intrinsic field", (Y,), refused="cannot be integrated out"),
]
ENTRIES = [entry._replace(eligible=False) for entry in ENTRIES]
