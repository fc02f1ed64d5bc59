"""Without noise and clipping, a run must land where it should: closed forms, quadrature and NumPyro's own SVI."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDiagonalNormal
from scipy.optimize import minimize

import dpvi
from dpvi.models.functions import from_functions

NUM_STEPS = 4000


def decaying(rate: float) -> optax.GradientTransformation:
    """Adam that settles: what is left at the end is far below the tolerances here."""
    return optax.adam(optax.cosine_decay_schedule(rate, NUM_STEPS))


def run_to_optimum(model, data, family, **options) -> dpvi.Posterior:
    plan = dpvi.plan_nonprivate(sampling_rate=1.0, num_steps=NUM_STEPS)
    estimator = dpvi.Aligned(num_draws=8)
    result = dpvi.fit(
        model,
        data,
        plan,
        family=family,
        estimator=estimator,
        optimizer=decaying(0.05),
        seed=0,
        progress=False,
        **options,
    )
    return result.posterior("last")


def regression_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 3)) @ np.array([[1.0, 0.7, 0.0], [0.0, 0.7, 0.0], [0.0, 0.0, 0.5]])
    return x, x @ np.array([0.5, -1.0, 2.0]) + rng.normal(size=60)


def linear_regression(x, y):
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)


def logistic_regression(x, y):
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("family", [dpvi.MeanField(), dpvi.FullRank(), dpvi.LowRank(3)], ids=lambda f: type(f).__name__)
def test_conjugate_regression_matches_its_closed_form(family):
    x, y = regression_data()
    precision = x.T @ x + np.eye(3)
    posterior = run_to_optimum(linear_regression, (x, y), family)
    mean, sd = posterior.distribution.mean, posterior.distribution.standard_deviations
    exact_mean = np.linalg.solve(precision, x.T @ y)
    exact_sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    mean_field_sd = 1 / np.sqrt(np.diag(precision))
    expected_sd = mean_field_sd if isinstance(family, dpvi.MeanField) else exact_sd
    np.testing.assert_allclose(mean, exact_mean, atol=0.01)
    np.testing.assert_allclose(sd, expected_sd, rtol=0.03)
    # power: the two answers differ by far more than the tolerance, so the test knows which family it looks at
    assert np.max(np.abs(exact_sd / mean_field_sd - 1)) > 0.2


@pytest.mark.usefixtures("x64")
def test_beta_bernoulli_matches_the_elbo_optimum_by_quadrature():
    successes, failures = 4, 1

    def beta_bernoulli(y):
        rate = numpyro.sample("rate", dist.Beta(2.0, 3.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Bernoulli(rate), obs=y)

    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()

    def negative_elbo(parameters: np.ndarray, prior: tuple[float, float]) -> float:
        location, log_sd = parameters
        z = location + np.exp(log_sd) * nodes
        # log p(z, y): the sigmoid's log-determinant adds one to each of Beta's exponents
        log_joint = (prior[0] + successes) * -np.logaddexp(0, -z) + (prior[1] + failures) * -np.logaddexp(0, z)
        return -(weights @ log_joint) - log_sd

    optimum = minimize(negative_elbo, [0.0, -1.0], args=((2.0, 3.0),), tol=1e-10).x
    y = np.array([1] * successes + [0] * failures)
    found = run_to_optimum(beta_bernoulli, (y,), dpvi.MeanField(scale="exp")).distribution
    assert abs(found.mean[0] - optimum[0]) < 0.02
    assert abs(np.log(found.scale[0]) - optimum[1]) < 0.03
    without_jacobian = minimize(negative_elbo, [0.0, -1.0], args=((1.0, 2.0),), tol=1e-10).x
    assert abs(found.mean[0] - without_jacobian[0]) > 0.1


def test_the_optimum_is_that_of_numpyro_svi():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 3)).astype(np.float32)
    y = (rng.random(300) < 1 / (1 + np.exp(-x @ np.array([1.0, -0.5, 0.0])))).astype(np.int32)
    ours = run_to_optimum(logistic_regression, (x, y), dpvi.MeanField()).distribution
    guide = AutoDiagonalNormal(logistic_regression)
    svi = SVI(logistic_regression, guide, decaying(0.05), Trace_ELBO(num_particles=8))
    with jax.numpy_dtype_promotion("standard"):
        theirs = guide.get_posterior(svi.run(jax.random.key(1), NUM_STEPS, x, y, progress_bar=False).params)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=0.01)
    np.testing.assert_allclose(ours.scale, np.sqrt(theirs.variance), rtol=0.05)


@pytest.mark.usefixtures("x64")
def test_a_poisson_sampled_run_averages_to_the_full_one():
    """κ < 1 changes the noise of the iterates, not where they go."""
    x = np.random.default_rng(8).normal(1.0, 1.0, size=(40, 2))
    model = from_functions(lambda z: -0.5 * jnp.sum(z**2), lambda z, record: -0.5 * jnp.sum((record - z) ** 2), 2)
    plan = dpvi.plan_nonprivate(sampling_rate=0.25, num_steps=20_000)
    result = dpvi.fit(model, x, plan, optimizer=optax.sgd(0.002), seed=2, progress=False)
    tail = result.trace.iterates[4000:, :2]
    optimum = x.sum(axis=0) / 41
    # iterates are an autoregression with rate 0.002 · 41, so their mean has n · rate / 2 effective draws
    standard_error = tail.std(axis=0) / np.sqrt(len(tail) * 0.002 * 41 / 2)
    assert np.all(np.abs(tail.mean(axis=0) - optimum) < 4 * standard_error)
    wrong = x.sum(axis=0) / (0.25 * 40 + 1)  # forgetting to divide by κ
    assert np.all(np.abs(tail.mean(axis=0) - wrong) > 10 * standard_error)
