"""NA-DPVI with a dense curvature: sums against rows, the sampler against brute force, coverage of dependent optima."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from support.small_models import private_plan, trace_of
from support.statistics import assert_close, assert_rates

from dpvi.declared.validation import ConvergenceWarning
from dpvi.families import MeanField
from dpvi.posterior.na_dpvi import (
    DenseModel,
    FamilyMixture,
    dense_model_of_run,
    dense_statistics,
    gradient_model,
    noise_aware,
    quadrature,
    slice_draws,
)
from dpvi.posterior.na_dpvi.dense import coordinates, log_mean_gradient, squares
from dpvi.posterior.na_dpvi.elliptical_slice import _warn_about_mixing, elliptical_slice
from dpvi.posterior.na_dpvi.model import TraceStatistics
from dpvi.release.trace import CurvatureSums

KAPPA = 0.1
BLOCK = 10
OPTIMUM = 0.3


def correlated_curvature(size: int, correlation: float, scale: float = 300.0) -> np.ndarray:
    """A whose inverse has equal correlations and whose diagonal is ``scale``."""
    A = np.linalg.inv(np.full((size, size), correlation) + (1 - correlation) * np.eye(size))
    return scale * A / A[0, 0]


def simulate(A, noise, num_steps, num_runs=1, seed=0, subsampling=0.0):
    """Gradient descent on a quadratic that has settled: iterates and gradients, (runs, steps, p)."""
    random, rate = np.random.default_rng(seed), 0.2 / (KAPPA * np.linalg.eigvalsh(A)[-1])
    phi, iterates, gradients = np.full((num_runs, len(A)), OPTIMUM), [], []
    scatter = np.sqrt(noise**2 + subsampling**2)
    for _ in range(num_steps + num_steps // 4):
        iterates.append(phi)
        gradients.append(KAPPA * (phi - OPTIMUM) @ A + scatter * random.normal(size=phi.shape))
        phi = phi - rate * gradients[-1]
    return (np.stack(part[num_steps // 4 :], axis=1) for part in (iterates, gradients))


def curvature_sums(iterates, gradients, block_length=BLOCK) -> CurvatureSums:
    """What a trace must hold, straight from all rows."""
    phi, g = (part.astype(np.float64).reshape(-1, block_length, part.shape[1]) for part in (iterates, gradients))
    return CurvatureSums(
        count=np.full(len(phi), float(block_length)),
        phi=phi.sum(1),
        gradient=g.sum(1),
        gradient_squared=(g**2).sum(1),
        phi_phi=np.einsum("bti,btj->bij", phi, phi),
        gradient_phi=np.einsum("bti,btj->bij", g, phi),
    )


def trace_with(iterates, gradients):
    return trace_of(iterates, BLOCK)._replace(curvature=curvature_sums(iterates, gradients))


def model_for(iterates, gradients, noise, subsampling_variance=False, prior_scale=1.0) -> DenseModel:
    size = iterates.shape[1]
    statistics = dense_statistics(trace_with(iterates, gradients), burn_in=0.0)
    return DenseModel(statistics, KAPPA, np.full(size, noise), np.full(size, prior_scale), subsampling_variance)


def random_symmetric(random, size, centre):
    root = random.normal(size=(size, size))
    return centre * (np.eye(size) + 0.1 * (root + root.T))


# Sums and coordinates


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_sums_say_what_all_rows_say(shift):
    (iterates,), (gradients,) = simulate(correlated_curvature(3, 0.8), 20.0, 200)
    iterates = iterates + shift
    model, random = model_for(iterates, gradients, 20.0), np.random.default_rng(1)
    for _ in range(3):
        B, offset = random_symmetric(random, 3, 30.0), random.normal(size=3)
        residuals = gradients - (iterates - iterates.mean(axis=0) - offset) @ B
        np.testing.assert_allclose(squares(model, B, offset), np.sum(residuals**2, axis=0), rtol=1e-8)


def test_burn_in_leaves_out_the_first_groups():
    (iterates,), (gradients,) = simulate(correlated_curvature(2, 0.5), 20.0, 200)
    statistics = dense_statistics(trace_with(iterates, gradients), burn_in=0.2)
    assert statistics.num_steps == 160
    np.testing.assert_allclose(statistics.phi_mean, iterates[40:].mean(axis=0), rtol=1e-12)
    centred = iterates[40:] - iterates[40:].mean(axis=0)
    expected = np.linalg.lstsq(centred, gradients[40:] - gradients[40:].mean(axis=0), rcond=None)[0].T
    np.testing.assert_allclose(statistics.slope, expected, rtol=1e-9)


def test_coordinates_turn_the_likelihood_into_independent_normals():
    """Differences of log likelihood between any two symmetric matrices are those of standard normals."""
    (iterates,), (gradients,) = simulate(correlated_curvature(4, 0.9), 20.0, 200)
    model, random = model_for(iterates, gradients, 20.0), np.random.default_rng(2)
    variance = np.array([100.0, 400.0, 900.0, 50.0])
    frame = coordinates(model, variance)
    lower = np.tril_indices(4)

    def both(standard):
        _, B = frame.matrix(standard)
        np.testing.assert_allclose(B, B.T, rtol=1e-9, atol=1e-9 * np.abs(B).max())
        mean_part = model.statistics.num_steps * model.statistics.gradient_mean**2
        log_likelihood = -0.5 * np.sum((squares(model, B, np.zeros(4)) - mean_part) / variance)
        return log_likelihood, -0.5 * np.sum(standard[lower] ** 2)

    points = [both((root + root.T) / 2) for root in random.normal(size=(6, 4, 4))]
    likelihoods, normals = np.array(points).T
    np.testing.assert_allclose(likelihoods - likelihoods[0], normals - normals[0], rtol=1e-7, atol=1e-7)


def test_the_mean_gradient_is_normal_with_the_optimum_integrated_out():
    (iterates,), (gradients,) = simulate(correlated_curvature(3, 0.8), 20.0, 200)
    model, random = model_for(iterates, gradients, 20.0, prior_scale=0.5), np.random.default_rng(3)
    variance = np.array([100.0, 400.0, 900.0])
    matrices = np.stack([random_symmetric(random, 3, 30.0) for _ in range(3)])
    statistics = model.statistics
    expected = [
        scipy.stats.multivariate_normal(cov=np.diag(variance) / statistics.num_steps + 0.25 * B @ B).logpdf(
            statistics.gradient_mean
        )
        for B in matrices
    ]
    found = log_mean_gradient(model, matrices, np.broadcast_to(variance, (3, 3)))
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0], rtol=1e-8)


# The sampler


def test_elliptical_slices_leave_a_known_posterior_alone():
    """A standard normal prior times a normal likelihood: mean 1.6 and variance 0.2."""
    random, states = np.random.default_rng(4), np.zeros((400, 1))
    kept = []
    for sweep in range(60):
        normal = random.standard_normal(states.shape)
        states = elliptical_slice(states, normal, lambda x, _: -0.5 * np.sum((x - 2) ** 2, axis=1) / 0.25, random)
        if sweep >= 20:
            kept.append(states[:, 0])
    draws = np.stack(kept, axis=1)
    size = effective_sample_size(draws)
    assert_close(draws.mean(), 1.6, np.sqrt(0.2 / size))
    assert_close(draws.var(), 0.2, 0.2 * np.sqrt(2 / effective_sample_size((draws - draws.mean()) ** 2)))
    with pytest.raises(AssertionError, match="standard errors"):  # as if the likelihood were half as wide
        assert_close(draws.mean(), 2 / (1 + 0.125), np.sqrt(0.2 / size))


def brute_force(model, iterates, gradients, num_draws):
    """The same posterior from all rows: NUTS on a Cholesky factor of B, φ* and ψ, flat over positive matrices."""
    size, noise, tau = len(model.noise_scale), model.noise_scale, model.prior_scale
    rows, columns = np.tril_indices(size)
    scale = np.sqrt(np.abs(np.diagonal(model.statistics.slope))).mean()

    def potential(unknowns):
        L = jnp.zeros((size, size)).at[rows, columns].set(unknowns["factor"])
        diagonal = jnp.exp(jnp.diagonal(L))
        L = scale * (jnp.tril(L, -1) + jnp.diag(diagonal))
        B, psi = L @ L.T, unknowns["psi"]
        phi_star = iterates.mean(axis=0) + tau * unknowns["optimum"]
        variance = noise**2 + (psi**2 if model.subsampling_variance else 0 * psi)
        residuals = gradients - (iterates - phi_star) @ B
        value = -0.5 * jnp.sum(residuals**2 / variance) - 0.5 * len(iterates) * jnp.sum(jnp.log(variance))
        # of B in L: Π L_ii^(p−i), and of L_ii in its logarithm: L_ii
        jacobian = jnp.sum((size - jnp.arange(size) + 1) * jnp.log(diagonal))
        return -(value + jacobian - 0.5 * jnp.sum(unknowns["optimum"] ** 2) - 0.5 * jnp.sum(psi**2))

    start = np.linalg.cholesky((model.statistics.slope + model.statistics.slope.T) / 2) / scale
    start[np.diag_indices(size)] = np.log(np.diagonal(start))
    initial = {"factor": start[rows, columns], "optimum": np.zeros(size), "psi": np.ones(size)}
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        iterates, gradients = jnp.asarray(iterates), jnp.asarray(gradients)
        kernel = NUTS(potential_fn=potential, dense_mass=True, target_accept_prob=0.9)
        sampler = MCMC(kernel, num_warmup=400, num_samples=num_draws, progress_bar=False)
        sampler.run(jax.random.key(1), init_params=jax.tree.map(jnp.asarray, initial))
        optimum = np.asarray(sampler.get_samples()["optimum"])
    return np.asarray(iterates).mean(axis=0) + np.asarray(tau) * optimum


def assert_same_distribution(draws, reference, directions):
    """Quantile levels of one sample in another, along several directions, both being correlated draws."""
    for direction in directions:
        ours, theirs = draws @ direction, reference @ direction
        for level in (0.05, 0.25, 0.5, 0.75, 0.95):
            point = np.quantile(theirs, level)
            sizes = [
                min(float(effective_sample_size((x <= point)[None].astype(float))), len(x)) for x in (ours, theirs)
            ]
            error = np.sqrt(level * (1 - level) * sum(1 / size for size in sizes))
            assert_close(np.mean(ours <= point), level, error)


CASES = [(2, 0.95, 150, False), (2, 0.9, 150, True), (4, 0.7, 200, False)]


@pytest.mark.parametrize(("size", "correlation", "num_steps", "subsampling_variance"), CASES)
def test_the_sampler_draws_from_the_brute_force_posterior(size, correlation, num_steps, subsampling_variance):
    noise, subsampling = (2.0, 1.5) if subsampling_variance else (20.0, 0.0)
    (iterates,), (gradients,) = simulate(
        correlated_curvature(size, correlation), noise, num_steps, seed=5, subsampling=subsampling
    )
    model = model_for(iterates, gradients, noise, subsampling_variance)
    reference = brute_force(model, iterates, gradients, 1500)
    draws = slice_draws(model, 4000, np.random.default_rng(6))
    draws = draws.reshape(-1, 50, size).swapaxes(0, 1).reshape(-1, size)  # chain by chain
    directions = [*np.eye(size), np.ones(size), np.resize([1.0, -1.0], size)]
    assert_same_distribution(draws, reference, directions)
    wrong = slice_draws(model._replace(noise_scale=3 * model.noise_scale), 4000, np.random.default_rng(6))
    with pytest.raises(AssertionError, match="standard errors"):  # three times the noise would be noticed
        assert_same_distribution(wrong, reference, directions)


def test_chains_that_have_not_mixed_are_named():
    """Means that differ by more than the spread of a chain explains; chains that agree say nothing."""
    together = np.random.default_rng(0).normal(size=(40, 50, 2))
    _warn_about_mixing(together)
    apart = together + np.linspace(-2, 2, 50)[:, None]
    with pytest.warns(ConvergenceWarning, match="have not mixed"):
        _warn_about_mixing(apart)


# What it is for


def diagonal_ranks(iterates, gradients, noise):
    """P(φ* ≤ truth) of every run and parameter under the paper's diagonal model."""
    runs, steps, size = iterates.shape
    phi, g = (part.swapaxes(1, 2).reshape(runs * size, steps).T for part in (iterates, gradients))
    centred = phi - phi.mean(axis=0)
    spread = np.sum(centred**2, axis=0)
    slope = np.sum(g * centred, axis=0) / spread
    residual = np.sum((g - g.mean(axis=0)) ** 2, axis=0) - spread * slope**2
    statistics = TraceStatistics(float(steps), phi.mean(axis=0), spread, g.mean(axis=0), slope, residual)
    model = gradient_model(statistics, KAPPA, noise, subsampling_variance=False)
    return quadrature(model).cdf(np.full(runs * size, OPTIMUM)).reshape(runs, size)


def test_dense_intervals_cover_an_optimum_that_diagonal_ones_miss():
    """One weak direction shared by all parameters: the diagonal model takes it for several strong ones."""
    num_runs, size, noise = 100, 4, 20.0
    iterates, gradients = simulate(correlated_curvature(size, 0.9, 900.0), noise, 4000, num_runs, seed=8)
    ranks = np.empty((num_runs, size))
    for run in range(num_runs):
        model = model_for(iterates[run], gradients[run], noise)
        ranks[run] = np.mean(slice_draws(model, 400, np.random.default_rng(run), 15) <= OPTIMUM, axis=0)
    for column in range(size):  # runs are independent, parameters of a run are not
        assert_rates(np.sum(np.abs(ranks[:, column] - 0.5) < 0.45), num_runs, 0.9)
    covered = np.sum(np.abs(diagonal_ranks(iterates, gradients, noise) - 0.5) < 0.45, axis=0)
    assert np.all(covered < 0.7 * num_runs)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_rates(covered, num_runs, 0.9)


# As a user meets it

FAMILY, PLAN = MeanField(), private_plan(200, sampling_rate=KAPPA, noise_multiplier=20.0)
VANILLA = {"name": "Vanilla", "num_draws": 1}


def run_trace():
    (iterates,), (gradients,) = simulate(correlated_curvature(4, 0.9), 20.0, 200)
    return trace_with(iterates.astype(np.float32), gradients)


def test_a_posterior_keeps_the_dependence_of_optima():
    mixture = noise_aware(run_trace(), FAMILY, PLAN, VANILLA, curvature="dense", num_draws=500)
    assert isinstance(mixture, FamilyMixture)
    assert mixture.components.shape == (500, 4)
    assert mixture.components.dtype == np.float32
    assert np.corrcoef(mixture.components.T)[0, 1] > 0.5
    again = noise_aware(run_trace(), FAMILY, PLAN, VANILLA, curvature="dense", num_draws=500)
    np.testing.assert_array_equal(mixture.components, again.components)
    assert mixture.sample(jax.random.key(0), 3).shape == (3, 2)


def test_the_model_of_a_run_has_its_plans_noise():
    estimator = {"name": "Preconditioned", "beta": [1.0, 1.0, 20.0, 20.0], "num_draws": 1}
    model = dense_model_of_run(run_trace(), FAMILY, PLAN, estimator, location_prior_scale=10.0)
    np.testing.assert_allclose(model.noise_scale, [20.0, 20.0, 1.0, 1.0])
    np.testing.assert_array_equal(model.prior_scale, [10.0, 10.0, 1.0, 1.0])
    assert model.statistics.num_steps == 160


def test_what_a_dense_curvature_cannot_do_is_said():
    trace = run_trace()
    with pytest.raises(ValueError, match=r"curvature must be one of 'diagonal', 'dense'"):
        noise_aware(trace, FAMILY, PLAN, VANILLA, curvature="full")
    with pytest.raises(ValueError, match=r"'elliptical_slice' with curvature='dense', got 'nuts'"):
        noise_aware(trace, FAMILY, PLAN, VANILLA, curvature="dense", engine="nuts")
    with pytest.raises(ValueError, match="up to 64 variational parameters; this trace of 4 has none"):
        noise_aware(trace._replace(curvature=None), FAMILY, PLAN, VANILLA, curvature="dense")
    with pytest.raises(ValueError, match="at least 6 moving steps"):
        dense_statistics(trace_with(np.eye(10, 4) + np.arange(40.0).reshape(10, 4) ** 2, np.ones((10, 4))), 0.95)
    with pytest.raises(ValueError, match="Aligned does not release such gradients"):
        noise_aware(trace, FAMILY, PLAN, {"name": "Aligned"}, curvature="dense")
    still = np.random.default_rng(0).normal(size=(40, 1)) @ np.ones((1, 4))
    with pytest.raises(ValueError, match="4 parameters moved at all"):
        dense_statistics(trace_with(still, still))
