"""The variational optimum of a Poisson regression under a mean-field Gaussian, exactly.

Equations 24 and 25 share no parameter, so the ELBO of the regression is maximised by itself. With a_i = x_i·θ normal
under q = N(m, diag σ²), E[exp a_i] = r_i = exp(x_i·m + ½ Σ_j x_ij² σ_j²) in closed form, and for counts y_i and prior
N(0, I) the ELBO is stationary where

    Σ_i x_i (y_i − r_i) = m,    1/σ_j² = 1 + Σ_i x_ij² r_i.

The paper's reference, an average of stochastic fits without privacy, approximates this point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_MAX_STEPS = 500
_TOLERANCE = 1e-9
_FIRST_SCALE = 0.01  # narrow at first: a wide one multiplies rates and sends Newton's steps far


class Optimum(NamedTuple):
    """m* and σ*, each (d,)."""

    location: np.ndarray
    scale: np.ndarray


def poisson_optimum(matrix: np.ndarray, counts: np.ndarray) -> Optimum:
    """Newton steps in m with the Hessian −(I + Σ r_i x_i x_iᵀ), and the fixed point of σ, in turn.

    Parameters
    ----------
    matrix
        Rows x_i, (n, d); a column of ones is the intercept.
    counts
        y_i, (n,).
    """
    x, y = matrix.astype(np.float64), counts.astype(np.float64)
    location, scale = np.zeros(x.shape[1]), np.full(x.shape[1], _FIRST_SCALE)
    for _ in range(_MAX_STEPS):
        rates = _rates(x, location, scale)
        slope = x.T @ (y - rates) - location
        step = np.linalg.solve((x.T * rates) @ x + np.eye(len(location)), slope)
        while np.abs(step).max() > _TOLERANCE and not _rises(x, y, location, step, scale):
            step = step / 2
        location = location + step
        # the geometric mean with the last scale: whole steps of the fixed point swing where records are few
        wanted = 1 / np.sqrt(1 + _rates(x, location, scale) @ x**2)
        moved = max(np.abs(step).max(), np.abs(wanted - scale).max())
        scale = np.sqrt(scale * wanted)
        if moved < _TOLERANCE:
            return Optimum(location, scale)
    raise RuntimeError(f"The optimum was not reached within {_MAX_STEPS} steps; are counts and features finite?")


def _rates(x: np.ndarray, location: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.exp(x @ location + 0.5 * (x**2 @ scale**2))


def _rises(x: np.ndarray, y: np.ndarray, location: np.ndarray, step: np.ndarray, scale: np.ndarray) -> bool:
    """Whether the ELBO at ``location + step`` is at least that at ``location``."""
    here, there = (y @ (x @ m) - _rates(x, m, scale).sum() - 0.5 * m @ m for m in (location, location + step))
    return bool(there >= here)
