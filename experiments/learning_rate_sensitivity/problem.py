"""Beta-Bernoulli: a model whose variational optimum and its curvature are known without a fit.

With z = logit(p), N records and s of them ones, the negative ELBO of N(μ, T²) is

    L(μ, T) = −(s + 10) μ + (N + 20) E[log(1 + e^z)] − log T,    z = μ + Tη,

whose minimum solves (N + 20) E[p(z)] = s + 10 and T² (N + 20) E[p(z)(1 − p(z))] = 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.special

import dpvi
from dpvi.declared.plan import Plan
from dpvi.families import MeanField

PRIOR = 10.0  # Beta(10, 10)
NUM_RECORDS = 1000
FAMILY = MeanField(initial_scale=0.05)
BETA = (1.0, 20.0)  # of location and scale; more would have many gradients clipped
_FIXED_POINT_STEPS = 200


class DataSets(NamedTuple):
    """Data drawn from the model, with the truth behind each set."""

    logits: np.ndarray  # (sets,): the true z
    records: np.ndarray  # (sets, records)


class Optimum(NamedTuple):
    """The minimum φ* = (μ*, u*) of the negative ELBO, and the diagonal of its Hessian there."""

    phi: np.ndarray  # (sets, 2)
    curvature: np.ndarray  # (sets, 2)


def beta_bernoulli(x: Any = None) -> None:
    p = numpyro.sample("p", dist.Beta(PRIOR, PRIOR))
    with numpyro.plate("records", 1 if x is None else x.shape[0]):
        numpyro.sample("x", dist.Bernoulli(probs=p), obs=x)


def make_plan(num_steps: int) -> Plan:
    """κ and C of the paper; noise such that, as there, the default rate relaxes in a seventeenth of the run."""
    return dpvi.plan(
        noise_multiplier=32 * np.sqrt(num_steps / 2000),
        delta=1e-5,
        sampling_rate=0.1,
        num_steps=num_steps,
        clip_norm=2.0,
    )


def draw_data(num_sets: int, seed: int = 0) -> DataSets:
    rng = np.random.default_rng(seed)
    probabilities = rng.beta(PRIOR, PRIOR, num_sets)
    records = rng.uniform(size=(num_sets, NUM_RECORDS)) < probabilities[:, None]
    return DataSets(scipy.special.logit(probabilities), records.astype(np.int32))


def optimum(records: np.ndarray) -> Optimum:
    """φ* of every data set, by Newton steps in μ and the fixed point of T; expectations by Gauss-Hermite quadrature."""
    eta, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    size, ones = records.shape[1] + 2 * PRIOR, records.sum(axis=1) + PRIOR
    location, scale = scipy.special.logit(ones / size), np.full(len(records), 0.1)
    for _ in range(_FIXED_POINT_STEPS):
        p = scipy.special.expit(location[:, None] + scale[:, None] * eta)
        slope = p * (1 - p)
        location = location - (p @ weights - ones / size) / (slope @ weights)
        scale = 1 / np.sqrt(size * (slope @ weights))
    u = np.log(np.expm1(scale))  # inverse softplus
    derivative = scipy.special.expit(u)
    # in T: (N+20) E[η² p(1−p)] + 1/T²; the slope in T vanishes at the optimum, so u only rescales it
    in_scale = size * (slope @ (weights * eta**2)) + 1 / scale**2
    return Optimum(np.stack([location, u], axis=1), np.stack([size * (slope @ weights), in_scale * derivative**2], 1))
