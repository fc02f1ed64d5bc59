"""Groups that records share, and latents of records that are integrated out or need a written guide."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam

import dpvi
from tutorials.entry import (
    BITS,
    COUNTS,
    ERRORS,
    GROUP,
    GROUPED,
    HITS,
    ITEMS,
    OTHER_GROUP,
    POSITIVE,
    SERIES,
    TRIALS,
    Entry,
    X,
    Y,
    normal,
    positive,
)

SIX = {"group": dpvi.Levels(range(6))}
TABLE = np.array([0, 0, 1, 1, 2, 2])


def varying_intercepts(group, y, num_groups):
    centre, spread = normal("centre"), positive("spread")
    with numpyro.plate("groups", num_groups):
        effect = numpyro.sample("effect", dist.Normal(centre, spread))
    with numpyro.plate("pupils", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


def levels_from_records(group, y):
    centre, spread = normal("centre"), positive("spread")
    with numpyro.plate("groups", len(np.unique(group))):
        effect = numpyro.sample("effect", dist.Normal(centre, spread))
    numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


def varying_slopes(group, treated, trials, hits):
    scales = numpyro.sample("scales", dist.HalfNormal(1.0).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    raw = normal("raw", 1.0, (int(np.max(group)) + 1, 2))
    effect = normal("centre", 1.0, (2,)) + raw @ (scales[:, None] * factor).T
    logits = effect[group, 0] + effect[group, 1] * treated
    numpyro.sample("hits", dist.Binomial(trials, logits=logits), obs=hits)


def crossed(group, other, y):
    numpyro.sample("y", dist.Normal(normal("a", 1.0, (6,))[group] + normal("b", 1.0, (4,))[other], 1.0), obs=y)


def nested(group, y, regions):
    """Groups in regions, by a table of settings."""
    spread = positive("spread")
    region = normal("region", 1.0, (int(np.max(regions)) + 1,))
    with numpyro.plate("groups", len(regions)):
        effect = numpyro.sample("effect", dist.Normal(region[regions], spread))
    numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


def not_centred(group, y):
    centre, spread = normal("centre"), positive("spread")
    with numpyro.plate("groups", 6), handlers.reparam(config={"effect": LocScaleReparam(0.0)}):
        effect = numpyro.sample("effect", dist.Normal(centre, spread))
    numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


def eight_schools(num_schools, error, y):
    centre, spread = normal("centre", 5.0), numpyro.sample("spread", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", num_schools):
        effect = numpyro.sample("effect", dist.Normal(centre, spread))
        numpyro.sample("y", dist.Normal(effect, error), obs=y)


def schools_without_plate(error, y):
    centre, spread = normal("centre", 5.0), positive("spread", 5.0)
    raw = numpyro.sample("raw", dist.Normal(0.0, 1.0).expand([len(y)]))
    numpyro.sample("y", dist.Normal(centre + spread * raw, error), obs=y)


def fully_pooled(trials, hits):
    share = numpyro.sample("share", dist.Uniform(0.0, 1.0))
    numpyro.sample("hits", dist.Binomial(trials, probs=share), obs=hits)


def partly_pooled(trials, hits):
    centre, weight = numpyro.sample("centre", dist.Uniform(0.0, 1.0)), numpyro.sample("weight", dist.Pareto(1.0, 1.5))
    with numpyro.plate("players", trials.shape[0]):
        share = numpyro.sample("share", dist.Beta(centre * weight, (1 - centre) * weight))
        numpyro.sample("hits", dist.Binomial(trials, probs=share), obs=hits)


def partly_pooled_logits(trials, hits):
    centre, spread = numpyro.sample("centre", dist.Normal(-1.0, 1.0)), positive("spread")
    with numpyro.plate("players", trials.shape[0]):
        logits = numpyro.sample("logits", dist.Normal(centre, spread))
        numpyro.sample("hits", dist.Binomial(trials, logits=logits), obs=hits)


def not_pooled(trials, hits):
    with numpyro.plate("players", trials.shape[0]):
        share = numpyro.sample("share", dist.Beta(1.0, 1.0))
        numpyro.sample("hits", dist.Binomial(trials, probs=share), obs=hits)


def pumps(hours, failures):
    shape, rate = numpyro.sample("shape", dist.Exponential(1.0)), numpyro.sample("rate", dist.Gamma(1.0, 1.0))
    with numpyro.plate("pumps", len(hours)):
        own = numpyro.sample("own", dist.Gamma(shape, rate))
        numpyro.sample("failures", dist.Poisson(own * hours), obs=failures)


def seeds(x, trials, hits):
    """A random effect of each plate of seeds on the logit scale."""
    spread, w = positive("spread"), normal("w", 1.0, (3,))
    with numpyro.plate("plates", len(hits)):
        own = numpyro.sample("own", dist.Normal(0.0, spread))
        numpyro.sample("hits", dist.Binomial(trials, logits=x @ w + own), obs=hits)


def random_effects(x, series):
    """Repeated measurements of each person."""
    spread, w = positive("spread"), normal("w", 1.0, (3,))
    with numpyro.plate("people", len(series), dim=-2):
        own = numpyro.sample("own", dist.Normal((x @ w)[:, None], spread))
        with numpyro.plate("times", 5, dim=-1):
            numpyro.sample("series", dist.Normal(own, 1.0), obs=series)


def growth(series):
    """A line of its own for every rat."""
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 1.0))
    scales = numpyro.sample("scales", dist.HalfNormal(1.0).expand([2]).to_event(1))
    centre = normal("centre", 1.0, (2,))
    noise = positive("noise")
    with numpyro.plate("rats", series.shape[0]):
        line = numpyro.sample("line", dist.MultivariateNormal(centre, scale_tril=scales[:, None] * factor))
        mean = line[:, :1] + line[:, 1:] * jnp.arange(5.0)
        numpyro.sample("weights", dist.Normal(mean, noise).to_event(1), obs=series)


def measurement_error(x, error, y):
    """The true covariate and the true response are both latent."""
    a, b, noise = normal("a"), normal("b"), positive("noise")
    with numpyro.plate("states", len(y)):
        true_x = numpyro.sample("true_x", dist.Normal(0.0, 1.0))
        numpyro.sample("x", dist.Normal(true_x, 0.5), obs=x)
        true_y = numpyro.sample("true_y", dist.Normal(a + b * true_x, noise))
        numpyro.sample("y", dist.Normal(true_y, error), obs=y)


def factors(items):
    """Two factors behind five measurements."""
    loadings, noise = normal("loadings", 1.0, (2, 5)), positive("noise")
    with numpyro.plate("people", items.shape[0]):
        own = numpyro.sample("own", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("items", dist.Normal(own @ loadings, noise).to_event(1), obs=items)


def abilities(answers):
    """Rasch: people of different ability answer questions of different difficulty."""
    difficulty, spread = normal("difficulty", 1.0, (6,)), positive("spread")
    with numpyro.plate("people", answers.shape[0]):
        ability = numpyro.sample("ability", dist.Normal(0.0, spread))
        law = dist.Bernoulli(logits=ability[:, None] - difficulty).to_event(1)
        numpyro.sample("answers", law, obs=answers)


def scattered_counts(x, y):
    spread, w = positive("spread"), normal("w", 0.5, (3,))
    with numpyro.plate("records", len(y)):
        log_rate = numpyro.sample("log_rate", dist.Normal(x @ w, spread))
        numpyro.sample("y", dist.Poisson(jnp.exp(log_rate)), obs=y)


def own_variances(y):
    """Student's law as a mixture of normals."""
    freedom = numpyro.sample("freedom", dist.Gamma(4.0, 1.0))
    centre = normal("centre")
    with numpyro.plate("records", len(y)):
        precision = numpyro.sample("precision", dist.Gamma(freedom / 2, freedom / 2))
        numpyro.sample("y", dist.Normal(centre, 1 / jnp.sqrt(precision)), obs=y)


ENTRIES = [
    Entry(varying_intercepts, "Stan: radon", (GROUP, GROUPED, 6)),
    Entry(levels_from_records, "NumPyro: hierarchical linear regression", (GROUP, GROUPED), static=SIX),
    Entry(varying_slopes, "NumPyro: UCB admissions", (GROUP, BITS, TRIALS, HITS), static=SIX),
    Entry(crossed, "PyMC: crossed effects", (GROUP, OTHER_GROUP, Y)),
    Entry(nested, "NumPyro: mortality", {"group": GROUP, "y": GROUPED}, static={"regions": TABLE}),
    Entry(not_centred, "NumPyro: bad posterior geometry", (GROUP, GROUPED)),
    Entry(eight_schools, "NumPyro: eight schools", (len(Y), ERRORS, Y)),
    Entry(schools_without_plate, "PyMC: eight schools", (ERRORS, Y)),
    Entry(fully_pooled, "NumPyro: baseball", (TRIALS, HITS)),
    Entry(partly_pooled, "NumPyro: baseball", (TRIALS, HITS)),
    Entry(partly_pooled_logits, "NumPyro: baseball", (TRIALS, HITS), guided=True),
    Entry(not_pooled, "NumPyro: baseball", (TRIALS, HITS), refused="none to infer", eligible=False),
    Entry(pumps, "BUGS: pumps", (POSITIVE, COUNTS)),
    Entry(seeds, "BUGS: seeds", (X, TRIALS, HITS), guided=True),
    Entry(random_effects, "PyMC: longitudinal models", (X, SERIES)),
    Entry(growth, "BUGS: rats", (SERIES,)),
    Entry(measurement_error, "NumPyro: measurement error", (X[:, 0].copy(), ERRORS, Y)),
    Entry(factors, "PyMC: factor analysis", (SERIES,)),
    Entry(abilities, "Stan: item response", (ITEMS,), guided=True),
    Entry(scattered_counts, "Stan: overdispersed counts", (X, COUNTS), guided=True),
    Entry(own_variances, "BUGS: scale mixtures", (Y,), guided=True),
]
