"""Bernstein and Sheldon's samplers on the three models, mapped to the unconstrained scales of the study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments.coverage.conjugate import inverse_softplus
from experiments.exponential_families import models
from studies.baselines.bernstein_sheldon import (
    BetaBernoulli,
    DirichletCategorical,
    GammaExponential,
    release_bernoulli,
    release_categorical,
    release_exponential,
    sample_conjugate,
    stack_releases,
)

# The largest waiting time that is counted as it is. Under the prior rates lie near 4; 97.5 % of waiting times at the
# prior mean are below 0.92, and nobody looked at records for it.
BOUNDS = (0.0, 2.0)
_BURN_IN = 1000


def bernoulli_draws(y: Any, mechanism: Any, seeds: Sequence[int], num_draws: int) -> np.ndarray:
    releases = [release_bernoulli(one, mechanism, seed=seed) for one, seed in zip(y, seeds, strict=True)]
    share = _sample(releases, BetaBernoulli(*map(float, models.SHARE_PRIOR.concentration)), seeds, num_draws)
    return (np.log(share) - np.log1p(-share))[..., None]


def categorical_draws(y: Any, mechanism: Any, seeds: Sequence[int], num_draws: int) -> np.ndarray:
    prior = models.CLASS_PRIOR.concentration
    releases = [release_categorical(one, len(prior), mechanism, seed=seed) for one, seed in zip(y, seeds, strict=True)]
    shares = _sample(releases, DirichletCategorical(prior), seeds, num_draws)
    return np.log(shares[..., :-1]) - np.log(shares[..., -1:])


def exponential_draws(y: Any, mechanism: Any, seeds: Sequence[int], num_draws: int) -> np.ndarray:
    releases = [release_exponential(one, BOUNDS, mechanism, seed=seed) for one, seed in zip(y, seeds, strict=True)]
    rate = _sample(releases, GammaExponential(models.RATE_PRIOR.shape, models.RATE_PRIOR.rate), seeds, num_draws)
    return inverse_softplus(rate)[..., None]


def _sample(releases: Sequence[Any], model: Any, seeds: Sequence[int], num_draws: int) -> np.ndarray:
    key = jax.random.key(int(seeds[0]) % 2**31)
    return sample_conjugate(stack_releases(releases), model, key, num_draws=num_draws, num_burn_in=_BURN_IN)
