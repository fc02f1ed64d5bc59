"""The full-rank Gaussian: z = m + L η with a lower triangular L, ξ = (m, s, entries below the diagonal)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared import validation
from dpvi.families.scales import apply_scale, check_scale, invert_scale


def _dimension(num_parameters: int) -> int:
    """d from p = 2d + d(d − 1)/2."""
    return (math.isqrt(9 + 8 * num_parameters) - 3) // 2


@dataclass(frozen=True)
class FullRank:
    """A Gaussian with dense covariance L Lᵀ; the diagonal of L is T(s).

    Parameters
    ----------
    scale
        T, the map from s to the diagonal of L: ``"softplus"`` or ``"exp"``.
    initial_scale
        Standard deviation of every coordinate at the start of a run, without correlations.
    """

    scale: str = "softplus"
    initial_scale: float = 0.1

    def __post_init__(self) -> None:
        validation.keep(self, initial_scale=check_scale(self.scale, self.initial_scale))

    def num_parameters(self, dimension: int) -> int:
        return 2 * dimension + dimension * (dimension - 1) // 2

    def num_base(self, dimension: int) -> int:
        return dimension

    def initial(self, location: jax.Array) -> jax.Array:
        d = location.shape[0]
        diagonal = jnp.full_like(location, invert_scale(self.scale, self.initial_scale))
        return jnp.concatenate([location, diagonal, jnp.zeros(d * (d - 1) // 2, location.dtype)])

    def location(self, xi: jax.Array) -> jax.Array:
        return xi[: _dimension(xi.shape[0])]

    def factor(self, xi: jax.Array) -> jax.Array:
        """L."""
        d = _dimension(xi.shape[0])
        lower = jnp.zeros((d, d), xi.dtype).at[np.tril_indices(d, -1)].set(xi[2 * d :])
        return lower + jnp.diag(apply_scale(self.scale, xi[d : 2 * d]))

    def transform(self, xi: jax.Array, eta: jax.Array) -> jax.Array:
        return self.location(xi) + self.factor(xi) @ eta

    def entropy(self, xi: jax.Array) -> jax.Array:
        d = _dimension(xi.shape[0])
        return jnp.sum(jnp.log(apply_scale(self.scale, xi[d : 2 * d]))) + 0.5 * d * (1 + math.log(2 * math.pi))

    def variances(self, xi: jax.Array) -> jax.Array:
        return jnp.sum(self.factor(xi) ** 2, axis=1)

    def covariance(self, xi: jax.Array) -> jax.Array:
        factor = self.factor(xi)
        return factor @ factor.T

    def log_prob(self, xi: jax.Array, z: jax.Array) -> jax.Array:
        eta = jax.scipy.linalg.solve_triangular(self.factor(xi), z - self.location(xi), lower=True)
        return self.entropy(xi) * -1 + 0.5 * (eta.shape[0] - jnp.sum(eta**2))
