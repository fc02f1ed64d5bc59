"""The score posterior against brute force, and in its limits."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from support.numpyro_models import logistic
from support.score_models import BERNOULLI, EXPONENTIAL, measured, score_plan, sigmoid
from support.small_models import location_model
from support.statistics import assert_close

from dpvi.models.base import ModelError
from dpvi.models.numpyro import NumPyroModel
from dpvi.posterior.score import Blocks, ScoreModel, gauss_newton, sample_nuts
from dpvi.privacy.planning import plan_nonprivate

FLOAT = jax.ShapeDtypeStruct((), jnp.dtype("float32"))
N = 5000


def one_block(query, total, steps=1.0):
    return Blocks(np.atleast_2d(query), np.array([steps]), np.atleast_2d(total))


def bernoulli_moments(z, q, clip_norm):
    """Mean and second moment of clip(y − σ(q)) under z."""
    values = np.clip(np.array([0.0, 1.0]) - sigmoid(q), -clip_norm, clip_norm)
    probabilities = np.stack([1 - sigmoid(z), sigmoid(z)], axis=-1)
    return probabilities @ values, probabilities @ values**2


def exponential_moments(z, q, clip_norm):
    """The same for clip(1 − e^q y), y exponential with rate e^z, by quadrature over the quantiles of y."""
    levels = (np.arange(20_000) + 0.5) / 20_000
    y = -np.log1p(-levels) * np.exp(-np.asarray(z))[..., None]
    values = np.clip(1 - np.exp(q) * y, -clip_norm, clip_norm)
    return values.mean(axis=-1), (values**2).mean(axis=-1)


def brute_force(plan, blocks, log_prior, moments, grid):
    """Mean and standard deviation of z on a grid, for N records; all blocks at one query point."""
    first, second = moments(grid, blocks.query[0, 0], plan.clip_norm)
    kappa, steps = plan.sampling_rate, blocks.steps.sum()
    variance = N * (second - first**2) + ((1 - kappa) / kappa * N * second + (plan.noise_scale / kappa) ** 2) / steps
    target = blocks.steps @ blocks.mean_noisy_sum[:, 0] / steps / kappa
    log_density = log_prior(grid) + scipy.stats.norm.logpdf(target, N * first, np.sqrt(variance))
    weights = np.exp(log_density - log_density.max())
    mean = grid @ weights / weights.sum()
    return mean, np.sqrt((grid - mean) ** 2 @ weights / weights.sum())


CASES = [
    (
        BERNOULLI,
        score_plan(N, clip_norm=0.45),  # every score is clipped on one side
        bernoulli_moments,
        lambda z: scipy.stats.beta.logpdf(sigmoid(z), 10, 10) + np.log(sigmoid(z) * (1 - sigmoid(z))),
        np.linspace(-2, 2, 2001),
    ),
    (
        EXPONENTIAL,
        score_plan(N, clip_norm=1.0),
        exponential_moments,
        lambda z: scipy.stats.gamma.logpdf(np.exp(z), 8, scale=0.5) + z,
        np.linspace(1.0, 1.8, 201),
    ),
]


@pytest.mark.parametrize(("example", "plan", "moments", "log_prior", "grid"), CASES, ids=["bernoulli", "exponential"])
def test_gauss_newton_and_nuts_equal_brute_force(example, plan, moments, log_prior, grid):
    scores = ScoreModel(example.model, plan, num_simulated=200_000)
    assert scores.exact == (example is BERNOULLI)
    random = np.random.default_rng(1)
    records = example.draw_records(random, example.start + 0.05, N)
    blocks = measured(scores, example, records, 1, random)
    mean, sd = brute_force(plan, blocks, log_prior, moments, grid)
    found = gauss_newton(scores, blocks, start=blocks.query[-1])
    assert found.converged
    np.testing.assert_allclose(found.mean, mean, atol=0.15 * sd)  # simulation: a standard error of 0.06
    np.testing.assert_allclose(np.sqrt(found.covariance), sd, rtol=0.05)
    if example is BERNOULLI:
        draws = sample_nuts(scores, blocks, jax.random.key(0), num_samples=500, num_warmup=200)
        effective = 150  # NUTS in one near-Gaussian dimension does better than this
        assert_close(draws.mean(), mean, sd / np.sqrt(effective))
        assert_close(draws.std(), sd, sd / np.sqrt(2 * effective))


def test_nuts_reweights_simulated_records():
    """The chain agrees with Gauss-Newton, and not with an answer one standard deviation off."""
    scores = ScoreModel(EXPONENTIAL.model, score_plan(N, clip_norm=3.0), num_simulated=1000)
    random = np.random.default_rng(2)
    blocks = measured(scores, EXPONENTIAL, EXPONENTIAL.draw_records(random, 1.5, N), 2, random)
    found = gauss_newton(scores, blocks, start=blocks.query[-1])
    sd = np.sqrt(found.covariance[0, 0])
    draws = sample_nuts(scores, blocks, jax.random.key(0), num_samples=400, num_warmup=200)
    assert_close(draws.mean(), found.mean[0], sd * (0.05 + 1 / np.sqrt(100)))
    assert_close(draws.std(), sd, sd * (0.05 + 1 / np.sqrt(200)))
    with pytest.raises(AssertionError):
        assert_close(draws.mean(), found.mean[0] + sd, sd * (0.05 + 1 / np.sqrt(100)))


def normal(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


@pytest.mark.parametrize("query", [-1.0, 0.7])
def test_without_noise_and_clipping_it_is_the_exact_posterior(query):
    """z ~ N(0, 4), y | z ~ N(z, 1): precision 1/4 + N, mean Σy over it. B g removes all error from the mean."""
    y = 0.7 + np.random.default_rng(0).normal(size=50)
    num_simulated = 20_000
    scores = ScoreModel(NumPyroModel(normal, FLOAT), plan_nonprivate(1.0, 10), 50, num_simulated=num_simulated)
    found = gauss_newton(scores, one_block([query], [np.sum(y - query)], 10.0))
    precision = 0.25 + 50
    assert_close(1 / found.covariance[0, 0], precision, 50 * np.sqrt(2 / num_simulated))
    np.testing.assert_allclose(found.mean, y.sum() / precision, rtol=2e-4)


def test_subsampling_widens_by_the_second_moment():
    """κ < 1 without noise: n steps at q give variance N + (1−κ)/(nκ) N (1 + (z−q)²) for y − q."""
    plan, steps, query, truth = plan_nonprivate(0.1, 10), 10.0, -1.0, 1.0
    scores = ScoreModel(NumPyroModel(normal, FLOAT), plan, 50)
    found = gauss_newton(scores, one_block([query], [0.1 * 50 * (truth - query)], steps))
    variance = 50 + 0.9 / (steps * 0.1) * 50 * (1 + (found.mean[0] - query) ** 2)
    expected = 0.25 + 50**2 / variance
    assert_close(1 / found.covariance[0, 0], expected, expected * 2 * np.sqrt(2 / scores.num_simulated))
    wrong = 0.25 + 50**2 / (50 + 0.9 / (steps * 0.1) * 50)  # the covariance in place of the second moment
    with pytest.raises(AssertionError):
        assert_close(1 / found.covariance[0, 0], wrong, wrong * 2 * np.sqrt(2 / scores.num_simulated))


def test_enumeration_is_exact_without_noise():
    """Beta-Bernoulli in z: mode σ(ẑ) = (10 + Σy)/(20 + N), precision (20 + N) s(1 − s)."""
    scores = ScoreModel(BERNOULLI.model, plan_nonprivate(1.0, 10), N)
    found = gauss_newton(scores, one_block([0.0], [1800.0 - N / 2], 10.0))
    share = (10 + 1800) / (20 + N)
    np.testing.assert_allclose(sigmoid(found.mean), share, rtol=1e-5)
    np.testing.assert_allclose(1 / found.covariance[0, 0], (20 + N) * share * (1 - share), rtol=1e-3)


@pytest.mark.parametrize("total", [0.0, 1e6])
def test_under_huge_noise_it_is_the_prior(total):
    """Beta(10, 10) in z has its mode at 0 and curvature 20/4 there."""
    scores = ScoreModel(BERNOULLI.model, score_plan(N, noise_multiplier=1e9))
    found = gauss_newton(scores, one_block([0.3], [total], 10_000.0))
    np.testing.assert_allclose(found.mean, 0.0, atol=1e-3)
    np.testing.assert_allclose(found.covariance, 0.2, rtol=1e-3)


def test_clipped_scores_are_the_mechanisms():
    scores = ScoreModel(EXPONENTIAL.model, score_plan(N, clip_norm=1.5))
    y = np.array([0.01, 0.2, 3.0, np.inf])
    with jax.enable_x64(True):
        clipped = scores.clipped_scores(jnp.array([[1.0], [2.0]]), jnp.asarray(y))
    assert clipped.shape == (4, 2, 1)
    expected = np.clip(1 - np.exp([1.0, 2.0]) * y[:3, None], -1.5, 1.5)
    np.testing.assert_allclose(clipped[:3, :, 0], expected, rtol=1e-6)
    assert not np.any(clipped[3])  # a record without a finite score contributes nothing


def test_covariates_are_drawn_and_the_response_enumerated():
    structure = (jax.ShapeDtypeStruct((2,), jnp.dtype("float32")), jax.ShapeDtypeStruct((), jnp.dtype("int32")))
    model = NumPyroModel(logistic, structure)
    law = lambda key, n: jax.random.normal(key, (n, 2))  # noqa: E731
    scores = ScoreModel(model, plan_nonprivate(1.0, 1), N, covariate_law=law, num_simulated=5000)
    random = np.random.default_rng(5)
    x, truth = random.normal(size=(N, 2)), np.array([0.8, -0.5])
    y = random.uniform(size=N) < sigmoid(x @ truth)
    information = (x * (sigmoid(x @ truth) * (1 - sigmoid(x @ truth)))[:, None]).T @ x
    query = truth + 0.05
    found = gauss_newton(scores, one_block(query, x.T @ (y - sigmoid(x @ query))))
    assert_close(found.mean, truth, np.sqrt(np.diag(found.covariance)))
    np.testing.assert_allclose(np.linalg.inv(found.covariance), information + np.eye(2), atol=0.06 * information.max())


def test_what_is_missing_is_said():
    with pytest.raises(ValueError, match="needs the number of records"):
        ScoreModel(BERNOULLI.model, plan_nonprivate(0.1, 10))
    with pytest.raises(ValueError, match="declares 5000 public records"):
        ScoreModel(BERNOULLI.model, score_plan(N), num_records=4000)
    with pytest.raises(ModelError, match="models written for NumPyro or PyMC only"):
        ScoreModel(location_model(), score_plan(N))


def test_seeds_differ_by_the_error_that_is_part_of_the_covariance():
    """The spread of answers over seeds is the Monte Carlo part R of the covariance, here most of it."""
    plan = score_plan(100_000, noise_multiplier=1.0, clip_norm=1.0)
    scores = ScoreModel(EXPONENTIAL.model, plan, num_simulated=500)
    records = EXPONENTIAL.draw_records(np.random.default_rng(9), EXPONENTIAL.start, 100_000)
    total = plan.sampling_rate * np.clip(EXPONENTIAL.score(records, EXPONENTIAL.start), -1, 1).sum()
    block = one_block([EXPONENTIAL.start], [total], 10_000.0)
    found = [gauss_newton(scores, block, start=block.query[-1], seed=seed) for seed in range(60)]
    spread = np.std([each.mean[0] for each in found])
    claimed = np.sqrt(np.mean([each.covariance[0, 0] for each in found]))
    assert_close(spread, claimed, claimed / np.sqrt(2 * 60))
    with pytest.raises(AssertionError):  # what would be claimed without it
        assert_close(spread, claimed / np.sqrt(1 + 100_000 / 500 * 0.1), claimed / np.sqrt(2 * 60))


def poisson_regression(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ w - 1.0)), obs=y)


def test_discrete_draws_do_not_keep_gauss_newton_from_its_answer(monkeypatch):
    structure = {
        "x": jax.ShapeDtypeStruct((3,), jnp.dtype("float32")),
        "y": jax.ShapeDtypeStruct((), jnp.dtype("int32")),
    }
    model = NumPyroModel(poisson_regression, structure)

    def law(key, n):
        return (jax.random.uniform(key, (n, 3)) < 0.4).astype(jnp.result_type(float))

    plan = score_plan(N, clip_norm=1.5)
    random = np.random.default_rng(5)
    x = (random.uniform(size=(N, 3)) < 0.4).astype(float)
    y = random.poisson(np.exp(x @ [0.4, -0.3, 0.2] - 1.0))
    scores = x * (y - np.exp(-1.0))[:, None]
    released = (scores * np.minimum(1, 1.5 / np.maximum(np.linalg.norm(scores, axis=1), 1e-9))[:, None]).sum(axis=0)
    blocks = one_block(np.zeros(3), plan.sampling_rate * released, 100.0)

    def answers():
        law_of_scores = ScoreModel(model, plan, covariate_law=law, num_simulated=1000)  # a new one compiles anew
        return [gauss_newton(law_of_scores, blocks, np.zeros(3), seed) for seed in range(6)]

    found = answers()
    assert max(one.decrement for one in found) < 1e-4
    assert max(one.evaluations for one in found) < 8
    module = importlib.import_module("dpvi.posterior.score.gauss_newton")  # the package has a function of that name
    monkeypatch.setattr(module, "_NEAR", 0.0)  # records drawn anew at every step
    assert max(one.decrement for one in answers()) > 1e-4
