"""What is assumed of the covariates: moments that stay as they are, or a normal law that is learned on the way."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from studies.baselines.bernstein_sheldon.moments import CovariateMoments, gaussian_moments


class CovariateState(NamedTuple):
    """Mean and covariance of the covariates in a chain; of size zero where they are not part of it."""

    mean: jax.Array
    covariance: jax.Array


class FixedCovariates(NamedTuple):
    """Covariates whose moments are taken as known."""

    known: CovariateMoments

    def draw(self, key: jax.Array) -> CovariateState:
        """Nothing."""
        return CovariateState(jnp.zeros(0), jnp.zeros((0, 0)))

    def centre(self) -> jax.Array:
        """Nothing."""
        return jnp.zeros(0)

    def deviation(self, key: jax.Array, state: CovariateState) -> jax.Array:
        """Nothing."""
        return jnp.zeros(0)

    def moments(self, state: CovariateState) -> CovariateMoments:
        """The known ones."""
        return self.known

    def update(self, key: jax.Array, gram: jax.Array, num_records: Any) -> CovariateState:
        """Nothing."""
        return self.draw(key)


class NormalInverseWishart(NamedTuple):
    """x | m, C ~ N(m, C), m | C ~ N(``mean``, C/``mean_precision``), C ~ InverseWishart(``scale``, ``degrees``)."""

    mean: jax.Array | np.ndarray  # (d − 1,)
    mean_precision: jax.Array | float
    scale: jax.Array | np.ndarray  # (d − 1, d − 1)
    degrees: jax.Array | float

    def draw(self, key: jax.Array) -> CovariateState:
        """(m, C) from the prior."""
        return _draw(key, jnp.asarray(self.mean), self.mean_precision, jnp.asarray(self.scale), self.degrees)

    def centre(self) -> jax.Array:
        """The prior mean of m."""
        return jnp.asarray(self.mean)

    def deviation(self, key: jax.Array, state: CovariateState) -> jax.Array:
        """m minus its prior mean, from the prior given C."""
        root = jnp.linalg.cholesky(state.covariance / self.mean_precision)
        return root @ jax.random.normal(key, state.mean.shape)

    def moments(self, state: CovariateState) -> CovariateMoments:
        """Those of N(m, C), by Isserlis' theorem."""
        return gaussian_moments(state.mean, state.covariance)

    def update(self, key: jax.Array, gram: jax.Array, num_records: Any) -> CovariateState:
        """(m, C) given Σxxᵀ = ``gram`` of N records, the constant last."""
        size = gram.shape[0] - 1
        mean = gram[:size, size] / gram[size, size]
        scatter = gram[:size, :size] - jnp.outer(gram[:size, size], mean)
        precision = self.mean_precision + num_records
        distance = mean - jnp.asarray(self.mean)
        shrunk = self.mean_precision * num_records / precision
        scale = jnp.asarray(self.scale) + scatter + shrunk * jnp.outer(distance, distance)
        centre = (self.mean_precision * jnp.asarray(self.mean) + num_records * mean) / precision
        return _draw(key, centre, precision, scale, self.degrees + num_records)


CovariateModel = FixedCovariates | NormalInverseWishart


def known_covariates(mean: Any, covariance: Any) -> CovariateMoments:
    """Moments of covariates known to be N(``mean``, ``covariance``), for :func:`gibbs_ss_prior`.

    Examples
    --------
    >>> known_covariates(np.zeros(1), np.eye(1)).second.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        moments = gaussian_moments(np.asarray(mean, np.float64), np.asarray(covariance, np.float64))
        return jax.tree.map(np.asarray, moments)


def _draw(key: jax.Array, mean: jax.Array, precision: Any, scale: jax.Array, degrees: Any) -> CovariateState:
    """A normal-inverse-Wishart draw. By Bartlett, C = RRᵀ with R = S A⁻ᵀ, SSᵀ = scale and AAᵀ Wishart of identity."""
    size = mean.size
    diagonal_key, lower_key, mean_key = jax.random.split(key, 3)
    freedom = degrees - jnp.arange(size, dtype=mean.dtype)
    diagonal = jnp.sqrt(2 * jax.random.gamma(diagonal_key, freedom / 2))
    lower = jnp.tril(jax.random.normal(lower_key, (size, size)), -1) + jnp.diag(diagonal)
    root = jax.scipy.linalg.solve_triangular(lower, jnp.linalg.cholesky(scale).T, lower=True).T
    deviation = root @ jax.random.normal(mean_key, (size,)) / jnp.sqrt(precision)
    return CovariateState(mean + deviation, root @ root.T)
