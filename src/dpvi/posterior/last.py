"""The last iterate: the naive baseline, which treats noisy parameters as if they were right."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dpvi.families.base import Family
from dpvi.families.meanfield import MeanField
from dpvi.posterior.gaussian import Gaussian
from dpvi.release.trace import Trace


def last_iterate(trace: Trace, family: Family) -> Gaussian:
    """q_ξ at the iterate after the last step."""
    return gaussian_of(family, trace.final)


def gaussian_of(family: Family, xi: np.ndarray, added_variance: np.ndarray | float = 0.0) -> Gaussian:
    """q_ξ as a Gaussian, with ``added_variance`` on the diagonal of its covariance."""
    parameters = jnp.asarray(xi)
    mean = np.asarray(family.location(parameters))
    if isinstance(family, MeanField):
        return Gaussian(mean, np.sqrt(np.asarray(family.variances(parameters)) + added_variance).astype(mean.dtype))
    covariance = np.asarray(family.covariance(parameters), np.float64)
    return Gaussian.from_covariance(mean, covariance + added_variance * np.eye(len(mean)))
