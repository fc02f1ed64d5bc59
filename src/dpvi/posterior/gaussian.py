"""A Gaussian on unconstrained parameters, diagonal or dense: what most posteriors here are made of."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Gaussian(NamedTuple):
    """N(mean, covariance), with ``scale`` a vector of standard deviations or a lower triangular factor."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def from_covariance(cls, mean: np.ndarray, covariance: np.ndarray) -> Gaussian:
        return cls(np.asarray(mean), np.linalg.cholesky(np.asarray(covariance, np.float64)).astype(mean.dtype))

    @property
    def standard_deviations(self) -> np.ndarray:
        return self.scale if self.scale.ndim == 1 else np.sqrt(np.sum(self.scale**2, axis=1))

    def sample(self, key: jax.Array, num_samples: int) -> jax.Array:
        """(num_samples, d)."""
        eta = jax.random.normal(key, (num_samples, self.mean.shape[0]), self.mean.dtype)
        return jnp.asarray(self.mean) + (eta * self.scale if self.scale.ndim == 1 else eta @ self.scale.T)

    def log_prob(self, z: jax.Array) -> jax.Array:
        """Log density at one z, a scalar."""
        if self.scale.ndim == 1:
            return jnp.sum(jax.scipy.stats.norm.logpdf(z, self.mean, self.scale))
        eta = jax.scipy.linalg.solve_triangular(jnp.asarray(self.scale), z - self.mean, lower=True)
        log_determinant = jnp.sum(jnp.log(jnp.diagonal(jnp.asarray(self.scale))))
        return jnp.sum(jax.scipy.stats.norm.logpdf(eta)) - log_determinant
