"""The exact posterior given one noisy release, by data augmentation: an oracle for small data sets.

References
----------
Ju, Awan, Gong and Rao (2022), Data augmentation MCMC for Bayesian inference from privatized data, arXiv 2206.00710.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from experiments.rivals.problems import Interval

_PAIRS = ((0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3))  # of z = (1, x₁, x₂, y)
_ROOT = math.sqrt(2)
SENSITIVITY = math.sqrt(4.0**2 - 1.0)  # ‖z zᵀ‖ ≤ 4, and its first entry is the number of records


class Posterior(NamedTuple):
    """Draws of the coefficients (chains, draws, 3) and the share of accepted records."""

    draws: np.ndarray
    acceptance: float

    def intervals(self) -> list[Interval]:
        """Mean and central 95 % of each chain."""
        lower, upper = np.quantile(self.draws, [0.025, 0.975], axis=1)
        return [Interval(*parts) for parts in zip(self.draws.mean(axis=1), lower, upper, strict=True)]


def statistics(x: np.ndarray, y: np.ndarray, bound: float) -> np.ndarray:
    """Products of (1, x₁, x₂, y/``bound``), clamped, (…, 9): an isometry of z zᵀ without its first entry."""
    z = np.concatenate([x, np.clip(y / bound, -1, 1)[..., None]], axis=-1)
    return np.stack([(1 if i == j else _ROOT) * z[..., i] * z[..., j] for i, j in _PAIRS], axis=-1)


def release(x: np.ndarray, y: np.ndarray, bound: float, signal: float, rng: np.random.Generator) -> np.ndarray:
    """The statistics of each data set (chains, n, …) with Gaussian noise; n is public."""
    total = statistics(x, y, bound).sum(axis=1)
    return total + SENSITIVITY / signal * rng.normal(size=total.shape)


def sample_posterior(
    released: np.ndarray,
    num_records: int,
    bound: float,
    signal: float,
    prior_scale: float,
    variance_prior: tuple[float, float],
    num_sweeps: int,
    rng: np.random.Generator,
) -> Posterior:
    """One chain for each release, all side by side.

    Parameters
    ----------
    released
        (chains, 9).
    num_records, bound, signal
        Of the release, all public.
    prior_scale, variance_prior
        Of the model y = (1, x)β + N(0, σ²) with x uniform in the square; the law of x is known.
    num_sweeps
        Each proposes every record anew from the model, accepts by the noise alone, and draws (β, σ²) given records;
        the first third is left out.
    """
    chains, noise = len(released), SENSITIVITY / signal
    beta, variance = np.zeros((chains, 3)), np.full(chains, variance_prior[1] / variance_prior[0])
    x, y = _records(rng, beta, variance, num_records)
    held = statistics(x, y, bound)
    residual = released - held.sum(axis=1)
    kept, accepted = [], 0.0
    for _ in range(num_sweeps):
        new_x, new_y = _records(rng, beta, variance, num_records)
        offered = statistics(new_x, new_y, bound)
        taken, residual = _accept(residual, np.swapaxes(offered - held, 0, 1), noise, rng)
        x, y, held = (
            np.where(taken.reshape(taken.shape + (1,) * (new.ndim - 2)), new, old)
            for new, old in ((new_x, x), (new_y, y), (offered, held))
        )
        accepted += float(taken.mean()) / num_sweeps
        beta, variance = _parameters(rng, x, y, beta, variance, prior_scale, variance_prior)
        kept.append(beta)
    return Posterior(np.stack(kept[num_sweeps // 3 :], axis=1), accepted)


def _records(
    rng: np.random.Generator, beta: np.ndarray, variance: np.ndarray, num_records: int
) -> tuple[np.ndarray, np.ndarray]:
    x = np.ones((len(beta), num_records, 3))
    x[..., 1:] = rng.uniform(-1, 1, size=(len(beta), num_records, 2))
    mean = np.einsum("cnd,cd->cn", x, beta)
    return x, mean + np.sqrt(variance)[:, None] * rng.normal(size=mean.shape)


def _accept(
    residual: np.ndarray, changes: np.ndarray, noise: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Record after record, (n, chains, 9): taken where the release becomes likelier, or by chance."""
    chances = -2 * noise**2 * np.log(rng.uniform(size=changes.shape[:2]))
    taken = np.empty(changes.shape[:2], bool)
    for number, change in enumerate(changes):
        rise = np.einsum("cs,cs->c", change, change - 2 * residual)
        taken[number] = rise < chances[number]
        residual = residual - taken[number][:, None] * change
    return taken.T, residual


def _parameters(
    rng: np.random.Generator,
    x: np.ndarray,
    y: np.ndarray,
    beta: np.ndarray,
    variance: np.ndarray,
    prior_scale: float,
    variance_prior: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray]:
    moments = np.einsum("cni,cnj->cij", x, x) / variance[:, None, None] + np.eye(3) / prior_scale**2
    covariance = np.linalg.inv(moments)
    mean = np.einsum("cij,cj->ci", covariance, np.einsum("cni,cn->ci", x, y) / variance[:, None])
    beta = mean + np.einsum("cij,cj->ci", np.linalg.cholesky(covariance), rng.normal(size=mean.shape))
    squares = np.sum((y - np.einsum("cnd,cd->cn", x, beta)) ** 2, axis=1)
    shape, scale = variance_prior
    return beta, (scale + squares / 2) / rng.gamma(shape + y.shape[1] / 2, size=len(beta))
