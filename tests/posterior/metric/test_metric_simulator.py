"""What the model expects of clipped scores, beside finite sums in NumPy: enumerated responses and drawn ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from support.measuring import DIMENSION, measuring_plan, regression_model
from support.statistics import assert_close, tolerance

from dpvi.models.numpyro import NumPyroModel
from dpvi.posterior.metric.blocks import Blocks
from dpvi.posterior.metric.simulator import Simulator
from dpvi.posterior.score.model import ScoreModel

NUM_RECORDS, ROWS = 5000.0, 3000
POINT = np.array([0.4, -0.6, 0.2])
AWAY = POINT + np.array([0.3, 0.2, -0.2])
METRICS = np.stack([np.array([[1.5, 0.2, 0.0], [0.0, 1.0, -0.3], [0.1, 0.0, 0.7]]), 0.1 * np.eye(DIMENSION)])
BLOCKS = Blocks(np.stack([AWAY, POINT]), METRICS)  # the first clips about half of the records, the second hardly any
MOST = 60  # no count is larger


def counts(x, y):
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([DIMENSION]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ slopes)), obs=y)


def rows_of_covariates() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1.5, 1.5, size=(ROWS, DIMENSION))


def simulator_of(model: NumPyroModel, seed: int = 0) -> Simulator:
    return Simulator(ScoreModel(model, measuring_plan()), [rows_of_covariates()], NUM_RECORDS, seed)


@pytest.fixture(scope="module")
def logistic() -> Simulator:
    return simulator_of(regression_model())


def residuals(x, y):
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([DIMENSION - 1]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(x[:, 1:] @ slopes, scale), obs=y)


@pytest.mark.parametrize("model", ["logistic", "poisson"])
def test_the_curvature_of_a_canonical_model_is_that_of_its_covariates(model, request):
    assert not request.getfixturevalue(model).responsive(POINT)


def test_that_of_a_model_with_a_scale_depends_on_residuals():
    leaves = jax.ShapeDtypeStruct((DIMENSION,), jnp.dtype("float32")), jax.ShapeDtypeStruct((), jnp.dtype("float32"))
    assert simulator_of(NumPyroModel(residuals, leaves)).responsive(POINT)


@pytest.fixture(scope="module")
def poisson() -> Simulator:
    leaves = jax.ShapeDtypeStruct((DIMENSION,), jnp.dtype("float32")), jax.ShapeDtypeStruct((), jnp.dtype("int32"))
    return simulator_of(NumPyroModel(counts, leaves))


def all_values(kind: str, point: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every row with every response: rows, responses and probabilities."""
    rows = rows_of_covariates()
    support = np.arange(2 if kind == "logistic" else MOST)
    linear = rows @ point
    law = (
        scipy.stats.bernoulli(1 / (1 + np.exp(-linear))) if kind == "logistic" else scipy.stats.poisson(np.exp(linear))
    )
    weights = np.stack([law.pmf(value) for value in support], axis=1) / len(rows)
    return np.repeat(rows, len(support), axis=0), np.tile(support, len(rows)), weights.reshape(-1)


def scores_of(kind: str, point: np.ndarray, rows: np.ndarray, responses: np.ndarray) -> np.ndarray:
    linear = rows @ point
    mean = 1 / (1 + np.exp(-linear)) if kind == "logistic" else np.exp(linear)
    return rows * (responses - mean)[:, None]


def clipped(kind: str, block: int, rows: np.ndarray, responses: np.ndarray) -> np.ndarray:
    stretched = scores_of(kind, BLOCKS.query[block], rows, responses) @ BLOCKS.metric[block].T
    return stretched / np.maximum(np.linalg.norm(stretched, axis=1), 1)[:, None]


def exact(kind: str, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m_j and A_j = N E[c gᵀ]."""
    rows, responses, weights = all_values(kind, point)
    score = scores_of(kind, point, rows, responses)
    parts = [clipped(kind, block, rows, responses) for block in range(2)]
    means = np.stack([weights @ part for part in parts])
    slopes = np.stack([(part * weights[:, None]).T @ score for part in parts])
    return NUM_RECORDS * means, NUM_RECORDS * slopes


def finite_difference(simulator: Simulator, point: np.ndarray, reference: np.ndarray, step: float = 1e-4) -> np.ndarray:
    columns = []
    for axis in np.eye(DIMENSION):
        up, down = (simulator.expected(point + sign * step * axis, reference, BLOCKS).mean for sign in (1, -1))
        columns.append((up - down) / (2 * step))
    return np.stack(columns, axis=-1)


def test_enumerated_means_and_slopes_are_finite_sums(logistic):
    found = logistic.expected(POINT, POINT, BLOCKS)
    mean, slope = exact("logistic", POINT)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-6 * NUM_RECORDS)
    np.testing.assert_allclose(found.jacobian, slope, rtol=1e-6, atol=1e-6 * NUM_RECORDS)
    # the first block has a mean that clipping bends: without it, far from what is found
    unclipped = slope[1] @ (POINT - AWAY)
    assert np.linalg.norm(found.mean[0] - unclipped) > 0.01 * NUM_RECORDS


def test_enumerated_slopes_are_derivatives_of_means(logistic):
    for reference in (POINT, AWAY):  # no draw, so none is needed
        found = logistic.expected(POINT, reference, BLOCKS).jacobian
        np.testing.assert_allclose(found, finite_difference(logistic, POINT, reference), rtol=1e-5, atol=1e-3)


def test_drawn_means_are_exact_within_the_error_that_is_told(poisson):
    """At z and, with weights, near the reference. The error is that of simulating, without that of the rows."""
    for point in (POINT, POINT + 0.05):
        found = poisson.expected(point, POINT, BLOCKS)
        mean, _ = exact("poisson", point)
        standard_error = NUM_RECORDS * np.sqrt(np.diag(found.error)).reshape(2, DIMENSION)
        assert_close(found.mean, mean, standard_error)
        with pytest.raises(AssertionError):  # what is expected elsewhere
            assert_close(found.mean, exact("poisson", POINT + 0.3)[0], standard_error)


def spread_of_products(point: np.ndarray) -> np.ndarray:
    """The standard error of N Σ w c gᵀ from draws, (J, d, d)."""
    rows, responses, weights = all_values("poisson", point)
    score = scores_of("poisson", point, rows, responses)
    found = []
    for block in range(2):
        products = clipped("poisson", block, rows, responses)[:, :, None] * score[:, None, :]
        flat = products.reshape(len(products), -1)
        variance = weights @ flat**2 - (weights @ flat) ** 2
        found.append(np.sqrt(variance).reshape(DIMENSION, DIMENSION))
    return NUM_RECORDS * np.stack(found) / np.sqrt(ROWS)


def test_drawn_slopes_are_derivatives_of_means_within_their_error(poisson):
    found = poisson.expected(POINT, POINT, BLOCKS).jacobian
    _, slope = exact("poisson", POINT)
    standard_error = spread_of_products(POINT)
    assert_close(found, slope, standard_error)
    difference = finite_difference(poisson, POINT, POINT)
    assert_close(difference, slope, standard_error)
    for wrong in (0.8 * slope, slope[::-1]):  # and the slopes of the other block
        with pytest.raises(AssertionError):
            assert_close(found, wrong, standard_error)


def test_draws_are_those_of_the_reference_and_move_with_its_weights(poisson):
    """A mean that is smooth in z: with one reference, a step of 1e-6 changes it by its slope and by no draw."""
    step = 1e-6
    near, here = (poisson.expected(POINT + shift, POINT, BLOCKS).mean for shift in (step, 0.0))
    bound = np.linalg.norm(exact("poisson", POINT)[1], axis=(1, 2)) * 3 * step
    assert np.all(np.linalg.norm(near - here, axis=1) < bound)


def test_information_is_analytic_for_a_logistic_regression(logistic):
    rows = rows_of_covariates()
    for point in (POINT, AWAY):
        mean = 1 / (1 + np.exp(-rows @ point))
        analytic = (rows * (mean * (1 - mean))[:, None]).T @ rows / len(rows)
        np.testing.assert_allclose(logistic.information(point), analytic, rtol=1e-6)
        np.testing.assert_allclose(logistic.expected(point, point, BLOCKS).information, analytic, rtol=1e-6)


def test_hessians_average_to_the_information(logistic, poisson):
    for kind, simulator, values in (("logistic", logistic, 2), ("poisson", poisson, 1)):
        found, weights = simulator.hessians(POINT)
        np.testing.assert_allclose(weights.sum(), 1.0)
        rows, responses, shares = all_values(kind, POINT)
        score = scores_of(kind, POINT, rows, responses)
        information = (score * shares[:, None]).T @ score
        # for both, a Hessian does not depend on the response: only rows differ, of which some are taken
        spread = np.sqrt(np.einsum("m,mab->ab", weights, (found - information) ** 2) * values / len(weights))
        assert_close(np.einsum("m,mab->ab", weights, found), information, spread)
    assert len(found) < ROWS


def test_scores_have_mean_zero_where_they_were_drawn(logistic, poisson):
    exactly, weights = logistic.scores(POINT)
    np.testing.assert_allclose(weights @ exactly, 0.0, atol=1e-6)
    drawn, weights = poisson.scores(POINT)
    np.testing.assert_allclose(weights, 1 / ROWS)
    assert_close(weights @ drawn, 0.0, drawn.std(axis=0) / np.sqrt(ROWS))


def test_nothing_is_left_where_nothing_is_clipped(logistic):
    """e = c − B g is zero for the second block, at the point where it is measured."""
    found = logistic.expected(POINT, POINT, BLOCKS)
    parts = np.diag(found.residual).reshape(2, DIMENSION)
    assert np.all(parts[1] < 1e-9)
    assert np.all(parts[0] > 1e-4)
    assert np.all(np.linalg.eigvalsh(found.residual) > -1e-9)


def test_the_prior_is_that_of_the_model(logistic):
    found = logistic.expected(POINT, POINT, BLOCKS)
    np.testing.assert_allclose(found.prior_precision, np.eye(DIMENSION), atol=1e-6)
    np.testing.assert_allclose(found.prior_gradient, -POINT, atol=1e-6)
    np.testing.assert_allclose(found.log_prior, scipy.stats.norm.logpdf(POINT).sum(), rtol=1e-6)
    np.testing.assert_allclose(logistic.prior_precision(AWAY), np.eye(DIMENSION), atol=1e-6)


def test_another_seed_is_another_simulation(poisson):
    model = poisson._scores.model
    other = simulator_of(model, seed=1).expected(POINT, POINT, BLOCKS)
    one = poisson.expected(POINT, POINT, BLOCKS)
    standard_error = NUM_RECORDS * np.sqrt(np.diag(one.error) + np.diag(other.error)).reshape(2, DIMENSION)
    assert np.any(one.mean != other.mean)
    assert np.max(np.abs(one.mean - other.mean) / np.maximum(standard_error, 1e-12)) < tolerance(2 * DIMENSION)
