"""The regression samplers: the conjugate step and the slice step against what they must leave alone, and coverage."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.baselines_coverage import assert_covers, with_little_noise
from support.statistics import assert_close, assert_variance

from studies.baselines.bernstein_sheldon import (
    GaussianMechanism,
    GaussianNoise,
    LaplaceMechanism,
    NormalInverseGamma,
    NormalInverseWishart,
    gibbs_ss_noisy,
    gibbs_ss_prior,
    gibbs_ss_update,
    known_covariates,
    release_regression,
    stack_releases,
)
from studies.baselines.bernstein_sheldon.elliptical_slice import elliptical_slice
from studies.baselines.bernstein_sheldon.regression_release import regression_sums

LANES, BURN_IN, DRAWS = 200, 200, 800


def prior_of(num_regressors: int) -> NormalInverseGamma:
    return NormalInverseGamma(np.zeros(num_regressors), 0.25 * np.eye(num_regressors), 20.0, 0.5)


def simulated(random, num_records, covariates):
    """θ and σ² from the prior, and responses to the covariates."""
    variance = 0.5 / random.gamma(20)
    weights = random.normal(size=covariates.shape[1] + 1) * np.sqrt(4 * variance)
    noise = np.sqrt(variance) * random.normal(size=num_records)
    return np.append(weights, variance), covariates @ weights[:-1] + weights[-1] + noise


def known(random, seed):
    x = random.normal(size=(1000, 1))
    truth, y = simulated(random, 1000, x)
    return truth, release_regression(x, y, 4.5, 4.0, LaplaceMechanism(1.0), seed=seed)


def learned(random, seed):
    """Two covariates whose mean and covariance come from the prior on them."""
    factor = random.normal(size=(2, 50))
    root = np.linalg.inv(np.linalg.cholesky(factor @ factor.T / 50)).T
    mean = 0.5 * root @ random.normal(size=2)
    x = mean + random.normal(size=(1000, 2)) @ root.T
    truth, y = simulated(random, 1000, x)
    return truth, release_regression(x, y, 7.0, 6.0, GaussianMechanism(2.0, 1e-5), seed=seed)


def noisy(random, seed):
    """A budget large enough for the noise of fourth moments, which the method ignores, to be small beside them."""
    x = random.normal(size=(5000, 1))
    truth, y = simulated(random, 5000, x)
    return truth, release_regression(x, y, 4.5, 4.0, LaplaceMechanism(10.0), fourth_moments=True, seed=seed)


def sample_known(release, key, **sweeps):
    return gibbs_ss_prior(release, prior_of(2), known_covariates(np.zeros(1), np.eye(1)), key, **sweeps)


def sample_learned(release, key, **sweeps):
    covariate_prior = NormalInverseWishart(np.zeros(2), 4.0, 50 * np.eye(2), 50.0)
    return gibbs_ss_update(release, prior_of(3), covariate_prior, key, **sweeps)


def sample_noisy(release, key, **sweeps):
    return gibbs_ss_noisy(release, prior_of(2), key, **sweeps)


def together(draws) -> np.ndarray:
    return np.concatenate([draws.weights, draws.variance[..., None]], axis=-1)


@pytest.mark.parametrize(
    ("simulate", "sample"),
    [(known, sample_known), (learned, sample_learned), (noisy, sample_noisy)],
    ids=["prior-laplace", "update-gaussian", "noisy-laplace"],
)
def test_intervals_cover_over_the_prior_and_do_not_without_the_noise(simulate, sample):
    random = np.random.default_rng(1)
    truths, releases = zip(*(simulate(random, seed) for seed in range(LANES)), strict=True)
    release = stack_releases(releases)
    draws = together(sample(release, jax.random.key(2), num_burn_in=BURN_IN, num_draws=DRAWS))
    assert_covers(draws, truths)
    ignorant = sample(with_little_noise(release), jax.random.key(2), num_burn_in=BURN_IN, num_draws=DRAWS)
    with pytest.raises(AssertionError):
        assert_covers(together(ignorant), truths)


def test_without_noise_the_posterior_is_the_conjugate_one():
    random = np.random.default_rng(3)
    x = random.normal(size=(1000, 1))
    _, y = simulated(random, 1000, x)
    rows = np.column_stack([x, np.ones(1000)])
    release = release_regression(x, y, 5.0, 5.0, LaplaceMechanism(1.0), seed=1)
    exact = release._replace(sums=regression_sums(rows, y), noise=release.noise._replace(scale=1e-6))
    draws = sample_known(stack_releases([exact] * LANES), jax.random.key(4), num_burn_in=BURN_IN, num_draws=DRAWS)
    prior = prior_of(2)
    precision = rows.T @ rows + prior.precision
    mean = np.linalg.solve(precision, rows.T @ y)
    shape, scale = prior.shape + 500, prior.scale + 0.5 * (y @ y - mean @ precision @ mean)
    weights, variances = draws.weights[:, -1], draws.variance[:, -1]  # one draw of each chain: independent
    variance = scale / (shape - 1)
    assert_close(weights.mean(axis=0), mean, weights.std(axis=0) / np.sqrt(LANES))
    assert_close(variances.mean(), variance, variances.std() / np.sqrt(LANES))
    assert_variance(weights, variance * np.diagonal(np.linalg.inv(precision)))
    with pytest.raises(AssertionError):  # one record's worth of a different mean
        assert_close(weights.mean(axis=0), mean + 0.01, weights.std(axis=0) / np.sqrt(LANES))


def test_under_overwhelming_noise_the_posterior_is_the_prior():
    """Where the published sweep alone would hardly have left its start, the collapsed step crosses the prior."""
    release = release_regression(np.zeros((1000, 1)), np.zeros(1000), 4.0, 4.0, LaplaceMechanism(1.0), seed=1)
    blind = release._replace(noise=release.noise._replace(scale=1e7))
    draws = sample_known(stack_releases([blind] * LANES), jax.random.key(5), num_burn_in=BURN_IN, num_draws=DRAWS)
    within = draws.weights.var(axis=1).mean(axis=0)
    np.testing.assert_allclose(within, 4 * 0.5 / 19, rtol=0.1)  # of single chains, which need to mix for it


@pytest.mark.parametrize("most_tries", [2, 8])
def test_the_slice_step_leaves_a_gaussian_posterior_alone_however_soon_it_gives_up(x64, monkeypatch, most_tries):
    """N(1, 4) prior and a likelihood N(3; x, 0.25): posterior mean 3 − 2/17, variance 4/17."""
    monkeypatch.setattr("studies.baselines.bernstein_sheldon.elliptical_slice._MOST_TRIES", most_tries)

    def step(key, point):
        keys = jax.random.split(key)
        direction = 2 * jax.random.normal(keys[0])
        return elliptical_slice(keys[1], point, direction, jnp.asarray(1.0), lambda x: -2 * (x - 3) ** 2)

    def chain(key):
        start = 3 - 2 / 17 + jnp.sqrt(4 / 17) * jax.random.normal(jax.random.fold_in(key, 99))
        return jax.lax.fori_loop(0, 5, lambda i, x: step(jax.random.fold_in(key, i), x), start), start

    ends, starts = map(np.asarray, jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(6), 20_000)))
    assert_close(ends.mean(), 3 - 2 / 17, np.sqrt(4 / 17 / 20_000))
    assert_variance(ends, 4 / 17)
    assert abs(np.corrcoef(starts, ends)[0, 1]) < 0.9  # it moves
    with pytest.raises(AssertionError):
        assert_variance(ends, 1.1 * 4 / 17)


def test_ten_covariates_run_and_stay_finite():
    random = np.random.default_rng(7)
    x = random.normal(size=(2000, 10))
    _, y = simulated(random, 2000, x)
    release = release_regression(x, y, 4.5, 6.0, GaussianMechanism(1.0, 1e-5), fourth_moments=True, seed=1)
    assert isinstance(release.noise, GaussianNoise)
    draws = gibbs_ss_noisy(release, prior_of(11), jax.random.key(8), num_burn_in=5, num_draws=20)
    assert draws.weights.shape == (20, 11)
    assert np.all(np.isfinite(together(draws)))


def test_what_does_not_fit_together_is_refused():
    release = release_regression(np.zeros((9, 2)), np.zeros(9), 1.0, 1.0, LaplaceMechanism(1.0), seed=1)
    with pytest.raises(ValueError, match="fourth_moments=True"):
        gibbs_ss_noisy(release, prior_of(3), jax.random.key(0))
    with pytest.raises(ValueError, match="The prior has 2 weights"):
        gibbs_ss_prior(release, prior_of(2), known_covariates(np.zeros(1), np.eye(1)), jax.random.key(0))
