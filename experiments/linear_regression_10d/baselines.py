"""Bernstein and Sheldon's regression samplers, mapped to the unconstrained scale of the study.

Covariates are standard normal, as the paper draws them, and both samplers are told so: Prior knows it, Update has it as
the mean of a normal-inverse-Wishart prior. Bounds are declared: four standard deviations of a covariate, and of the
response at the prior's mean variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments.coverage.conjugate import inverse_softplus
from experiments.linear_regression_10d import models
from studies.baselines.bernstein_sheldon import (
    NormalInverseGamma,
    NormalInverseWishart,
    gibbs_ss_prior,
    gibbs_ss_update,
    known_covariates,
    release_regression,
    stack_releases,
)

COVARIATE_BOUND = 4.0
RESPONSE_BOUND = 4.0 * np.sqrt(models.PRIOR.scale / (models.PRIOR.shape - 1) * (1 + models.NUM_WEIGHTS / 0.25))
_BURN_IN = 500
_PRIOR = NormalInverseGamma(models.PRIOR.mean, models.PRIOR.precision, models.PRIOR.shape, models.PRIOR.scale)
_ZEROS, _IDENTITY = np.zeros(models.NUM_COVARIATES), np.eye(models.NUM_COVARIATES)
_DEGREES = 50.0


def gibbs_draws(records: Any, mechanism: Any, seeds: Sequence[int], num_draws: int, sampler: str) -> np.ndarray:
    """Draws of z = (softplus⁻¹(σ²), w) by Gibbs-SS-Prior or Gibbs-SS-Update, (k, num_draws, d)."""
    releases = [
        release_regression(x, y, COVARIATE_BOUND, RESPONSE_BOUND, mechanism, seed=seed)
        for x, y, seed in zip(*map(np.asarray, records), seeds, strict=True)
    ]
    stacked, key = stack_releases(releases), jax.random.key(int(seeds[0]) % 2**31)
    lengths = {"num_burn_in": _BURN_IN, "num_draws": num_draws}
    if sampler == "prior":
        found = gibbs_ss_prior(stacked, _PRIOR, known_covariates(_ZEROS, _IDENTITY), key, **lengths)
    else:
        scale = (_DEGREES - models.NUM_COVARIATES - 1) * _IDENTITY
        found = gibbs_ss_update(stacked, _PRIOR, NormalInverseWishart(_ZEROS, 1.0, scale, _DEGREES), key, **lengths)
    return np.concatenate([inverse_softplus(found.variance[..., None]), found.weights], axis=-1)
