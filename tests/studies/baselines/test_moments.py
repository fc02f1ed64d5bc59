"""Moments of a record's products against simulation, and the repair of moments that noise has broken."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.statistics import assert_close

from studies.baselines.bernstein_sheldon.covariates import NormalInverseWishart, known_covariates
from studies.baselines.bernstein_sheldon.exponential_family import clamped_exponential_moments
from studies.baselines.bernstein_sheldon.moments import (
    draw_sums,
    noisy_moments,
    pair_indices,
    quadruple_indices,
    record_moments,
)
from studies.baselines.bernstein_sheldon.regression_release import fourth_sums

MEAN = np.array([0.3, -0.5, 1.0])
COVARIANCE = np.array([[1.0, 0.4, -0.2], [0.4, 0.8, 0.1], [-0.2, 0.1, 0.5]])
WEIGHTS, VARIANCE = np.array([0.7, -0.4, 0.2, 0.5]), 0.3
NUM_RECORDS = 50_000


@pytest.fixture(scope="module")
def products() -> np.ndarray:
    """Products of simulated records, one row each."""
    random = np.random.default_rng(1)
    x = np.column_stack([random.multivariate_normal(MEAN, COVARIANCE, NUM_RECORDS), np.ones(NUM_RECORDS)])
    y = x @ WEIGHTS + np.sqrt(VARIANCE) * random.normal(size=NUM_RECORDS)
    first, second, _ = pair_indices(4)
    return np.column_stack([x[:, first] * x[:, second], x * y[:, None], y * y])


def with_errors(samples: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean and covariance along the first axis, each with its standard error."""
    centred = samples - samples.mean(axis=0)
    first, second = np.triu_indices(samples.shape[1])
    squares = centred[:, first] * centred[:, second]
    root = np.sqrt(len(samples))
    return samples.mean(axis=0), samples.std(axis=0) / root, squares.mean(axis=0), squares.std(axis=0) / root


def assert_moments(samples: np.ndarray, mean, covariance) -> None:
    found_mean, mean_error, found_covariance, covariance_error = with_errors(samples)
    assert_close(found_mean, mean, mean_error)
    assert_close(found_covariance, np.asarray(covariance)[np.triu_indices(len(covariance))], covariance_error)


def test_moments_of_a_record_are_those_of_simulated_records(x64, products):
    found = record_moments(jnp.asarray(WEIGHTS), jnp.asarray(VARIANCE), known_covariates(MEAN, COVARIANCE))
    assert found.mean.size == 9 + 4 + 1
    assert_moments(products, found.mean, found.covariance)
    centred = record_moments(jnp.asarray(WEIGHTS), jnp.asarray(VARIANCE), known_covariates(0 * MEAN, COVARIANCE))
    without_residual = record_moments(jnp.asarray(WEIGHTS), jnp.asarray(0.0), known_covariates(MEAN, COVARIANCE))
    for wrong in (centred, without_residual):
        with pytest.raises(AssertionError):
            assert_moments(products, found.mean, wrong.covariance)


def test_the_covariance_is_the_published_one_entry_by_entry(x64):
    """The formulas of the paper, in K_ijkl = E[x_i x_j x_k x_l] − M_ij M_kl, as sums over whole tensors."""
    moments = known_covariates(MEAN, COVARIANCE)
    first, second, incidence = pair_indices(4)
    K = np.einsum("ijp,pq,klq->ijkl", incidence, moments.pairs, incidence)
    M, w, v = moments.second, WEIGHTS, VARIANCE
    pair_cross = np.einsum("ijkl,l->ijk", K, w)[first, second]
    pair_square = np.einsum("ijkl,k,l->ij", K, w, w)[first, second]
    cross = np.einsum("ikjl,k,l->ij", K, w, w) + v * M
    cross_square = np.einsum("ijkl,j,k,l->i", K, w, w, w) + 2 * v * M @ w
    square = np.einsum("ijkl,i,j,k,l->", K, w, w, w, w) + 4 * v * w @ M @ w + 2 * v**2
    expected = np.block(
        [
            [moments.pairs, pair_cross, pair_square[:, None]],
            [pair_cross.T, cross, cross_square[:, None]],
            [pair_square[None], cross_square[None], np.array([[square]])],
        ]
    )
    found = record_moments(jnp.asarray(w), jnp.asarray(v), moments).covariance
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_drawn_sums_have_these_moments(x64):
    moments = known_covariates(MEAN, COVARIANCE)
    record = record_moments(jnp.asarray(WEIGHTS), jnp.asarray(VARIANCE), moments)
    draw = jax.jit(jax.vmap(lambda key: draw_sums(key, jnp.asarray(WEIGHTS), jnp.asarray(VARIANCE), moments, 50.0)))
    sums = np.asarray(draw(jax.random.split(jax.random.key(2), 20_000)))
    assert_moments(sums, 50 * record.mean, 50 * record.covariance)
    with pytest.raises(AssertionError):
        assert_moments(sums, 50 * record.mean, 55 * record.covariance)


def test_learned_covariates_settle_on_the_law_of_the_records(x64):
    random = np.random.default_rng(5)
    x = np.column_stack([random.multivariate_normal(MEAN, COVARIANCE, 5000), np.ones(5000)])
    prior = NormalInverseWishart(np.zeros(3), 1.0, 50 * np.eye(3), 50.0)
    draw = jax.jit(jax.vmap(lambda key: prior.update(key, jnp.asarray(x.T @ x), 5000)))
    states = draw(jax.random.split(jax.random.key(6), 4000))
    centre = 5000 * x[:, :-1].mean(axis=0) / 5001
    scatter = np.cov(x[:, :-1].T, bias=True) * 5000
    scale = 50 * np.eye(3) + scatter + (5000 / 5001) * np.outer(x[:, :-1].mean(axis=0), x[:, :-1].mean(axis=0))
    for draws, expected in ((states.mean, centre), (states.covariance, scale / (5050 - 4))):
        samples = np.asarray(draws)
        assert_close(samples.mean(axis=0), expected, samples.std(axis=0) / np.sqrt(4000))
    samples = np.asarray(states.covariance)
    with pytest.raises(AssertionError):  # the prior ignored
        assert_close(samples.mean(axis=0), scatter / 5000, samples.std(axis=0) / np.sqrt(4000))


def test_fourth_moments_without_noise_give_the_moments_of_the_records():
    random = np.random.default_rng(7)
    x = np.column_stack([random.normal(size=(500, 2)), np.ones(500)])
    found = noisy_moments(fourth_sums(x) / 500, 3)
    first, second, _ = pair_indices(3)
    pairs = x[:, first] * x[:, second]
    np.testing.assert_allclose(found.second, x.T @ x / 500, atol=1e-12)
    np.testing.assert_allclose(found.pairs, np.cov(pairs.T, bias=True), atol=1e-12)
    for root, whole in ((found.second_root, found.second), (found.pair_root, found.pairs)):
        np.testing.assert_allclose(root @ root.T, whole, atol=1e-12)
    assert len(quadruple_indices(11)) == 1000


def test_moments_full_of_noise_are_repaired_for_one_data_set_or_many():
    random = np.random.default_rng(8)
    noise = random.laplace(size=(5, len(quadruple_indices(4)))) * 50
    together = noisy_moments(noise, 4)
    for index in range(5):
        alone = noisy_moments(noise[index], 4)
        np.testing.assert_allclose(together.pairs[index], alone.pairs)
        assert np.linalg.eigvalsh(alone.pairs).min() > 0
        assert np.linalg.eigvalsh(alone.second).min() > 0
        assert alone.second[-1, -1] == 1


@pytest.mark.parametrize("bounds", [(0.0, 0.6), (0.1, 1.5)])
def test_clamped_waiting_times_have_the_stated_moments(bounds):
    x = np.random.default_rng(9).exponential(1 / 2.5, NUM_RECORDS)
    mean, variance, covariance = map(float, clamped_exponential_moments(2.5, *bounds))
    pair = np.column_stack([x, np.clip(x, *bounds)])
    expected = np.array([[1 / 2.5**2, covariance], [covariance, variance]])
    assert_moments(pair, [1 / 2.5, mean], expected)
    inside = x[(x >= bounds[0]) & (x <= bounds[1])]
    with pytest.raises(AssertionError):  # moments of records that are dropped, not clamped
        assert_moments(pair, [1 / 2.5, inside.mean()], expected)
