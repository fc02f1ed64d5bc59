"""The mean-field Gaussian: z = m + T(s) ⊙ η with ξ = (m, s)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dpvi.declared import validation
from dpvi.families.scales import apply_scale, check_scale, invert_scale, scale_derivative


@dataclass(frozen=True)
class MeanField:
    """Independent Gaussians, one per unconstrained parameter.

    Parameters
    ----------
    scale
        T, the map from s to a standard deviation: ``"softplus"`` or ``"exp"``.
    initial_scale
        Standard deviation of every coordinate at the start of a run.
    """

    scale: str = "softplus"
    initial_scale: float = 0.1

    def __post_init__(self) -> None:
        validation.keep(self, initial_scale=check_scale(self.scale, self.initial_scale))

    def num_parameters(self, dimension: int) -> int:
        return 2 * dimension

    def num_base(self, dimension: int) -> int:
        return dimension

    def initial(self, location: jax.Array) -> jax.Array:
        return jnp.concatenate([location, jnp.full_like(location, invert_scale(self.scale, self.initial_scale))])

    def location(self, xi: jax.Array) -> jax.Array:
        return jnp.split(xi, 2)[0]

    def standard_deviations(self, xi: jax.Array) -> jax.Array:
        """T(s)."""
        return apply_scale(self.scale, jnp.split(xi, 2)[1])

    def scale_derivatives(self, xi: jax.Array) -> jax.Array:
        """T'(s)."""
        return scale_derivative(self.scale, jnp.split(xi, 2)[1])

    def transform(self, xi: jax.Array, eta: jax.Array) -> jax.Array:
        location, s = jnp.split(xi, 2)  # one split: its gradient is one concatenation
        return location + apply_scale(self.scale, s) * eta

    def entropy(self, xi: jax.Array) -> jax.Array:
        sd = self.standard_deviations(xi)
        return jnp.sum(jnp.log(sd)) + 0.5 * sd.shape[0] * (1 + math.log(2 * math.pi))

    def inverse_fisher(self, xi: jax.Array) -> jax.Array:
        """The diagonal of the inverse Fisher matrix of q_ξ: T² on m and ½(T/T')² on s."""
        sd = self.standard_deviations(xi)
        return jnp.concatenate([sd**2, 0.5 * (sd / self.scale_derivatives(xi)) ** 2])

    def variances(self, xi: jax.Array) -> jax.Array:
        return self.standard_deviations(xi) ** 2

    def covariance(self, xi: jax.Array) -> jax.Array:
        return jnp.diag(self.variances(xi))

    def log_prob(self, xi: jax.Array, z: jax.Array) -> jax.Array:
        return jnp.sum(jax.scipy.stats.norm.logpdf(z, self.location(xi), self.standard_deviations(xi)))
