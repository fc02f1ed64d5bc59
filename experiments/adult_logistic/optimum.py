"""The variational optimum of logistic regression under a mean-field Gaussian, without sampling.

With a_i = x_i·θ normal under q = N(m, diag σ²), mean x_i·m and variance Σ_j x_ij² σ_j², the ELBO of labels y_i, prior
N(0, I) and p̄_i = E[1/(1 + e^{−a_i})], v̄_i = E[p_i(1 − p_i)] is stationary where

    Σ_i x_i (y_i − p̄_i) = m,    1/σ_j² = 1 + Σ_i x_ij² v̄_i.

Expectations over a_i are one-dimensional and come from Gauss-Hermite quadrature, so nothing is left to a learning rate:
the paper's reference, 10⁵ stochastic steps, approximates this point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.special

_NODES = 24
_MAX_STEPS = 500
_WHOLE_STEPS = 30
_TOLERANCE = 1e-9


class Optimum(NamedTuple):
    """m* and σ*, each (d,)."""

    location: np.ndarray
    scale: np.ndarray


def mean_field_optimum(features: np.ndarray, labels: np.ndarray) -> Optimum:
    """Newton steps in m with the Hessian −(I + Σ v̄_i x_i x_iᵀ), and the fixed point of σ, in turn.

    The ELBO is concave in (m, σ). A step in m is halved until it flattens the slope, so that none leads away.
    """
    x, y = features.astype(np.float64), labels.astype(np.float64)
    location, scale = np.zeros(x.shape[1]), np.full(x.shape[1], 0.1)
    for iteration in range(_MAX_STEPS):
        slope, weights = _slope(x, y, location, scale)
        step = np.linalg.solve((x.T * weights) @ x + np.eye(len(location)), slope)
        while np.abs(step).max() > _TOLERANCE and _steepness(x, y, location + step, scale) > np.sum(slope**2):
            step = step / 2
        location = location + step
        fixed_point = 1 / np.sqrt(1 + _slope(x, y, location, scale)[1] @ x**2)
        moved = max(np.abs(step).max(), np.abs(fixed_point - scale).max())
        # few records have wide scales that flatten the likelihood, where whole steps may overshoot for ever
        scale = fixed_point if iteration < _WHOLE_STEPS else np.sqrt(scale * fixed_point)
        if moved < _TOLERANCE:
            return Optimum(location, scale)
    raise RuntimeError(f"The optimum was not reached within {_MAX_STEPS} steps; are features finite and scaled?")


def _slope(x: np.ndarray, y: np.ndarray, location: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∇_m ELBO, (d,), and v̄, (n,)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    centre, spread = x @ location, np.sqrt(x**2 @ scale**2)
    mean, variance = np.zeros(len(y)), np.zeros(len(y))
    for node, weight in zip(nodes, weights, strict=True):
        p = scipy.special.expit(centre + node * spread)
        mean += weight * p
        variance += weight * p * (1 - p)
    return x.T @ (y - mean) - location, variance


def _steepness(x: np.ndarray, y: np.ndarray, location: np.ndarray, scale: np.ndarray) -> float:
    return float(np.sum(_slope(x, y, location, scale)[0] ** 2))
