"""The Laplace engine: a Gaussian at the joint mode of (φ*, v, ψ), parameter by parameter.

The published program adds Σ log σ(a) to the log density at every time step, a term that is in neither the model nor a
change of variables, and stops Adam wherever it is. Here the mode is found by Newton's method from the best node of the
exact engine's grid, the Hessian is the model's own, and φ* keeps its uncertainty in every block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.special

from dpvi.posterior.na_dpvi.exact import posterior_grid
from dpvi.posterior.na_dpvi.model import GradientModel, conditional, curvature, log_likelihood, log_prior, variance

_STEPS = 50
_HALVINGS = 12
_FLOOR = 1e-8  # of a curvature, in units of each coordinate's own scale


class LaplaceApproximation(NamedTuple):
    """Mode (p, k) and covariance (p, k, k) of (φ*, v[, ψ])."""

    mode: np.ndarray
    covariance: np.ndarray

    def sample(self, rng: np.random.Generator, num_draws: int) -> np.ndarray:
        """(num_draws, p) draws of φ*, the other unknowns integrated out of the Gaussian."""
        deviations = np.sqrt(self.covariance[:, 0, 0])
        return self.mode[:, 0] + deviations * rng.normal(size=(num_draws, len(deviations)))


def laplace_draws(model: GradientModel, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """(num_draws, p) draws of φ* from the Laplace approximation."""
    return laplace_approximation(model).sample(rng, num_draws)


def laplace_approximation(model: GradientModel) -> LaplaceApproximation:
    """Mode and inverse negative Hessian of the log posterior."""
    point = _start(model)
    unknowns = 3 if model.subsampling_variance else 2
    _, conditional_variance = conditional(model, point[:, 1], point[:, 2])
    scales = np.stack([np.sqrt(conditional_variance), model.curvature_scale, np.ones(len(point))], axis=1)[:, :unknowns]
    for _ in range(_STEPS):
        gradient, hessian = derivatives(model, point)
        values, vectors = _scaled_eigen(hessian[:, :unknowns, :unknowns], scales)
        along = np.einsum("pji,pj->pi", vectors, gradient[:, :unknowns] * scales) / values
        step = np.zeros_like(point)
        step[:, :unknowns] = scales * np.einsum("pij,pj->pi", vectors, along)
        point = _line_search(model, point, step)
        if np.all(np.abs(step[:, :unknowns]) <= 1e-9 * scales):
            break
    _, hessian = derivatives(model, point)
    values, vectors = _scaled_eigen(hessian[:, :unknowns, :unknowns], scales)
    covariance = np.einsum("pik,pk,pjk->pij", vectors, 1 / values, vectors)
    return LaplaceApproximation(point[:, :unknowns], scales[:, :, None] * covariance * scales[:, None, :])


def derivatives(model: GradientModel, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradient (p, 3) and Hessian (p, 3, 3) of the log posterior in (φ*, v, ψ)."""
    n, phi_mean, spread, gradient_mean, slope, residual = model.statistics
    phi_star, v, psi = point.T
    f, k, V, expit = phi_star - phi_mean, model.sampling_rate, variance(model, psi), scipy.special.expit(v)
    line, line_v, line_vv = k * curvature(v), k * expit, k * expit * (1 - expit)
    h = gradient_mean + line * f
    E = residual + spread * (line - slope) ** 2 + n * h**2  # the sum of squares, then its derivatives
    E_f, E_line = 2 * n * h * line, 2 * spread * (line - slope) + 2 * n * h * f
    log_V, log_VV = -0.5 * n / V + 0.5 * E / V**2, 0.5 * n / V**2 - E / V**3
    gradient = np.stack(
        [
            -0.5 * E_f / V - f / model.prior_scale**2,
            -0.5 * E_line * line_v / V - (v - model.curvature_mean) / model.curvature_scale**2,
            2 * psi * log_V - psi,
        ],
        axis=1,
    )
    ff = -n * line**2 / V - 1 / model.prior_scale**2
    fv = -n * (h + line * f) * line_v / V
    vv = -0.5 * (2 * (spread + n * f**2) * line_v**2 + E_line * line_vv) / V - 1 / model.curvature_scale**2
    fp, vp = E_f * psi / V**2, E_line * line_v * psi / V**2
    pp = 4 * psi**2 * log_VV + 2 * log_V - 1
    hessian = np.stack([ff, fv, fp, fv, vv, vp, fp, vp, pp], axis=1).reshape(-1, 3, 3)
    return gradient, hessian


def _log_posterior(model: GradientModel, point: np.ndarray) -> np.ndarray:
    phi_star, v, psi = point.T
    return log_likelihood(model, v, phi_star, psi) + log_prior(model, v, phi_star, psi)


def _start(model: GradientModel) -> np.ndarray:
    """The best node of the grid, each with the φ* that fits it best."""
    v, psi, _, _ = posterior_grid(model)
    v, psi = v.T[:, None, :], psi.T[None]
    phi_star, _ = conditional(model, v, psi)
    point = [np.broadcast_to(part, phi_star.shape).reshape(-1, phi_star.shape[-1]) for part in (phi_star, v, psi)]
    best = np.argmax(log_likelihood(model, *_reordered(point)) + log_prior(model, *_reordered(point)), axis=0)
    return np.stack([np.take_along_axis(part, best[None], axis=0)[0] for part in point], axis=1)


def _reordered(point: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return point[1], point[0], point[2]


def _scaled_eigen(hessian: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, made positive, and eigenvectors of the negative Hessian in units of ``scales``."""
    values, vectors = np.linalg.eigh(-scales[:, :, None] * hessian * scales[:, None, :])
    return np.maximum(np.abs(values), _FLOOR), vectors


def _line_search(model: GradientModel, point: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Halve each parameter's step until its log posterior does not fall."""
    before = _log_posterior(model, point)
    length = np.ones((len(point), 1))
    for _ in range(_HALVINGS):
        falls = _log_posterior(model, point + length * step) < before
        length = np.where(falls[:, None], 0.5 * length, length)
    worse = _log_posterior(model, point + length * step) < before
    return np.where(worse[:, None], point, point + length * step)
