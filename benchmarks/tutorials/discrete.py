"""Discrete latents of a record."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan

import dpvi
from tutorials.entry import (
    BITS,
    COUNTS,
    ITEMS,
    LABELS,
    MIXED,
    OTHER_BITS,
    PAIRS,
    SERIES,
    TIMES,
    Entry,
    N,
    X,
    Y,
    normal,
    positive,
    random,
)


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    centres = normal("centres", 3.0, (2,))
    with numpyro.plate("records", len(y)):
        which = numpyro.sample("which", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(centres[which], 0.7), obs=y)


def clusters(x):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("clusters", 3):
        centre = numpyro.sample("centre", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        which = numpyro.sample("which", dist.Categorical(weights), infer={"enumerate": "parallel"})
        numpyro.sample("x", dist.Normal(centre[which], 1.0).to_event(1), obs=x)


def outliers(x, y):
    share, w = numpyro.sample("share", dist.Beta(1.0, 10.0)), normal("w", 1.0, (3,))
    with numpyro.plate("records", len(y)):
        odd = numpyro.sample("odd", dist.Bernoulli(share))
        numpyro.sample("y", dist.Normal(x @ w, jnp.where(odd == 1, 5.0, 0.7)), obs=y)


def regressions_of_kinds(x, y):
    weights, w = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2))), normal("w", 1.0, (2, 3))
    with numpyro.plate("records", len(y)):
        which = numpyro.sample("which", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal((w[which] * x).sum(-1), 1.0), obs=y)


def extra_zeros(y):
    share, rate = numpyro.sample("share", dist.Beta(1.0, 1.0)), positive("rate", 3.0)
    with numpyro.plate("records", len(y)):
        active = numpyro.sample("active", dist.Bernoulli(share))
        numpyro.sample("y", dist.Poisson(jnp.where(active == 1, rate, 1e-3)), obs=y)


def raters(labels):
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    with numpyro.plate("raters", 4, dim=-1):
        right = numpyro.sample("right", dist.Beta(8.0, 2.0))
    with numpyro.plate("items", labels.shape[0], dim=-2):
        truth = numpyro.sample("truth", dist.Bernoulli(share))
        numpyro.sample("labels", dist.Bernoulli(jnp.where(truth == 1, right, 1 - right)), obs=labels)


def raters_with_levels(labels):
    classes = int(jnp.max(labels)) + 1
    prevalence = numpyro.sample("prevalence", dist.Dirichlet(jnp.ones(classes)))
    with numpyro.plate("classes", classes):
        reports = numpyro.sample("reports", dist.Dirichlet(jnp.ones(classes)))
    with numpyro.plate("items", labels.shape[0], dim=-2):
        truth = numpyro.sample("truth", dist.Categorical(prevalence))
        with numpyro.plate("positions", labels.shape[1], dim=-1):
            numpyro.sample("labels", dist.Categorical(reports[truth]), obs=labels)


def latent_classes(answers):
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
    chances = numpyro.sample("chances", dist.Beta(1.0, 1.0).expand([2, 6]).to_event(2))
    with numpyro.plate("people", answers.shape[0]):
        kind = numpyro.sample("kind", dist.Categorical(share))
        numpyro.sample("answers", dist.Bernoulli(chances[kind]).to_event(1), obs=answers)


def occupancy(visits):
    occupied, seen = numpyro.sample("occupied", dist.Beta(1.0, 1.0)), numpyro.sample("seen", dist.Beta(1.0, 1.0))
    with numpyro.plate("sites", visits.shape[0]):
        present = numpyro.sample("present", dist.Bernoulli(occupied))
        chance = (0.001 + 0.998 * present * seen)[..., None] * jnp.ones(6)
        numpyro.sample("visits", dist.Bernoulli(chance).to_event(1), obs=visits)


def capture_recapture(histories):
    survival, seen = numpyro.sample("survival", dist.Beta(1.0, 1.0)), numpyro.sample("seen", dist.Beta(1.0, 1.0))

    def occasion(alive, caught):
        with numpyro.plate("animals", histories.shape[0]):
            alive = numpyro.sample("alive", dist.Bernoulli(0.01 + 0.98 * survival * alive))
            numpyro.sample("caught", dist.Bernoulli(0.01 + 0.98 * seen * alive), obs=caught)
        return alive, None

    scan(occasion, jnp.ones(histories.shape[0], jnp.int32), histories.T)


def hidden_chain(series):
    centres, stay = normal("centres", 2.0, (2,)), numpyro.sample("stay", dist.Beta(5.0, 2.0))

    def step(state, now):
        with numpyro.plate("people", series.shape[0]):
            state = numpyro.sample("state", dist.Bernoulli(jnp.where(state == 1, stay, 1 - stay)))
            numpyro.sample("y", dist.Normal(centres[state], 1.0), obs=now)
        return state, None

    scan(step, jnp.zeros(series.shape[0], jnp.int32), series.T)


def long_hidden_chain(series):
    hidden_chain(series)


def missing_covariate(x, known, y):
    """A binary covariate that some people did not report."""
    share, effect = numpyro.sample("share", dist.Beta(1.0, 1.0)), normal("effect")
    with numpyro.plate("people", len(y)):
        with handlers.mask(mask=known == 0):
            guessed = numpyro.sample("guessed", dist.Bernoulli(share))
        with handlers.mask(mask=known == 1):
            numpyro.sample("x", dist.Bernoulli(share), obs=x)
        numpyro.sample("y", dist.Normal(effect * jnp.where(known == 1, x, guessed), 1.0), obs=y)


def switch_of_each(series):
    """Every series has a place where its mean changes."""
    means = normal("means", 2.0, (2,))
    with numpyro.plate("people", series.shape[0]):
        place = numpyro.sample("place", dist.Categorical(jnp.ones(5) / 5))
        mean = jnp.where(jnp.arange(5) < place[..., None], means[0], means[1])
        numpyro.sample("series", dist.Normal(mean, 1.0).to_event(1), obs=series)


def kinds_and_effects(y):
    """A kind and a normal effect of each record."""
    share, spread = numpyro.sample("share", dist.Beta(2.0, 2.0)), positive("spread")
    with numpyro.plate("records", len(y)):
        kind = numpyro.sample("kind", dist.Bernoulli(share))
        own = numpyro.sample("own", dist.Normal(4.0 * kind - 2.0, spread))
        numpyro.sample("y", dist.Normal(own, 0.3), obs=y)


def partly_observed(known, y):
    """A response that is missing for some, by obs_mask."""
    centre, scale = normal("centre"), positive("scale")
    with numpyro.plate("people", len(y)):
        numpyro.sample("y", dist.Normal(centre, scale), obs=y, obs_mask=known == 1)


def disasters(t, y):
    """A change point that all years share, a whole number."""
    place = numpyro.sample("place", dist.Categorical(jnp.ones(10) / 10))
    early, late = positive("early", 3.0), positive("late", 3.0)
    numpyro.sample("y", dist.Poisson(jnp.where(t * 10 < place, early, late)), obs=y)


def topics(words):
    """Shares of topics of each document, and a topic of each word."""
    chances = numpyro.sample("chances", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(1))
    with numpyro.plate("documents", words.shape[0], dim=-2):
        shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("words", 6, dim=-1):
            topic = numpyro.sample("topic", dist.Categorical(shares))
            numpyro.sample("word", dist.Categorical(chances[topic]), obs=words)


def unbounded(y):
    rate = positive("rate", 3.0)
    with numpyro.plate("records", len(y)):
        count = numpyro.sample("count", dist.Poisson(rate))
        numpyro.sample("y", dist.Normal(count.astype(float), 1.0), obs=y)


LONG = random.normal(size=(N, 40)).astype("float32")

ENTRIES = [
    Entry(mixture, "NumPyro: Gaussian mixture", (MIXED,)),
    Entry(clusters, "Pyro: Gaussian mixture", (PAIRS,)),
    Entry(outliers, "PyMC: outliers by Hogg", (X, Y)),
    Entry(regressions_of_kinds, "Stan: mixture of regressions", (X, Y)),
    Entry(extra_zeros, "Stan: zero inflation", (COUNTS,)),
    Entry(raters, "NumPyro: annotation", (LABELS,)),
    Entry(raters_with_levels, "NumPyro: annotation", (LABELS,), static={"labels": dpvi.Levels(range(2))}),
    Entry(latent_classes, "Stan: latent classes", (ITEMS,)),
    Entry(occupancy, "Stan: occupancy", (ITEMS,)),
    Entry(capture_recapture, "NumPyro: capture and recapture", (LABELS,)),
    Entry(hidden_chain, "NumPyro: hidden Markov model", (SERIES,)),
    Entry(long_hidden_chain, "NumPyro: hidden Markov model", (LONG,), refused="by the forward algorithm"),
    Entry(missing_covariate, "NumPyro: discrete imputation", (BITS, OTHER_BITS, Y)),
    Entry(switch_of_each, "Stan: change points", (SERIES,)),
    Entry(kinds_and_effects, "Pyro: mixtures with effects", (MIXED,)),
    Entry(partly_observed, "NumPyro: obs_mask", (OTHER_BITS, Y)),
    Entry(disasters, "PyMC: coal mining disasters", (TIMES, COUNTS), refused="is discrete and shared by all records"),
    Entry(topics, "Pyro: latent Dirichlet allocation", (ITEMS,), refused="needs a guide"),
    Entry(unbounded, "Stan: N-mixture", (COUNTS.astype("float32"),), refused="not a fixed finite number"),
]
