"""NA-DPVI's model and engines: sums against rows, exact against two samplers, coverage of a known optimum."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, init_to_value
from support.small_models import block_sums, trace_of
from support.statistics import assert_close, assert_rates

from dpvi.posterior.na_dpvi import (
    gradient_model,
    laplace_approximation,
    log_likelihood,
    nuts_draws,
    quadrature,
    trace_statistics,
)
from dpvi.posterior.na_dpvi.exact import exact_draws
from dpvi.posterior.na_dpvi.laplace import derivatives
from dpvi.posterior.na_dpvi.model import conditional, log_prior
from dpvi.release.trace import Trace

KAPPA = 0.1
BLOCK = 10


def simulate(num_steps, size, curvature, optimum, noise, rate, subsampling=0.0, start=0.0, seed=0):
    """Gradient descent on a quadratic with noisy gradients: every column is a run of its own."""
    random = np.random.default_rng(seed)
    phi, iterates, gradients = np.full(size, optimum + start), [], []
    for _ in range(num_steps):
        scatter = np.sqrt(noise**2 + subsampling**2) * random.normal(size=size)
        iterates.append(phi)
        gradients.append(KAPPA * curvature * (phi - optimum) + scatter)
        phi = phi - rate * gradients[-1]
    return np.array(iterates), np.array(gradients)


def trace_with(iterates, gradients, block_length=BLOCK) -> Trace:
    blocks = block_sums(iterates, gradients, block_length, np.ones(len(iterates), bool))
    return trace_of(iterates, block_length)._replace(blocks=blocks)


# name: simulation; relaxation takes 1/(rate κ curvature) steps
RUNS = {
    "well known": {"num_steps": 4000, "curvature": 500.0, "optimum": 0.3, "noise": 20.0, "rate": 5e-4},
    "weak": {"num_steps": 1000, "curvature": 3.0, "optimum": 0.3, "noise": 6.0, "rate": 1e-2},
    "in transit": {
        "num_steps": 1000, "curvature": 50.0, "optimum": -2.0, "noise": 6.0, "rate": 1e-4, "start": 1.0,
    },
    "subsampling shows": {
        "num_steps": 2000, "curvature": 50.0, "optimum": 1.0, "noise": 1.0, "rate": 1e-2, "subsampling": 1.5,
    },
}  # fmt: skip


def model_for(name, size=4, subsampling_variance=True, prior_scale=1.0, **changes):
    run = RUNS[name] | changes
    trace = trace_with(*simulate(size=size, **run))
    return gradient_model(trace_statistics(trace), KAPPA, run["noise"], prior_scale, subsampling_variance)


# Sums


def test_six_sums_say_what_the_whole_trace_says():
    """The likelihood from sums is the likelihood of the rows, far from the origin too."""
    for shift in (0.0, 1e3):
        iterates, gradients = simulate(size=3, **RUNS["subsampling shows"])
        iterates = iterates + shift
        model = gradient_model(trace_statistics(trace_with(iterates, gradients)), KAPPA, 1.0)
        used = slice(len(iterates) // 5, None)
        for v, offset, psi in [(40.0, 0.0, 0.5), (-3.0, 2.0, 0.0), (90.0, -0.1, 20.0)]:
            phi_star = 1.0 + shift + offset
            line = KAPPA * np.logaddexp(0, v)
            normal = scipy.stats.norm(line * (iterates[used] - phi_star), np.sqrt(1.0 + psi**2))
            ones = np.ones(3)
            found = log_likelihood(model, v * ones, phi_star * ones, psi * ones)
            np.testing.assert_allclose(found, normal.logpdf(gradients[used]).sum(axis=0), rtol=1e-10)


def test_burn_in_leaves_out_the_first_blocks_and_steps_that_did_not_move():
    iterates, gradients = simulate(size=2, **RUNS["weak"])
    counted = np.ones(len(iterates), bool)
    counted[500:600] = False
    trace = trace_of(iterates, BLOCK)._replace(blocks=block_sums(iterates, gradients, BLOCK, counted))
    statistics = trace_statistics(trace, burn_in=0.2)
    rows = counted.copy()
    rows[:180] = False  # a fifth of 900
    assert statistics.num_steps == rows.sum()
    np.testing.assert_allclose(statistics.phi_mean, iterates[rows].mean(axis=0), rtol=1e-12)
    for column in range(2):
        fit = scipy.stats.linregress(iterates[rows, column], gradients[rows, column])
        np.testing.assert_allclose(statistics.slope[column], fit.slope, rtol=1e-9)


def test_the_priors_are_those_of_the_paper():
    iterates, gradients = simulate(size=3, **RUNS["weak"])
    beta = np.array([1.0, 10.0, 100.0])
    model = gradient_model(trace_statistics(trace_with(iterates, gradients)), KAPPA, 6.0 / beta, [1.0, 10.0, 1.0])
    phi, g = iterates[200:], gradients[200:]
    centred = phi - phi.mean(axis=0)
    spread = np.sum(centred**2, axis=0)
    np.testing.assert_allclose(model.curvature_mean, np.abs(np.sum(g * centred, axis=0)) / (KAPPA * spread))
    np.testing.assert_allclose(model.curvature_scale, 6.0 / (KAPPA * beta * np.sqrt(spread)))
    np.testing.assert_allclose(model.statistics.phi_mean, phi.mean(axis=0))
    np.testing.assert_array_equal(model.prior_scale, [1.0, 10.0, 1.0])


def test_too_short_and_motionless_runs_are_refused():
    with pytest.raises(ValueError, match=r"only 2 moving steps are left after burn_in=0\.9"):
        trace_statistics(trace_with(np.random.default_rng(0).normal(size=(20, 2)), np.ones((20, 2)), 1), 0.9)
    with pytest.raises(ValueError, match="2 variational parameters never moved"):
        trace_statistics(trace_with(np.ones((20, 2)), np.ones((20, 2)), 1))


# Engines


@pytest.mark.parametrize("subsampling_variance", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_the_quadrature_is_brute_force_integration(name, subsampling_variance):
    """Moments and distribution of φ* against an enormous even grid."""
    model = model_for(name, 1, subsampling_variance)
    found = quadrature(model)
    v = model.curvature_mean + model.curvature_scale * np.linspace(-10, 10, 20_001 if subsampling_variance else 400_001)
    top = 1.1 * np.sqrt(model.statistics.residual / model.statistics.num_steps) + 2
    psi = np.linspace(0, 1, 301) * np.minimum(top, 9) if subsampling_variance else np.zeros(1)
    mean, spread, log_weight = [], [], []
    for value in psi:
        m, s = conditional(model, v, np.full(1, value))
        height = log_likelihood(model, v, m, np.full(1, value)) + log_prior(model, v, m, np.full(1, value))
        mean, spread, log_weight = [*mean, m], [*spread, s], [*log_weight, height + 0.5 * np.log(s)]
    mean, spread, log_weight = map(np.array, (mean, spread, log_weight))
    weight = np.exp(log_weight - log_weight.max())
    weight[0] /= 2 if subsampling_variance else 1  # trapezoid at ψ = 0
    weight /= weight.sum()
    centre = np.sum(weight * mean)
    deviation = np.sqrt(np.sum(weight * (spread + (mean - centre) ** 2)))
    np.testing.assert_allclose((found.mean - centre) / deviation, 0, atol=1e-3)
    np.testing.assert_allclose(found.standard_deviation, deviation, rtol=2e-3)
    for z in (-1.5, 0.0, 1.5):
        point = centre + z * deviation
        below = np.sum(weight * scipy.stats.norm.cdf(point, mean, np.sqrt(spread)))
        np.testing.assert_allclose(found.cdf(np.array([point])), below, atol=1e-3)


def assert_same_distribution(draws, reference):
    """Quantile levels of autocorrelated draws are those of the exact mixture."""
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        below = draws <= _quantile(reference, level)
        size = np.minimum(effective_sample_size(below[None].astype(float)), len(draws))
        assert_close(below.mean(axis=0), level, np.sqrt(level * (1 - level) / size))


def _quantile(reference, level):
    low, high = (reference.mean + side * 40 * reference.standard_deviation for side in (-1, 1))
    for _ in range(80):
        middle = 0.5 * (low + high)
        above = reference.cdf(middle) > level
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return middle


@pytest.mark.parametrize("name", RUNS)
def test_nuts_draws_from_the_exact_posterior(name):
    model = model_for(name)
    draws = nuts_draws(model, 3000, jax.random.key(5), num_warmup=500)
    assert_same_distribution(draws, quadrature(model))
    wrong = model._replace(noise_scale=model.noise_scale / 2, subsampling_variance=False)
    with pytest.raises(AssertionError, match="standard errors"):  # half the noise would be noticed
        assert_same_distribution(draws, quadrature(wrong))


def test_draws_of_the_exact_engine_are_from_its_mixture():
    model = model_for("weak")
    draws = exact_draws(model, 5000, np.random.default_rng(3))
    reference = quadrature(model)
    assert draws.shape == (5000, 4)
    for level in (0.05, 0.5, 0.95):
        assert_rates((draws <= _quantile(reference, level)).sum(axis=0), 5000, level)
    correlations = np.corrcoef(draws.T)[np.triu_indices(4, 1)]
    assert_close(correlations, 0, np.full(6, 1 / np.sqrt(5000)))


@pytest.mark.parametrize("name", ["weak", "subsampling shows"])
def test_exact_equals_nuts_on_all_rows(name):
    """The published model, written down step by step and sampled by brute force."""
    run = RUNS[name] | {"num_steps": 300}
    iterates, gradients = simulate(size=2, **run)
    model = gradient_model(trace_statistics(trace_with(iterates, gradients)), KAPPA, run["noise"])
    phi, observed = jnp.asarray(iterates[60:], jnp.float32), jnp.asarray(gradients[60:], jnp.float32)
    centred = phi - phi.mean(axis=0)
    spread = jnp.sum(centred**2, axis=0)

    def published():
        m = jnp.abs(jnp.sum(observed * centred, axis=0)) / (KAPPA * spread)
        v = numpyro.sample("v", dist.Normal(m, run["noise"] / (KAPPA * jnp.sqrt(spread))))
        phi_star = numpyro.sample("phi_star", dist.Normal(phi.mean(axis=0), 1.0))
        psi = numpyro.sample("psi", dist.Normal(jnp.zeros(2), 1.0))
        mean = KAPPA * jax.nn.softplus(v) * (phi - phi_star)
        numpyro.sample("gradients", dist.Normal(mean, jnp.sqrt(run["noise"] ** 2 + psi**2)), obs=observed)

    start = {"v": jnp.asarray(model.curvature_mean, jnp.float32), "phi_star": phi.mean(axis=0), "psi": jnp.ones(2)}
    with jax.numpy_dtype_promotion("standard"):
        kernel = NUTS(published, init_strategy=init_to_value(values=start), target_accept_prob=0.95)
        sampler = MCMC(kernel, num_warmup=1000, num_samples=5000, progress_bar=False)
        sampler.run(jax.random.key(2))
    assert_same_distribution(np.asarray(sampler.get_samples()["phi_star"], np.float64), quadrature(model))


@pytest.mark.usefixtures("x64")
def test_laplaces_derivatives_are_the_models():
    model = model_for("subsampling shows", 1)
    arrays = jax.tree.map(jnp.asarray, model._replace(subsampling_variance=1))

    def log_posterior(point):
        phi_star, v, psi = point[:1], point[1:2], point[2:]
        return jnp.sum(log_likelihood(arrays, v, phi_star, psi) + log_prior(arrays, v, phi_star, psi))

    for point in ([1.0, 50.0, 1.4], [3.0, -1.0, 0.2], [0.5, 2.0, 0.0]):
        gradient, hessian = derivatives(model, np.array([point]))
        np.testing.assert_allclose(gradient[0], jax.grad(log_posterior)(jnp.array(point)), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(hessian[0], jax.hessian(log_posterior)(jnp.array(point)), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("subsampling_variance", [False, True])
def test_laplace_sits_at_a_maximum(name, subsampling_variance):
    model = model_for(name, 8, subsampling_variance)
    approximation = laplace_approximation(model)
    point = np.zeros((8, 3))
    point[:, : approximation.mode.shape[1]] = approximation.mode
    scales = np.sqrt(np.diagonal(approximation.covariance, axis1=1, axis2=2))
    gradient, _ = derivatives(model, point)
    np.testing.assert_allclose(gradient[:, : scales.shape[1]] * scales, 0, atol=1e-5)
    assert np.all(np.linalg.eigvalsh(approximation.covariance / scales[:, :, None] / scales[:, None, :]) > 0)


def test_laplace_agrees_where_the_posterior_is_nearly_gaussian():
    model = model_for("subsampling shows", 50)
    approximation, exact = laplace_approximation(model), quadrature(model)
    assert np.all(model.curvature_mean > 10 * model.curvature_scale)
    deviations = np.sqrt(approximation.covariance[:, 0, 0])
    np.testing.assert_allclose(deviations, exact.standard_deviation, rtol=0.03)
    np.testing.assert_allclose((approximation.mode[:, 0] - exact.mean) / exact.standard_deviation, 0, atol=0.02)
    # where curvature is hardly known, tails are what Laplace cannot see
    weak = model_for("weak", 20)
    ratio = np.sqrt(laplace_approximation(weak).covariance[:, 0, 0]) / quadrature(weak).standard_deviation
    assert np.median(ratio) < 0.9


# What it is for


@pytest.mark.parametrize("engine", ["exact", "laplace"])
def test_intervals_cover_a_known_optimum_as_often_as_they_say(engine):
    num_runs = 2000
    model = model_for("well known", num_runs, subsampling_variance=False, seed=7)
    truth = np.full(num_runs, RUNS["well known"]["optimum"])

    def ranks(model):
        if engine == "exact":
            return quadrature(model).cdf(truth)
        approximation = laplace_approximation(model)
        return scipy.stats.norm.cdf(truth, approximation.mode[:, 0], np.sqrt(approximation.covariance[:, 0, 0]))

    def assert_covers(model):
        for level in (0.5, 0.8, 0.95):
            assert_rates(np.sum(np.abs(ranks(model) - 0.5) < level / 2), num_runs, level)

    assert_covers(model)
    for factor in (0.5, 2.0):  # half or twice the privacy noise
        wrong = gradient_model(model.statistics, KAPPA, factor * model.noise_scale, subsampling_variance=False)
        with pytest.raises(AssertionError, match="standard errors"):
            assert_covers(wrong)


def test_subsampling_variance_is_found_where_it_is_there():
    """Without ψ intervals are too short when gradients vary beyond the privacy noise, with it they are right."""
    num_runs = 1000
    truth = np.full(num_runs, RUNS["subsampling shows"]["optimum"])
    for subsampling_variance in (True, False):
        model = model_for("subsampling shows", num_runs, subsampling_variance, seed=3)
        covered = np.sum(np.abs(quadrature(model).cdf(truth) - 0.5) < 0.45)
        if subsampling_variance:
            assert_rates(covered, num_runs, 0.9)
        else:
            assert covered < 0.75 * num_runs
