"""NA-DPVI's model with a dense curvature: parameters whose optima depend on each other.

Over the moving steps after burn-in,

    g̃_t ~ N(κ A (φ_t − φ*), diag(V)),   V = (σC/β)² + ψ²,   φ* ~ N(φ̄, diag(τ²)),   ψ ~ N(0, I),

with A any symmetric positive definite matrix, all of them alike: A is the Hessian of the loss at its minimum. With
B = κA, S = Σ(φ−φ̄)(φ−φ̄)ᵀ and H = Σ g̃(φ−φ̄)ᵀ the likelihood is, up to constants,

    −½ tr(V⁻¹ B S B) + tr(V⁻¹ H B) − ½ n (ḡ + B(φ*−φ̄))ᵀ V⁻¹ (ḡ + B(φ*−φ̄)).

Symmetry ties the rows of B together, but V^½ S V^½ = U D Uᵀ unties them again: B = V^½ U C Uᵀ V^½ makes the first
two terms −½ Σ_ij D_j C_ij² + Σ_ij K_ij C_ij with K = Uᵀ V^-½ H V^½ U. So the entries of C are independent normals,

    C_ij ~ N((K_ij + K_ji)/(D_i + D_j), 1/(D_i + D_j)) off the diagonal,   C_ii ~ N(K_ii/D_i, 1/D_i),

where nothing of size p² has to be factorised. The third term, φ* integrated out, is what is left to sample.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvi.posterior.na_dpvi.model import after_burn_in
from dpvi.release.trace import MAX_CURVATURE_DIMENSION, CurvatureSums, Trace

_SMALLEST_SPREAD = 1e-10  # of the iterates along some direction, in units of their spread along axes, squared


class DenseStatistics(NamedTuple):
    """Centred sums over the steps in use; float64."""

    num_steps: float  # n
    phi_mean: np.ndarray  # (p,): φ̄
    phi_spread: np.ndarray  # (p, p): S
    gradient_mean: np.ndarray  # (p,): ḡ
    gradient_phi: np.ndarray  # (p, p): H
    slope: np.ndarray  # (p, p): H S⁻¹, the least-squares B without symmetry
    residual: np.ndarray  # (p,): what its planes leave of Σ (g̃−ḡ)²


class DenseModel(NamedTuple):
    """What a trace says and what is assumed; vectors have one entry per variational parameter."""

    statistics: DenseStatistics
    sampling_rate: float  # κ
    noise_scale: np.ndarray  # σC/β
    prior_scale: np.ndarray  # τ
    subsampling_variance: bool  # whether ψ is part of the model, for all parameters


class Coordinates(NamedTuple):
    """The independent normals behind B for some V, (p, p) each."""

    root: np.ndarray  # V^½ U
    mean: np.ndarray  # of C, symmetric
    deviation: np.ndarray  # standard deviations of C

    def matrix(self, standard: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """C and B at symmetric matrices of standard normals, (…, p, p)."""
        C = self.mean + self.deviation * standard
        return C, self.root @ C @ self.root.T


def dense_statistics(trace: Trace, burn_in: float = 0.2) -> DenseStatistics:
    """Centred sums over the moving steps after the first ``burn_in`` of them, rounded up to whole groups of blocks."""
    sums, size = trace.curvature, len(trace.final)
    if sums is None:
        raise ValueError(
            f"A dense curvature needs Σ φφᵀ and Σ g̃φᵀ, which are kept while a run with Vanilla() or "
            f"Preconditioned(beta=...) is made, for up to {MAX_CURVATURE_DIMENSION} variational parameters; this trace "
            f"of {size} has none. Use curvature='diagonal', or fit again where the run was made by an earlier version."
        )
    used = after_burn_in(sums.count, burn_in)
    count = float(sums.count[used].sum())
    if count < size + 2:
        raise ValueError(
            f"A dense curvature of {size} parameters needs at least {size + 2} moving steps, but {count:.0f} are left "
            f"after burn_in={burn_in:g}. Run more steps or shorten the burn-in."
        )
    return _centred(CurvatureSums(*(part[used] for part in sums)), count)


def _centred(sums: CurvatureSums, count: float) -> DenseStatistics:
    """Sums about the mean, group by group: differences of raw totals over the whole run would cancel."""
    phi_mean, gradient_mean = (part.sum(axis=0) / count for part in (sums.phi, sums.gradient))
    steps = sums.count[:, None]
    phi, gradient = sums.phi / steps, sums.gradient / steps  # means of the groups
    phi_off, gradient_off = phi - phi_mean, gradient - gradient_mean

    def about_mean(products: np.ndarray, left: np.ndarray, right: np.ndarray, offs: tuple[np.ndarray, np.ndarray]):
        within = products - np.einsum("b,bi,bj->bij", sums.count, left, right)
        return within.sum(axis=0) + np.einsum("b,bi,bj->ij", sums.count, *offs)

    spread = about_mean(sums.phi_phi, phi, phi, (phi_off, phi_off))
    products = about_mean(sums.gradient_phi, gradient, phi, (gradient_off, phi_off))
    total = (sums.gradient_squared - steps * gradient**2).sum(axis=0) + (steps * gradient_off**2).sum(axis=0)
    scale = np.sqrt(np.maximum(np.diagonal(spread), 0))
    _check_spread(spread, scale)
    slope = np.linalg.solve(spread / scale[:, None] / scale, (products / scale).T).T / scale
    residual = np.maximum(total - np.einsum("ij,ij->i", slope, products), 0)
    return DenseStatistics(count, phi_mean, spread, gradient_mean, products, slope, residual)


def _check_spread(spread: np.ndarray, scale: np.ndarray) -> None:
    moved = scale > 0
    if moved.all() and np.linalg.eigvalsh(spread / scale[:, None] / scale)[0] > _SMALLEST_SPREAD:
        return
    raise ValueError(
        f"A dense curvature of {len(scale)} parameters shows only where the iterates moved in as many directions after "
        f"burn-in; {int(moved.sum())} parameters moved at all. Run more steps, or use curvature='diagonal'."
    )


def coordinates(model: DenseModel, variance: np.ndarray) -> Coordinates:
    """The coordinates in which B has independent normal entries, for V = ``variance``, (p,)."""
    scale = np.sqrt(variance)
    D, U = np.linalg.eigh(scale[:, None] * model.statistics.phi_spread * scale)
    root = scale[:, None] * U
    K = (U / scale[:, None]).T @ model.statistics.gradient_phi @ root
    precision = D[:, None] + D
    on_diagonal = np.where(np.eye(len(D), dtype=bool), 0.5, 1.0)  # entries there are counted once
    precision = precision * on_diagonal
    return Coordinates(root, on_diagonal * (K + K.T) / precision, 1 / np.sqrt(precision))


def log_mean_gradient(model: DenseModel, B: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log N(ḡ; 0, V/n + B diag(τ²) B) without constants: what the mean gradient says about B, φ* integrated out."""
    W, y = _whitened(model, B, variance)
    covariance = W @ np.swapaxes(W, -1, -2)
    np.einsum("...ii->...i", covariance)[...] += 1
    factor = np.linalg.cholesky(covariance)
    half = np.linalg.solve(factor, y[..., None])[..., 0]
    return -np.sum(np.log(np.einsum("...ii->...i", factor)), axis=-1) - 0.5 * np.sum(half**2, axis=-1)


def draw_optimum(model: DenseModel, B: np.ndarray, variance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """φ* − φ̄ given B and V, where it is Gaussian; (…, p)."""
    W, y = _whitened(model, B, variance)
    transposed = np.swapaxes(W, -1, -2)
    precision = transposed @ W
    np.einsum("...ii->...i", precision)[...] += 1
    factor = np.linalg.cholesky(precision)
    shift = -np.linalg.solve(factor, transposed @ y[..., None]) + rng.standard_normal((*y.shape, 1))
    return model.prior_scale * np.linalg.solve(np.swapaxes(factor, -1, -2), shift)[..., 0]


def squares(model: DenseModel, B: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Σ_t (g̃_t − B(φ_t − φ*))² of every parameter at φ* = φ̄ + ``offset``, (…, p)."""
    statistics = model.statistics
    shift = statistics.gradient_mean + (B @ offset[..., None])[..., 0]
    return statistics.residual + misfit(model, B) + statistics.num_steps * shift**2


def misfit(model: DenseModel, B: np.ndarray) -> np.ndarray:
    """How much more than least squares B leaves of Σ (g̃−ḡ)², per parameter, (…, p)."""
    away = B - model.statistics.slope
    return np.einsum("...ij,...ij->...i", away @ model.statistics.phi_spread, away)


def _whitened(model: DenseModel, B: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """W = √n V^-½ B diag(τ) and y = √n V^-½ ḡ: y ~ N(−W(φ*−φ̄)/τ, I)."""
    root = np.sqrt(model.statistics.num_steps / variance)
    return root[..., :, None] * B * model.prior_scale, root * model.statistics.gradient_mean
