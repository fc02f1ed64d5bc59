"""Mean and covariance of a record's products in linear regression, and where the moments of covariates come from.

A record is x ∈ R^d, whose last entry is the constant 1, and y = θᵀx + e, e ~ N(0, σ²). Its statistics t are the
products x_i x_j (i ≤ j, without the constant's own), x_i y and y². Since x_i y = Σ_k θ_k x_i x_k + x_i e, all of them
are a linear map A(θ) of the products of x plus terms in e. With M = E[xxᵀ] and K the covariance of the products of x:

    Cov[t] = A(θ) K A(θ)ᵀ + σ² B M Bᵀ + 2σ⁴ uuᵀ,   B = [0; I; 2θᵀ],   u the unit vector of y².

Written out, these are the fourth-moment formulas of Bernstein and Sheldon (2019). In this form the covariance is
positive semidefinite for every θ once K and M are, and needs no repair in each sweep.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_SMALLEST = 1e-6  # of the largest eigenvalue: what a repaired covariance keeps of a direction the noise made negative


class CovariateMoments(NamedTuple):
    """What the method needs to know of the covariates: M = E[xxᵀ], K and their Cholesky factors."""

    second: Any  # (d, d)
    second_root: Any
    pairs: Any  # (pairs, pairs)
    pair_root: Any


class RecordMoments(NamedTuple):
    """Mean (q,) and covariance (q, q) of the statistics of one record."""

    mean: jax.Array
    covariance: jax.Array


class _Indices(NamedTuple):
    first: np.ndarray  # (pairs,): i of the product x_i x_j
    second: np.ndarray  # (pairs,): j
    incidence: np.ndarray  # (d, d, pairs): 1 where pair p is the product of i and k; nothing for the constant's own


@lru_cache(maxsize=16)
def pair_indices(num_regressors: int) -> _Indices:
    """The products x_i x_j, i ≤ j, of ``num_regressors`` entries, without the last with itself."""
    first, second = (index[:-1] for index in np.triu_indices(num_regressors))
    incidence = np.zeros((num_regressors, num_regressors, len(first)))
    incidence[first, second, np.arange(len(first))] = 1
    incidence[second, first, np.arange(len(first))] = 1
    return _Indices(first, second, incidence)


@lru_cache(maxsize=16)
def quadruple_indices(num_regressors: int) -> np.ndarray:
    """The products of four entries, each combination once, without the last four times: (combinations, 4)."""
    return np.array(list(itertools.combinations_with_replacement(range(num_regressors), 4))[:-1])


def record_moments(weights: jax.Array, variance: jax.Array, covariates: CovariateMoments) -> RecordMoments:
    """Mean and covariance of a record's statistics given θ = ``weights`` and σ² = ``variance``."""
    second = covariates.second
    first_index, second_index, _ = pair_indices(weights.size)
    cross = second @ weights
    mean = jnp.concatenate([second[first_index, second_index], cross, (variance + weights @ cross)[None]])
    # by blocks, since most of A(θ) is the identity
    to_responses = _to_responses(weights)
    shared = to_responses @ covariates.pairs
    spread = shared @ to_responses.T
    spread = spread.at[:-1, :-1].add(variance * second)
    spread = spread.at[:-1, -1].add(2 * variance * cross).at[-1, :-1].add(2 * variance * cross)
    spread = spread.at[-1, -1].add(4 * variance * (weights @ cross) + 2 * variance**2)
    return RecordMoments(mean, jnp.block([[covariates.pairs, shared.T], [shared, spread]]))


def draw_sums(
    key: jax.Array, weights: jax.Array, variance: jax.Array, covariates: CovariateMoments, num_records: Any
) -> jax.Array:
    """Sums over N records from their central limit, N(N E[t], N Cov[t])."""
    product_key, residual_key, last_key = jax.random.split(key, 3)
    products = covariates.pair_root @ jax.random.normal(product_key, covariates.pair_root.shape[:1])
    residuals = jnp.sqrt(variance) * (covariates.second_root @ jax.random.normal(residual_key, weights.shape))
    square = 2 * (weights @ residuals) + jnp.sqrt(2.0) * variance * jax.random.normal(last_key)
    responses = _to_responses(weights) @ products + jnp.append(residuals, square)
    mean = record_moments(weights, variance, covariates).mean
    return num_records * mean + jnp.sqrt(num_records) * jnp.concatenate([products, responses])


def _to_responses(weights: jax.Array) -> jax.Array:
    """The rows of A(θ) below its identity: x_i y and y² of a record without residual, from the products of x."""
    cross = jnp.einsum("ikp,k->ip", pair_indices(weights.size).incidence, weights)
    return jnp.concatenate([cross, (weights @ cross)[None]])


def gaussian_moments(mean: Any, covariance: Any) -> CovariateMoments:
    """Moments of normal covariates, with the constant appended.

    By Isserlis Cov[x_i x_j, x_k x_l] = M_ik M_jl + M_il M_jk − 2 m_i m_j m_k m_l, with m the
    mean and M = C + mmᵀ.

    Parameters
    ----------
    mean, covariance
        m and C of the d − 1 covariates.
    """
    mean = jnp.append(jnp.asarray(mean), 1.0)
    spread = jnp.pad(jnp.asarray(covariance), ((0, 1), (0, 1)))
    second = spread + jnp.outer(mean, mean)
    i, j, _ = pair_indices(mean.size)
    product = mean[i] * mean[j]
    pairs = _swapped(second, i, j) - 2 * jnp.outer(product, product)
    return CovariateMoments(second, jnp.linalg.cholesky(second), pairs, jnp.linalg.cholesky(pairs))


def _swapped(matrix: jax.Array, i: np.ndarray, j: np.ndarray) -> jax.Array:
    """M_ik M_jl + M_il M_jk for all pairs (i, j) and (k, l)."""
    straight = matrix[i[:, None], i] * matrix[j[:, None], j]
    return straight + matrix[i[:, None], j] * matrix[j[:, None], i]


def noisy_moments(fourth_moments: np.ndarray, num_regressors: int) -> CovariateMoments:
    """Moments of covariates from noisy means of products of four regressors.

    Second moments are those products in which the constant stands twice. Noise can leave a covariance that is none, so
    the covariance of the covariates and the covariance of their products are moved to the nearest positive
    semidefinite ones (negative eigenvalues become 1e-6 of the largest), once.

    Parameters
    ----------
    fourth_moments
        Means of the products listed by :func:`quadruple_indices`; several data sets have a leading axis.
    num_regressors
        d, with the constant.
    """
    quadruples = quadruple_indices(num_regressors)
    tensor = np.ones((*np.shape(fourth_moments)[:-1], *[num_regressors] * 4))
    for order in itertools.permutations(range(4)):
        tensor[(..., *quadruples[:, order].T)] = fourth_moments
    mean = tensor[..., :, -1, -1, -1]
    means = mean[..., :, None] * mean[..., None, :]
    second = tensor[..., -1, -1]
    spread = _nearest_covariance((second - means)[..., :-1, :-1])
    second = means.copy()
    second[..., :-1, :-1] += spread
    i, j, _ = pair_indices(num_regressors)
    products = second[..., i, j]
    fourth = tensor[..., i[:, None], j[:, None], i, j]
    pairs = _nearest_covariance(fourth - products[..., :, None] * products[..., None, :])
    return CovariateMoments(second, np.linalg.cholesky(second), pairs, np.linalg.cholesky(pairs))


def _nearest_covariance(matrix: np.ndarray) -> np.ndarray:
    """The matrix with its eigenvalues no less than a small share of the largest."""
    values, vectors = np.linalg.eigh(matrix)
    floor = _SMALLEST * np.maximum(np.max(np.abs(values), axis=-1, keepdims=True), 1e-300)
    return (vectors * np.maximum(values, floor)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
