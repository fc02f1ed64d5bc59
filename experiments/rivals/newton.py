"""Noisy Newton's method for logistic regression, with intervals from its last step.

References
----------
Avella-Medina, Bradshaw and Loh (2021), Differentially private inference via noisy optimization, arXiv 2103.11003.
"""

from __future__ import annotations

import math

import numpy as np

from experiments.rivals.problems import DataSet, Interval, gaussian_interval

RADIUS = math.sqrt(2.0)  # as published: weights min(1, 2/‖x‖²)


def noisy_newton(
    data: DataSet, signal: float, num_steps: int, rng: np.random.Generator, radius: float = RADIUS
) -> Interval:
    """``num_steps`` steps from 0, each on a noisy gradient and a noisy Hessian of all records.

    Records are weighted by w = min(1, R²/‖x‖²), R = ``radius``, which leaves the target as it is. The scores
    w x (y − p) have norm at most R and the Hessians w p(1 − p) x xᵀ Frobenius norm at most R²/4. With μ = ``signal``,
    each of the 2T releases is a Gaussian mechanism of signal μ/√(2T), so that all together are exactly one of signal
    μ, for adding or removing a record.

    The interval has the variance M⁻¹ + σ² M⁻², M the last noisy Hessian and σ the noise of the last gradient. Its
    first term is at least the sandwich M⁻¹QM⁻¹, Q = Σ w² p(1 − p) x xᵀ ≤ M, and needs no release of its own.
    """
    d = data.x.shape[1]
    multiplier = math.sqrt(2 * num_steps) / signal
    gradient_noise, hessian_noise = multiplier * radius, multiplier * radius**2 / 4
    weights = np.minimum(1.0, radius**2 / np.sum(data.x**2, axis=1))
    beta = np.zeros(d)
    hessian = np.eye(d)
    for _ in range(num_steps):
        share = 1 / (1 + np.exp(-np.clip(data.x @ beta, -500, 500)))
        gradient = data.x.T @ (weights * (data.y - share)) + gradient_noise * rng.normal(size=d)
        exact = (data.x.T * (weights * share * (1 - share))) @ data.x
        hessian = positive(exact + symmetric_noise(rng, d, hessian_noise), hessian_noise * math.sqrt(d))
        beta = beta + np.linalg.solve(hessian, gradient)
    inverse = np.linalg.inv(hessian)
    return gaussian_interval(beta, inverse + gradient_noise**2 * inverse @ inverse)


def symmetric_noise(rng: np.random.Generator, d: int, scale: float) -> np.ndarray:
    """Noise that is spherical in Frobenius norm: ``scale`` on the diagonal and 1/√2 of it elsewhere."""
    drawn = rng.normal(size=(d, d))
    return scale * (drawn + drawn.T) / 2


def positive(matrix: np.ndarray, floor: float) -> np.ndarray:
    """Eigenvalues of at least ``floor``."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, floor)) @ vectors.T
