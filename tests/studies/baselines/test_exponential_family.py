"""The conjugate samplers: the noise mixture against quadrature, a posterior against enumeration, and coverage."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from support.baselines_coverage import assert_covers, with_little_noise
from support.statistics import LEVEL, assert_close

from studies.baselines.bernstein_sheldon import (
    BetaBernoulli,
    DirichletCategorical,
    GammaExponential,
    GaussianMechanism,
    LaplaceMechanism,
    LaplaceNoise,
    NoisySums,
    release_bernoulli,
    release_categorical,
    release_exponential,
    sample_conjugate,
    stack_releases,
)
from studies.baselines.bernstein_sheldon.truncated_normal import truncated_normal

LANES, BURN_IN, DRAWS = 200, 200, 800


@pytest.mark.parametrize("residual", [0.0, 0.3, 5.0, 80.0])
def test_variances_of_laplace_noise_have_their_conditional_law(x64, residual):
    """p(ω | r) ∝ Exponential(ω; mean 2b²) N(r; 0, ω), integrated numerically in log ω."""
    b = 3.0
    draws = np.asarray(LaplaceNoise(b).variances(jax.random.key(1), jnp.full(20_000, residual)))

    def distribution(scale):
        grid = np.linspace(-45, 15, 60_001)
        omega = np.exp(grid)
        density = omega * np.exp(-omega / (2 * scale**2) - residual**2 / (2 * omega)) / np.sqrt(omega)
        mass = scipy.integrate.cumulative_trapezoid(density, grid, initial=0)
        return lambda values: np.interp(np.log(values), grid, mass / mass[-1])

    assert scipy.stats.kstest(draws, distribution(b)).pvalue > LEVEL
    assert scipy.stats.kstest(draws, distribution(1.2 * b)).pvalue < LEVEL


def test_the_mixture_is_laplace_noise(x64):
    keys = jax.random.split(jax.random.key(2))
    omega = LaplaceNoise(3.0).initial_variances(keys[0], 40_000)
    noise = np.asarray(jnp.sqrt(omega) * jax.random.normal(keys[1], (40_000,)))
    assert scipy.stats.kstest(noise / 3, scipy.stats.laplace.cdf).pvalue > LEVEL
    assert scipy.stats.kstest(noise / 3.15, scipy.stats.laplace.cdf).pvalue < LEVEL


@pytest.mark.parametrize("limits", [(-0.5, 2.0), (3.0, 3.5), (-9.0, -8.0), (20.0, np.inf), (-np.inf, -15.0)])
def test_truncated_normals_also_in_the_tails(x64, limits):
    keys = jax.random.split(jax.random.key(3), 5000)
    draw = jax.vmap(lambda key: truncated_normal(key, jnp.asarray(1.0), jnp.asarray(2.0), *map(jnp.asarray, limits)))
    draws = np.asarray(draw(keys))
    standard = [(limit - 1.0) / 2.0 for limit in limits]
    assert scipy.stats.kstest((draws - 1.0) / 2.0, scipy.stats.truncnorm(*standard).cdf).pvalue > LEVEL
    assert np.all((draws >= limits[0]) & (draws <= limits[1]))


def test_truncated_normals_beyond_all_precision_stay_at_the_near_end(x64):
    for limits, near in (((200.0, 300.0), 200.0), ((-300.0, -200.0), -200.0)):
        drawn = truncated_normal(jax.random.key(4), jnp.asarray(0.0), jnp.asarray(1.0), *map(jnp.asarray, limits))
        assert float(drawn) == near


def enumerated(noisy_sum: float, scale: float, size: int, alpha: float, beta: float) -> tuple[float, float]:
    """Mean and standard deviation of θ given z: each s with its beta-binomial probability times the Laplace density."""
    counts = np.arange(size + 1)
    weights = scipy.stats.betabinom(size, alpha, beta).pmf(counts) * np.exp(-np.abs(noisy_sum - counts) / scale)
    weights /= weights.sum()
    law = scipy.stats.beta(alpha + counts, beta + size - counts)
    mean = weights @ law.mean()
    return mean, np.sqrt(weights @ (law.var() + law.mean() ** 2) - mean**2)


def assert_enumerated(draws: np.ndarray, mean: float, deviation: float) -> None:
    """Means and mean squares over independent chains, within their standard errors and the central limit's error.

    The limit is given 0.02 standard deviations of room for the mean and 3 % for the variance.
    """
    means, squares = draws.mean(axis=1), ((draws - mean) ** 2).mean(axis=1)
    for found, expected, room in ((means, mean, 0.02 * deviation), (squares, deviation**2, 0.03 * deviation**2)):
        excess = max(abs(found.mean() - expected) - room, 0.0)
        assert_close(excess, 0.0, found.std() / np.sqrt(len(found)))


@pytest.mark.parametrize("noisy_sum", [12.0, 30.0, 57.0], ids=["low", "middle", "more than all"])
def test_few_coin_tosses_against_enumeration(noisy_sum):
    size, scale, prior = 50, 8.0, (4.0, 4.0)
    one = NoisySums(np.array([noisy_sum]), LaplaceNoise(scale), size, 0.0, 1.0)
    release = stack_releases([one] * LANES)
    draws = sample_conjugate(release, BetaBernoulli(*prior), jax.random.key(5), num_burn_in=BURN_IN, num_draws=DRAWS)
    assert_enumerated(draws, *enumerated(noisy_sum, scale, size, *prior))
    clipped = np.clip(noisy_sum, 0, size)
    ignored = scipy.stats.beta(prior[0] + clipped, prior[1] + size - clipped)
    with pytest.raises(AssertionError):  # the noise ignored
        assert_enumerated(draws, ignored.mean(), ignored.std())
    with pytest.raises(AssertionError):  # half the noise
        assert_enumerated(draws, *enumerated(noisy_sum, scale / 2, size, *prior))


def bernoulli(random, seed):
    theta = random.beta(4, 4)
    return theta, release_bernoulli(random.random(1000) < theta, LaplaceMechanism(0.03), seed=seed)


def categorical(random, seed):
    theta = random.dirichlet([5, 3, 2])
    records = random.choice(3, 1000, p=theta)
    return theta, release_categorical(records, 3, GaussianMechanism(0.2, 1e-5), seed=seed)


def exponential(random, seed):
    """Bounds that clamp about a fifth of the records at a typical rate."""
    theta = random.gamma(8, 1 / 2)
    return theta, release_exponential(
        random.exponential(1 / theta, 1000), (0.02, 0.4), LaplaceMechanism(0.05), seed=seed
    )


@pytest.mark.parametrize(
    ("simulate", "model"),
    [
        (bernoulli, BetaBernoulli(4.0, 4.0)),
        (categorical, DirichletCategorical(np.array([5.0, 3.0, 2.0]))),
        (exponential, GammaExponential(8.0, 2.0)),
    ],
    ids=["bernoulli-laplace", "categorical-gaussian", "exponential-laplace"],
)
def test_intervals_cover_over_the_prior_and_do_not_without_the_noise(simulate, model):
    random = np.random.default_rng(6)
    truths, releases = zip(*(simulate(random, seed) for seed in range(LANES)), strict=True)
    release = stack_releases(releases)

    def draws(seen):
        return sample_conjugate(seen, model, jax.random.key(7), num_burn_in=BURN_IN, num_draws=DRAWS)

    assert_covers(draws(release), truths)
    with pytest.raises(AssertionError):
        assert_covers(draws(with_little_noise(release)), truths)


def test_a_chain_is_the_same_alone_and_beside_others_in_law_and_repeats_with_its_key():
    release = release_bernoulli(np.ones(200), LaplaceMechanism(1.0), seed=1)
    model = BetaBernoulli(4.0, 4.0)
    first, again, other = (
        sample_conjugate(release, model, jax.random.key(seed), num_burn_in=0, num_draws=50) for seed in (1, 1, 2)
    )
    assert first.shape == (50,)
    assert first.dtype == np.float64
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == other)


def test_what_does_not_fit_together_is_refused():
    release = release_categorical(np.zeros(9), 3, LaplaceMechanism(1.0), seed=1)
    with pytest.raises(ValueError, match="release_bernoulli"):
        sample_conjugate(release, BetaBernoulli(1.0, 1.0), jax.random.key(0))
    with pytest.raises(ValueError, match="as many classes"):
        sample_conjugate(release, DirichletCategorical(np.ones(4)), jax.random.key(0))
    with pytest.raises(ValueError, match="num_draws must be a whole number of at least 1"):
        sample_conjugate(release, DirichletCategorical(np.ones(3)), jax.random.key(0), num_draws=0)
