"""Last iterate, average and stationary noise, for every family, on traces with known answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from support.small_models import trace_of

from dpvi.families import FullRank, LowRank, MeanField
from dpvi.posterior import Gaussian, averaged, last_iterate, stationary_noise

D = 3
FAMILIES = [MeanField(), MeanField(scale="exp"), FullRank(), FullRank(scale="exp"), LowRank(1), LowRank(2, scale="exp")]


def wandering(family) -> np.ndarray:
    """Iterates that jitter around a fixed point, in float32 as a run leaves them."""
    centre = np.linspace(-1, 1, family.num_parameters(D))
    return (centre + np.random.default_rng(8).normal(0, 0.1, (400, len(centre)))).astype(np.float32)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_the_last_iterate_is_the_familys_own_distribution(family):
    rows = wandering(family)
    posterior = last_iterate(trace_of(rows, 4), family)
    xi = jnp.asarray(rows[-1])
    np.testing.assert_allclose(posterior.mean, family.location(xi))
    np.testing.assert_allclose(posterior.standard_deviations, np.sqrt(family.variances(xi)), rtol=1e-5)
    z = jnp.array([0.3, -0.2, 0.9])
    np.testing.assert_allclose(posterior.log_prob(z), family.log_prob(xi, z), rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_averaging_takes_the_mean_of_the_unconstrained_parameters(family):
    rows = wandering(family)
    posterior = averaged(trace_of(rows, 4), family, slope_threshold=10.0)
    xi = jnp.asarray(rows.astype(np.float64).mean(axis=0), jnp.float32)
    np.testing.assert_allclose(posterior.mean, family.location(xi), rtol=1e-5)
    np.testing.assert_allclose(posterior.standard_deviations, np.sqrt(family.variances(xi)), rtol=1e-5)
    assert posterior.mean.dtype == rows.dtype


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_stationary_noise_adds_the_tails_variance_to_the_location(family):
    rows = wandering(family)
    trace = trace_of(rows, 4)
    plain = averaged(trace, family, slope_threshold=10.0)
    wide = stationary_noise(trace, family, slope_threshold=10.0)
    added = rows[:, :D].astype(np.float64).var(axis=0)
    np.testing.assert_array_equal(wide.mean, plain.mean)
    np.testing.assert_allclose(wide.standard_deviations**2, plain.standard_deviations**2 + added, rtol=1e-4)
    if wide.scale.ndim == 2:
        covariances = [np.asarray(g.scale, np.float64) @ np.asarray(g.scale, np.float64).T for g in (plain, wide)]
        np.testing.assert_allclose(covariances[1], covariances[0] + np.diag(added), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", [averaged, stationary_noise])
def test_a_smaller_threshold_shortens_the_tail(method):
    rows = np.linspace(0, 1, 400)[:, None] ** 0.5 * np.ones(2)
    strict, lax = (method(trace_of(rows, 4), MeanField(), slope_threshold=t).mean for t in (0.3, 10.0))
    assert strict[0] > lax[0]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dense", [False, True])
def test_log_prob_is_scipys(dense):
    random = np.random.default_rng(0)
    mean, root = random.normal(size=D), random.normal(size=(D, D))
    covariance = root @ root.T if dense else np.diag([0.1, 1.0, 4.0])
    gaussian = Gaussian.from_covariance(mean, covariance) if dense else Gaussian(mean, np.sqrt(np.diag(covariance)))
    points = random.normal(size=(5, D))
    expected = scipy.stats.multivariate_normal(mean, covariance).logpdf(points)
    np.testing.assert_allclose([gaussian.log_prob(jnp.asarray(z)) for z in points], expected, rtol=1e-12)
    np.testing.assert_allclose(gaussian.standard_deviations, np.sqrt(np.diag(covariance)), rtol=1e-12)


@pytest.mark.parametrize("dense", [False, True])
def test_draws_have_the_gaussians_moments(dense):
    mean = np.array([1.0, -2.0], np.float32)
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]]) if dense else np.diag([0.25, 4.0])
    gaussian = (
        Gaussian.from_covariance(mean, covariance)
        if dense
        else Gaussian(mean, np.sqrt(np.diag(covariance)).astype("f4"))
    )
    num_samples = 20_000
    draws = np.asarray(gaussian.sample(jax.random.key(2), num_samples), np.float64)
    assert draws.shape == (num_samples, 2)
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * sd / np.sqrt(num_samples))
    errors = np.sqrt((np.outer(sd, sd) ** 2 + covariance**2) / num_samples)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * errors)
    if dense:  # the test would notice a factor used the wrong way round
        assert np.any(np.abs(gaussian.scale.T @ gaussian.scale - covariance) > 5 * errors)
