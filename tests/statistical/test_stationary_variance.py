"""Near the optimum SGD iterates are an Ornstein-Uhlenbeck process whose variance the papers give in closed form.

DPVIm, equation E.7: Σ A + A Σ = λ V. NA-DPVI, Theorem 3: λσ²C²/(2κa) per coordinate, with λ there the step applied to
the noisy sum; ours is applied to the sum over κ, so λ = λ_ours / κ. Steps are finite here, so the exact discrete
covariance Σ = (I − λA) Σ (I − λA) + λ² V stands beside the continuous limit.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.linalg import solve_continuous_lyapunov, solve_discrete_lyapunov

import dpvi
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.models.functions import from_functions

NUM_RECORDS, KAPPA, CLIP, NUM_STEPS, RATE, LANES = 60, 0.5, 1e3, 4000, 5e-4, 24


def gaussian_mean_model(precision: np.ndarray):
    """Records x ~ N(z, precision⁻¹) with a flat prior: the loss is exactly quadratic with A = N · precision."""
    matrix = jnp.asarray(precision)
    return from_functions(
        lambda z: 0.0 * jnp.sum(z), lambda z, record: -0.5 * (record - z) @ matrix @ (record - z), precision.shape[0]
    )


def run(precision: np.ndarray, noise_multiplier: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Empirical covariance of the location iterates over independent runs, their records, and its standard error."""
    x = np.random.default_rng(1).normal(size=(NUM_RECORDS, precision.shape[0]))
    plan = Plan(1.0, 1e-5, (GaussianRelease("gradients", KAPPA, NUM_STEPS, noise_multiplier, CLIP),), "none: a test")
    results = dpvi.fit_many(
        gaussian_mean_model(precision),
        np.broadcast_to(x, (LANES, *x.shape)),
        plan,
        family=dpvi.MeanField(initial_scale=1e-4),
        optimizer=optax.sgd(RATE),
        initial_location=x.mean(axis=0),
        seeds=range(LANES),
        progress=False,
    )
    tails = np.stack([result.trace.iterates[NUM_STEPS // 4 :, : precision.shape[0]] for result in results])
    covariances = np.stack([np.cov(tail.T, bias=True) + np.outer(*[tail.mean(0) - x.mean(0)] * 2) for tail in tails])
    return covariances.mean(axis=0), x, covariances.std(axis=0, ddof=1) / np.sqrt(LANES)


@pytest.mark.usefixtures("x64")
def test_iterates_have_the_ornstein_uhlenbeck_covariance():
    precision = np.array([[1.0, 0.6], [0.6, 1.5]])
    noise_multiplier = 0.02
    empirical, x, standard_error = run(precision, noise_multiplier)
    curvature = NUM_RECORDS * precision
    scores = (x - x.mean(axis=0)) @ precision
    noise = (noise_multiplier * CLIP / KAPPA) ** 2 * np.eye(2) + (1 - KAPPA) / KAPPA * scores.T @ scores
    step = np.eye(2) - RATE * curvature
    exact = solve_discrete_lyapunov(step, RATE**2 * noise)
    continuous = solve_continuous_lyapunov(curvature, RATE * noise)
    assert np.all(np.abs(empirical - exact) < 4 * standard_error)
    np.testing.assert_allclose(exact, continuous, rtol=2 * RATE * np.linalg.eigvalsh(curvature)[-1])
    for factor in (2 / 3, 3 / 2):  # power: noise of another scale must not pass
        wrong = solve_discrete_lyapunov(step, RATE**2 * factor**2 * noise)
        assert np.any(np.abs(empirical - wrong) > 4 * standard_error)


@pytest.mark.usefixtures("x64")
def test_theorem_3_of_na_dpvi_gives_the_variance_of_one_coordinate():
    noise_multiplier = 0.1  # noise so large that subsampling adds little
    empirical, _, standard_error = run(np.eye(1), noise_multiplier)
    rate_of_the_sum = RATE / KAPPA
    theorem = rate_of_the_sum * (noise_multiplier * CLIP) ** 2 / (2 * KAPPA * NUM_RECORDS)
    discrete = 1 / (1 - RATE * NUM_RECORDS / 2)
    sampling = 1 + NUM_RECORDS * (1 - KAPPA) * KAPPA / (noise_multiplier * CLIP) ** 2
    assert abs(empirical[0, 0] - theorem * discrete * sampling) < 4 * standard_error[0, 0]
    assert abs(empirical[0, 0] - 1.5 * theorem) > 4 * standard_error[0, 0]
