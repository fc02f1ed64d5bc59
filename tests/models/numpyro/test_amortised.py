"""Guides that are written from the model, against exact posteriors and by what they refuse."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import Predictive
from support.small_models import private_plan

import dpvi
from dpvi import AutoAmortised
from dpvi.models.base import ModelError
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.records.arrays import structure_of

_random = np.random.default_rng(3)
N = 600
TRIALS = _random.integers(15, 40, N)
HITS = _random.binomial(TRIALS, 1 / (1 + np.exp(1.0 - 0.8 * _random.normal(size=N))))
Y = _random.normal(size=N).astype(np.float32)


def players(trials, hits, width=1.0):
    centre, spread = numpyro.sample("centre", dist.Normal(0.0, width)), numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("players", trials.shape[0]):
        skill = numpyro.sample("skill", dist.Normal(centre, spread))
        numpyro.sample("hits", dist.Binomial(trials, logits=skill), obs=hits)


def all_laws(x):
    """A latent of every kind of support and shape."""
    scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("records", x.shape[0], dim=-2):
        share = numpyro.sample("share", dist.Beta(2.0, 1.0 + scale))
        with numpyro.plate("times", 2, dim=-1):
            time = numpyro.sample("time", dist.Gamma(2.0, scale))
        wait = numpyro.sample("wait", dist.Exponential(scale))
        size = numpyro.sample("size", dist.HalfNormal(scale))
        mix = numpyro.sample("mix", dist.Dirichlet(shares))
        pair = numpyro.sample("pair", dist.MultivariateNormal(jnp.zeros(2), covariance_matrix=jnp.eye(2) + 0.5))
        heavy = numpyro.sample("heavy", dist.StudentT(3.0, 0.0, scale))
        level = numpyro.sample("level", dist.LogNormal(0.0, 1.0))
        mean = share + time + wait + size + mix[..., 0] + pair[..., 0] + heavy + level
        numpyro.sample("x", dist.Normal(mean, 1.0), obs=x)


@pytest.fixture(scope="module")
def fitted():
    plan = dpvi.plan_nonprivate(sampling_rate=0.5, num_steps=1000)
    guide = AutoAmortised(players)
    result = dpvi.fit(players, (TRIALS, HITS), plan, guide=guide, seed=1, progress=False)
    return guide, result.posterior("average")


def marginal_posterior():
    """Mean and standard deviation of centre and spread, by quadrature over skills and a grid over both."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    centres, spreads = np.linspace(-1.5, -0.5, 61), np.linspace(0.5, 1.2, 61)
    log = np.zeros((61, 61))
    trials, hits = TRIALS[:, None], HITS[:, None]
    for i, centre in enumerate(centres):
        for j, spread in enumerate(spreads):
            skill = centre + spread * nodes
            terms = hits * skill - trials * np.logaddexp(0.0, skill)
            top = terms.max(axis=1, keepdims=True)
            log[i, j] = np.sum(top[:, 0] + np.log(np.exp(terms - top) @ weights)) - 0.5 * (centre**2 + spread**2)
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    centre_mean, spread_mean = np.sum(mass.sum(1) * centres), np.sum(mass.sum(0) * spreads)
    sds = [np.sqrt(np.sum(mass.sum(1) * (centres - centre_mean) ** 2))]
    sds.append(np.sqrt(np.sum(mass.sum(0) * (spreads - spread_mean) ** 2)))
    return np.array([centre_mean, spread_mean]), np.array(sds)


@pytest.mark.filterwarnings("ignore:.*drifting")
def test_a_hierarchy_has_the_right_posterior(fitted):
    means, sds = marginal_posterior()
    draws = fitted[1].sample(2000, key=jax.random.key(0))
    for name, mean, sd in zip(("centre", "spread"), means, sds, strict=True):
        # the optimiser's own wandering is about a third of a standard deviation; pooling all players is 5 of them away
        assert abs(draws[name].mean() - mean) < 0.6 * sd
        assert 0.6 * sd < draws[name].std() < 1.4 * sd


def test_the_guide_draws_what_a_record_says_of_its_latents(fitted):
    guide, posterior = fitted
    draw = Predictive(guide, params=posterior.params, num_samples=200)(jax.random.key(1), TRIALS[:50], HITS[:50])
    skill = np.asarray(draw["skill"]).mean(axis=0)
    assert skill.shape == (50,)
    rates = (HITS[:50] + 1) / (TRIALS[:50] + 2)
    assert np.corrcoef(skill, np.log(rates / (1 - rates)))[0, 1] > 0.9  # without the record they would not correlate


def test_every_law_and_shape_has_a_guide():
    ready = GuidedModel(all_laws, AutoAmortised(all_laws, hidden=(4, 3)), structure_of(Y[:7, None]))
    xi, eta = ready.initial(jax.random.key(0)), jnp.zeros(ready.num_base)
    record = jnp.array([0.4])
    assert np.isfinite(jax.jit(ready.term)(xi, eta, ready.own_key(eta, record), record))
    assert {site.name for site in ready.sites} == {"scale", "shares"}
    assert len(ready.layout.local_sites) == 8
    assert "pair" in ready.closed_sites


def test_constants_plates_left_out_and_features():
    def model(trials, hits, width):
        centre = numpyro.sample("centre", dist.Normal(0.0, width))
        skill = numpyro.sample("skill", dist.Normal(centre, 1.0).expand([trials.shape[0]]))
        numpyro.sample("hits", dist.Binomial(trials, logits=skill), obs=hits)

    guide = AutoAmortised(model, features=lambda trials, hits, width: hits / trials)
    with pytest.warns(dpvi.ModelNotice, match="'skill', 'hits'"):
        ready = dpvi.check(model, (TRIALS, HITS), guide=guide, static={"width": 2.0})
    assert ready.layout.local_sites == ("skill",)
    sizes = {site.name: site.size for site in ready.parameters.sites}
    assert sizes["skill_auto_weights"] == 1


def test_the_same_guide_serves_dpsvi():
    guide = AutoAmortised(players)
    svi = dpvi.DPSVI(players, guide, optax.adam(0.05), plan=private_plan(num_steps=5, sampling_rate=0.5))
    result = svi.run(None, TRIALS, HITS, progress_bar=False)
    assert "skill_auto_weights" in result.params


def with_coin(y):
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        coin = numpyro.sample("coin", dist.Bernoulli(0.5))
        own = numpyro.sample("own", dist.StudentT(3.0, centre, 1.0))
        numpyro.sample("y", dist.Normal(own + coin, 1.0), obs=y)


def with_loop(y):
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))

    def step(level, now):
        with numpyro.plate("series", y.shape[0]):
            level = numpyro.sample("level", dist.StudentT(3.0, level, 1.0))
            numpyro.sample("y", dist.Normal(level, 1.0), obs=now)
        return level, None

    scan(step, centre * jnp.ones(y.shape[0]), y.T)


@pytest.mark.parametrize(
    ("model", "data", "sentence"),
    [(with_coin, Y, "'coin' is discrete"), (with_loop, np.zeros((9, 3)), "'level' in the body of a loop")],
)
def test_what_it_cannot_write_is_refused(model, data, sentence):
    with pytest.raises(ModelError, match=sentence):
        dpvi.check(model, data, guide=AutoAmortised(model))


def test_used_before_a_fit_it_says_so():
    with pytest.raises(ModelError, match=r"pass it to dpvi\.fit or dpvi\.check first"):
        handlers.seed(AutoAmortised(players), 0)(TRIALS, HITS)
    with pytest.raises(TypeError, match="a function, got int"):
        AutoAmortised(3)


def test_partial_and_wrapped_guides_are_found():
    guide = AutoAmortised(players)
    ready = GuidedModel(partial(players, width=2.0), partial(guide, width=2.0), structure_of((TRIALS, HITS)))
    assert ready.layout.local_sites == ("skill",)
