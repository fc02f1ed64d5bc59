"""What a sampler knows of the noise in a release: its law, and its variances given what it turned out to be.

Both laws are e_j | ω_j ~ N(0, ω_j). Gaussian noise has one known ω; Laplace noise is a scale mixture, so that given
the variances everything is Gaussian and the variances are one more block of a Gibbs sweep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class LaplaceNoise(NamedTuple):
    """e_j ~ Laplace(b), b = ``scale``: e_j | ω_j ~ N(0, ω_j) with ω_j ~ Exponential of mean 2b²."""

    scale: jax.Array | float

    def initial_variances(self, key: jax.Array, size: int) -> jax.Array:
        """ω from its prior, (size,)."""
        return 2 * jnp.asarray(self.scale) ** 2 * jax.random.exponential(key, (size,))

    def variances(self, key: jax.Array, residuals: jax.Array) -> jax.Array:
        """ω given the noise itself.

        1/ω_j is inverse Gaussian with mean 1/(b|r_j|) and shape 1/b², where r = ``residuals`` = z − s. Its two
        roots in the method of Michael, Schucany and Haas (1976) are written for ω and without a division by r, so that
        r_j = 0 gives its limit, ω_j ~ b² χ²₁.
        """
        normal_key, uniform_key = jax.random.split(key)
        scale, distance = jnp.asarray(self.scale), jnp.abs(residuals)
        chi_square = jax.random.normal(normal_key, residuals.shape) ** 2
        half = 0.5 * scale * chi_square
        larger = scale * (distance + half + jnp.sqrt(half * (2 * distance + half)))
        mode = scale * distance  # the geometric mean of the two roots
        take_larger = jax.random.uniform(uniform_key, residuals.shape) * (mode + larger) < larger
        return jnp.where(take_larger, larger, mode * (mode / larger))


class GaussianNoise(NamedTuple):
    """e_j ~ N(0, ``scale``²)."""

    scale: jax.Array | float

    def initial_variances(self, key: jax.Array, size: int) -> jax.Array:
        """The known variance, (size,)."""
        return jnp.broadcast_to(jnp.asarray(self.scale) ** 2, (size,))

    def variances(self, key: jax.Array, residuals: jax.Array) -> jax.Array:
        """The same, whatever the noise was."""
        return jnp.broadcast_to(jnp.asarray(self.scale) ** 2, residuals.shape)


Noise = LaplaceNoise | GaussianNoise
Array = Any  # NumPy where it was released, a device array inside a sampler


class NoisySums(NamedTuple):
    """Noisy sums of statistics of single records, z = Σ_i t(x_i) + e; several data sets have a leading axis.

    ``lower`` and ``upper`` are the declared bounds of one record's t, and ``num_records`` is the public N.
    """

    sums: Array  # (m,)
    noise: Noise
    num_records: jax.Array | int
    lower: jax.Array | float
    upper: jax.Array | float


class NoisyRegression(NamedTuple):
    """Noisy sums of the products of d regressors (the constant last) and a response; N = ``num_records`` is public.

    ``sums`` holds Σxx over the upper triangle without the constant's own entry, Σxy and Σy². ``fourth_moments``, where
    released, holds noisy means of the products of four regressors, one for each combination but the constant's own.
    """

    sums: Array  # (d(d+1)/2 − 1 + d + 1,)
    noise: Noise
    num_records: jax.Array | int
    fourth_moments: Array | None = None
