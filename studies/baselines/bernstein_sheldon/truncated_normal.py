"""Normal draws confined to an interval, also where the interval lies far in a tail."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri


def truncated_normal(
    key: jax.Array, mean: jax.Array, standard_deviation: jax.Array, lower: jax.Array, upper: jax.Array
) -> jax.Array:
    """A draw of N(mean, standard_deviation²) given that it lies in [lower, upper], by inversion.

    An interval above the mean is mirrored below it, where the distribution function keeps its relative precision. In
    float64 that reaches 37 standard deviations; beyond, the draw is the end of the interval next to the mean, from
    which it could not differ by a thirtieth of a standard deviation.
    """
    low, high = (lower - mean) / standard_deviation, (upper - mean) / standard_deviation
    above = low > 0
    low, high = jnp.where(above, -high, low), jnp.where(above, -low, high)
    below_low, below_high = ndtr(low), ndtr(high)
    uniform = jax.random.uniform(key, jnp.shape(low), dtype=jnp.result_type(low))
    standard = jnp.clip(ndtri(below_low + uniform * (below_high - below_low)), low, high)
    standard = jnp.where(below_high > 0, standard, high)
    return jnp.clip(mean + standard_deviation * jnp.where(above, -standard, standard), lower, upper)
