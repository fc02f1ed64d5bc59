"""The posterior of z: a mixture of variational distributions q(·; φ*) over draws of φ*."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.families.base import Family
from dpvi.families.meanfield import MeanField


class MeanFieldMixture(NamedTuple):
    """Independent coordinates, each a mixture of normals.

    The optima of different coordinates are independent under the model, and so are the coordinates of a mean-field q.
    Mixing them one by one keeps that: the same draws make M^d components instead of M, and the density does not
    degenerate in high dimension.
    """

    locations: np.ndarray  # (M, d)
    scales: np.ndarray  # (M, d)

    @property
    def mean(self) -> np.ndarray:
        return self.locations.mean(axis=0)

    @property
    def standard_deviations(self) -> np.ndarray:
        return np.sqrt(self.locations.var(axis=0) + (self.scales**2).mean(axis=0))

    def sample(self, key: jax.Array, num_samples: int) -> jax.Array:
        """(num_samples, d)."""
        index_key, normal_key = jax.random.split(key)
        num_components, dimension = self.locations.shape
        index = jax.random.randint(index_key, (num_samples, dimension), 0, num_components)
        eta = jax.random.normal(normal_key, (num_samples, dimension), self.locations.dtype)
        location, scale = (jnp.take_along_axis(jnp.asarray(part), index, axis=0) for part in self)
        return location + scale * eta

    def marginal_log_prob(self, z: jax.Array) -> jax.Array:
        """Log density of every coordinate of one z, (d,)."""
        terms = jax.scipy.stats.norm.logpdf(z, jnp.asarray(self.locations), jnp.asarray(self.scales))
        return jax.nn.logsumexp(terms, axis=0) - float(np.log(len(self.locations)))

    def log_prob(self, z: jax.Array) -> jax.Array:
        """Log density at one z, a scalar."""
        return jnp.sum(self.marginal_log_prob(z))


class FamilyMixture(NamedTuple):
    """A mixture of M members of any family, for families whose coordinates depend on each other."""

    family: Family
    components: np.ndarray  # (M, p)

    def sample(self, key: jax.Array, num_samples: int) -> jax.Array:
        """(num_samples, d)."""
        index_key, normal_key = jax.random.split(key)
        index = jax.random.randint(index_key, (num_samples,), 0, len(self.components))
        components = jnp.asarray(self.components)
        dimension = self.family.location(components[0]).shape[0]
        eta = jax.random.normal(normal_key, (num_samples, self.family.num_base(dimension)), components.dtype)
        return jax.vmap(self.family.transform)(components[index], eta)

    def marginal_log_prob(self, z: jax.Array) -> jax.Array:
        """Log density of every coordinate of one z, (d,)."""
        components = jnp.asarray(self.components)
        location = jax.vmap(self.family.location)(components)
        scale = jnp.sqrt(jax.vmap(self.family.variances)(components))
        terms = jax.scipy.stats.norm.logpdf(z, location, scale)
        return jax.nn.logsumexp(terms, axis=0) - float(np.log(len(self.components)))

    def log_prob(self, z: jax.Array) -> jax.Array:
        """Log density at one z, a scalar."""
        terms = jax.vmap(self.family.log_prob, (0, None))(jnp.asarray(self.components), z)
        return jax.nn.logsumexp(terms) - float(np.log(len(self.components)))


def mixture_of(family: Family, draws: np.ndarray) -> MeanFieldMixture | FamilyMixture:
    """The mixture of q(·; φ*) over rows of ``draws``, in the precision JAX runs in."""
    components = jnp.asarray(draws)
    if not isinstance(family, MeanField):
        return FamilyMixture(family, np.asarray(components))
    locations = np.asarray(jax.vmap(family.location)(components))
    scales = np.asarray(jax.vmap(family.standard_deviations)(components))
    return MeanFieldMixture(locations, np.maximum(scales, np.finfo(scales.dtype).tiny))
