"""The low-rank Gaussian: z = m + T(s) ⊙ η₁ + F η₂ with ξ = (m, s, F) and covariance diag(T(s)²) + F Fᵀ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dpvi.declared import validation
from dpvi.families.scales import apply_scale, check_scale, invert_scale


@dataclass(frozen=True)
class LowRank:
    """A Gaussian with diagonal plus rank-``rank`` covariance.

    Parameters
    ----------
    rank
        Number of columns of F.
    scale
        T, the map from s to the diagonal standard deviations: ``"softplus"`` or ``"exp"``.
    initial_scale
        Diagonal standard deviation at the start of a run. F starts small and uneven, because at F = 0 its gradient
        vanishes and at equal columns they would never part.
    """

    rank: int
    scale: str = "softplus"
    initial_scale: float = 0.1

    def __post_init__(self) -> None:
        validation.keep(self, initial_scale=check_scale(self.scale, self.initial_scale))
        validation.keep(self, rank=validation.whole_number("rank", self.rank))

    def _dimension(self, num_parameters: int) -> int:
        return num_parameters // (2 + self.rank)

    def num_parameters(self, dimension: int) -> int:
        return (2 + self.rank) * dimension

    def num_base(self, dimension: int) -> int:
        return dimension + self.rank

    def initial(self, location: jax.Array) -> jax.Array:
        d = location.shape[0]
        # a public, fixed pattern: cosines are uneven over columns and need no key
        grid = jnp.outer(jnp.arange(1, d + 1, dtype=location.dtype), jnp.arange(1, self.rank + 1, dtype=location.dtype))
        factor = 0.1 * self.initial_scale * jnp.cos(grid)
        diagonal = jnp.full_like(location, invert_scale(self.scale, self.initial_scale))
        return jnp.concatenate([location, diagonal, factor.reshape(-1)])

    def location(self, xi: jax.Array) -> jax.Array:
        return xi[: self._dimension(xi.shape[0])]

    def diagonal(self, xi: jax.Array) -> jax.Array:
        """T(s)."""
        d = self._dimension(xi.shape[0])
        return apply_scale(self.scale, xi[d : 2 * d])

    def factor(self, xi: jax.Array) -> jax.Array:
        """F, d × rank."""
        d = self._dimension(xi.shape[0])
        return xi[2 * d :].reshape(d, self.rank)

    def transform(self, xi: jax.Array, eta: jax.Array) -> jax.Array:
        d = self._dimension(xi.shape[0])
        return self.location(xi) + self.diagonal(xi) * eta[:d] + self.factor(xi) @ eta[d:]

    def _capacitance(self, xi: jax.Array) -> tuple[jax.Array, jax.Array]:
        """W = F / T(s) by rows and the Cholesky factor of I + WᵀW."""
        scaled = self.factor(xi) / self.diagonal(xi)[:, None]
        return scaled, jnp.linalg.cholesky(jnp.eye(self.rank, dtype=xi.dtype) + scaled.T @ scaled)

    def entropy(self, xi: jax.Array) -> jax.Array:
        d = self._dimension(xi.shape[0])
        _, chol = self._capacitance(xi)
        half_log_determinant = jnp.sum(jnp.log(self.diagonal(xi))) + jnp.sum(jnp.log(jnp.diagonal(chol)))
        return half_log_determinant + 0.5 * d * (1 + math.log(2 * math.pi))

    def variances(self, xi: jax.Array) -> jax.Array:
        return self.diagonal(xi) ** 2 + jnp.sum(self.factor(xi) ** 2, axis=1)

    def covariance(self, xi: jax.Array) -> jax.Array:
        factor = self.factor(xi)
        return jnp.diag(self.diagonal(xi) ** 2) + factor @ factor.T

    def log_prob(self, xi: jax.Array, z: jax.Array) -> jax.Array:
        scaled, chol = self._capacitance(xi)
        white = (z - self.location(xi)) / self.diagonal(xi)
        inner = jax.scipy.linalg.solve_triangular(chol, scaled.T @ white, lower=True)
        return self.entropy(xi) * -1 + 0.5 * (z.shape[0] - jnp.sum(white**2) + jnp.sum(inner**2))
