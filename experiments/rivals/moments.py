"""Linear regression from noisy second moments: plug-in intervals, and AdaSSP with a parametric bootstrap.

References
----------
Wang (2018), Revisiting differentially private linear regression, UAI (AdaSSP).
Ferrando, Wang and Sheldon (2022), Parametric bootstrap for differentially private confidence intervals, AISTATS.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from experiments.rivals.newton import positive, symmetric_noise
from experiments.rivals.problems import DataSet, Interval, gaussian_interval

_FAILURE = 0.05  # AdaSSP's ρ
_SMALLEST_VARIANCE = 1e-6  # of residuals, in squared response bounds


def noisy_moments(data: DataSet, response_bound: float, signal: float, rng: np.random.Generator) -> Interval:
    """One Gaussian release of Σ z zᵀ, z = (x, y/``response_bound``) within ±1, and least squares from it.

    ‖z zᵀ‖ ≤ d + 1 in Frobenius norm, so noise of scale σ = (d + 1)/μ with μ = ``signal`` is what the budget asks for.
    With A = Σ x xᵀ + noise and v = (−β, 1), the covariance of β is A⁻¹(s² A + σ²/2 (‖v‖² I + v vᵀ))A⁻¹: sampling and
    both noises. The number of records is taken as public.
    """
    n, d = data.x.shape
    z = np.column_stack([data.x, np.clip(data.y / response_bound, -1, 1)])
    noise = (d + 1) / signal
    released = z.T @ z + symmetric_noise(rng, d + 1, noise)
    moments = positive(released[:d, :d], noise * math.sqrt(d))
    inverse = np.linalg.inv(moments)
    beta = inverse @ released[:d, d]
    v = np.append(-beta, 1.0)
    variance = max(float(v @ released @ v) / (n - d), _SMALLEST_VARIANCE)
    of_noise = noise**2 / 2 * (v @ v * np.eye(d) + np.outer(v[:d], v[:d]))
    found = gaussian_interval(beta, inverse @ (variance * moments + of_noise) @ inverse)
    return Interval(*(response_bound * part for part in found[:3]))


class Moments(NamedTuple):
    """What AdaSSP knows: Σ x xᵀ (…, d, d), Σ x y (…, d) and the smallest eigenvalue of the first (…,)."""

    xx: np.ndarray
    xy: np.ndarray
    smallest: np.ndarray


class AdaSSP(NamedTuple):
    """Its mechanism on columns and responses within ±1.

    Four releases of signal μ/2 each: the three of AdaSSP, and Σ y², from which the bootstrap has its residual
    variance. Constants are the published ones with √log(6/δ)/(ε/3) replaced by the noise multiplier 2/μ, which is
    smaller and exact.
    """

    dimension: int
    signal: float
    delta: float

    @property
    def multiplier(self) -> float:
        return 2 / self.signal

    def release(self, exact: Moments, rng: np.random.Generator) -> Moments:
        """All three with noise; ‖x‖² ≤ d."""
        d, k = self.dimension, self.multiplier
        drawn = rng.normal(size=exact.xx.shape)
        xx = exact.xx + k * d * (drawn + np.swapaxes(drawn, -1, -2)) / 2
        xy = exact.xy + k * math.sqrt(d) * rng.normal(size=exact.xy.shape)
        smallest = exact.smallest + k * d * (
            rng.normal(size=exact.smallest.shape) - math.sqrt(math.log(6 / self.delta))
        )
        return Moments(xx, xy, np.maximum(0.0, smallest))

    def estimate(self, released: Moments) -> np.ndarray:
        """Ridge regression with as much of a ridge as the noise asks for."""
        d = self.dimension
        wanted = self.multiplier * d * math.sqrt(d * math.log(2 * d**2 / _FAILURE))
        ridge = np.maximum(0.0, wanted - released.smallest)
        return np.linalg.solve(released.xx + ridge[..., None, None] * np.eye(d), released.xy[..., None])[..., 0]


def adassp(
    data: DataSet, response_bound: float, signal: float, delta: float, num_bootstraps: int, rng: np.random.Generator
) -> Interval:
    """Estimate and basic bootstrap interval: the law of estimate minus truth is simulated at what was released.

    A bootstrap data set has Σ x xᵀ as released, Σ x y normal around what the estimate implies, and the mechanism's
    noise. The number of records is taken as public.
    """
    n, d = data.x.shape
    y = np.clip(data.y / response_bound, -1, 1)
    mechanism = AdaSSP(d, signal, delta)
    xx = data.x.T @ data.x
    released = mechanism.release(Moments(xx, data.x.T @ y, np.linalg.eigvalsh(xx)[0]), rng)
    beta = mechanism.estimate(released)
    yy = y @ y + mechanism.multiplier * rng.normal()
    moments = positive(released.xx, mechanism.multiplier * d)
    variance = max(float(yy - 2 * beta @ released.xy + beta @ moments @ beta) / (n - d), _SMALLEST_VARIANCE)
    sampling = np.linalg.cholesky(variance * moments) @ rng.normal(size=(num_bootstraps, d, 1))
    again = Moments(
        np.broadcast_to(moments, (num_bootstraps, d, d)),
        moments @ beta + sampling[..., 0],
        np.full(num_bootstraps, np.linalg.eigvalsh(moments)[0]),
    )
    errors = mechanism.estimate(mechanism.release(again, rng)) - beta
    upper, lower = np.quantile(errors, [0.025, 0.975], axis=0)
    return Interval(*(response_bound * part for part in (beta, beta - lower, beta - upper)))
