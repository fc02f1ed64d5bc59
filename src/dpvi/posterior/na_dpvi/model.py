"""The model of noisy gradients behind NA-DPVI, on sums of the trace instead of its rows.

Near the optimum φ* the loss is quadratic, so a noisy gradient at φ_t scatters around a line through φ*. Per
coordinate, over the moving steps after burn-in,

    g̃_t ~ N(κ a (φ_t − φ*), V),   V = (σC/β)² + ψ²,
    a = softplus(v),   v ~ N(m, s²),   φ* ~ N(φ̄, τ²),   ψ ~ N(0, 1),

with m = |Σ g̃(φ−φ̄)| / (κ Σ(φ−φ̄)²) and s = σC / (κβ √Σ(φ−φ̄)²), a standard deviation. Completing squares,

    Σ (g̃ − κa(φ−φ*))² = R + Q (κa − b)² + n (ḡ + κa(φ*−φ̄))²,

where Q = Σ(φ−φ̄)², b = Σ g̃(φ−φ̄)/Q and R is what the least-squares line leaves. That is all a trace says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpvi.release.trace import BlockSums, Trace

Array = Any  # NumPy or JAX; the densities below serve both


class TraceStatistics(NamedTuple):
    """Centred sums over the steps in use; float64, (p,) but for the number of steps."""

    num_steps: float  # n
    phi_mean: np.ndarray  # φ̄
    phi_spread: np.ndarray  # Q = Σ (φ−φ̄)²
    gradient_mean: np.ndarray  # ḡ
    slope: np.ndarray  # b = Σ g̃(φ−φ̄) / Q
    residual: np.ndarray  # R = Σ (g̃−ḡ)² − Q b²


class GradientModel(NamedTuple):
    """What a trace says and what is assumed; one entry per variational parameter unless said otherwise."""

    statistics: TraceStatistics
    sampling_rate: float  # κ
    noise_scale: np.ndarray  # σC/β
    curvature_mean: np.ndarray  # m
    curvature_scale: np.ndarray  # s
    prior_scale: np.ndarray  # τ
    subsampling_variance: bool  # whether ψ is part of the model, for all parameters

    def take(self, index: slice) -> GradientModel:
        """The model of some of the parameters; they are independent of the others."""
        statistics = TraceStatistics(self.statistics.num_steps, *(part[index] for part in self.statistics[1:]))
        return self._replace(
            statistics=statistics,
            noise_scale=self.noise_scale[index],
            curvature_mean=self.curvature_mean[index],
            curvature_scale=self.curvature_scale[index],
            prior_scale=self.prior_scale[index],
        )


def trace_statistics(trace: Trace, burn_in: float = 0.2) -> TraceStatistics:
    """Centred sums over the moving steps after the first ``burn_in`` of them, rounded up to whole blocks."""
    blocks = trace.blocks
    used = after_burn_in(blocks.count, burn_in)
    count = float(blocks.count[used].sum())
    if count < 3:
        raise ValueError(
            f"NA-DPVI fits a line to noisy gradients, but only {count:.0f} moving steps are left after burn_in="
            f"{burn_in:g}. Run more steps or shorten the burn-in."
        )
    statistics = _centred(BlockSums(*(part[used] for part in blocks)), count)
    if not np.all(statistics.phi_spread > 0):
        raise ValueError(
            f"{int(np.sum(~(statistics.phi_spread > 0)))} variational parameters never moved after burn-in, so their "
            "gradients say nothing about where the optimum is. Use an optimiser that moves all of them."
        )
    return statistics


def after_burn_in(count: np.ndarray, burn_in: float) -> np.ndarray:
    """Which blocks begin after the first ``burn_in`` of all moving steps and hold some, ``count`` being their steps."""
    before = np.concatenate([[0.0], np.cumsum(count)[:-1]])
    return (before >= burn_in * count.sum()) & (count > 0)


def _centred(blocks: BlockSums, count: float) -> TraceStatistics:
    """Sums about the mean, block by block: differences of raw totals over the whole run would cancel."""
    steps = blocks.count[:, None]
    phi_mean, gradient_mean = (part.sum(axis=0) / count for part in (blocks.phi, blocks.gradient))

    def about_mean(products: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        within = products - left * right / steps
        between = steps * (left / steps - left.sum(axis=0) / count) * (right / steps - right.sum(axis=0) / count)
        return (within + between).sum(axis=0)

    spread = np.maximum(about_mean(blocks.phi_squared, blocks.phi, blocks.phi), 0)
    slope = about_mean(blocks.gradient_phi, blocks.gradient, blocks.phi) / np.where(spread > 0, spread, 1)
    total = about_mean(blocks.gradient_squared, blocks.gradient, blocks.gradient)
    return TraceStatistics(count, phi_mean, spread, gradient_mean, slope, np.maximum(total - spread * slope**2, 0))


def gradient_model(
    statistics: TraceStatistics,
    sampling_rate: float,
    noise_scale: np.ndarray,
    prior_scale: np.ndarray | float = 1.0,
    subsampling_variance: bool = True,
) -> GradientModel:
    """The model with the paper's priors (appendix H.3), ``noise_scale`` being σC/β and ``prior_scale`` τ."""
    shape = statistics.phi_mean.shape
    noise = np.broadcast_to(np.asarray(noise_scale, np.float64), shape)
    return GradientModel(
        statistics,
        sampling_rate,
        noise,
        np.abs(statistics.slope) / sampling_rate,
        noise / (sampling_rate * np.sqrt(statistics.phi_spread)),
        np.broadcast_to(np.asarray(prior_scale, np.float64), shape),
        subsampling_variance,
    )


def curvature(v: Array) -> Array:
    """a = softplus(v)."""
    return v.__array_namespace__().logaddexp(v, 0 * v)


def variance(model: GradientModel, psi: Array) -> Array:
    """V = (σC/β)² + ψ²."""
    return model.noise_scale**2 + psi**2


def log_likelihood(model: GradientModel, v: Array, phi_star: Array, psi: Array) -> Array:
    """Σ_t log N(g̃_t; κ softplus(v) (φ_t − φ*), V) of every parameter; the last axis is theirs."""
    n, phi_mean, spread, gradient_mean, slope, residual = model.statistics
    line = model.sampling_rate * curvature(v)
    total = residual + spread * (line - slope) ** 2 + n * (gradient_mean + line * (phi_star - phi_mean)) ** 2
    noise_variance = variance(model, psi)
    log = noise_variance.__array_namespace__().log
    return -0.5 * n * log(2 * np.pi * noise_variance) - 0.5 * total / noise_variance


def log_prior(model: GradientModel, v: Array, phi_star: Array, psi: Array) -> Array:
    """Log density of the priors on v, φ* and ψ, without constants."""
    squares = ((v - model.curvature_mean) / model.curvature_scale) ** 2
    squares = squares + ((phi_star - model.statistics.phi_mean) / model.prior_scale) ** 2
    return -0.5 * (squares + psi**2) if model.subsampling_variance else -0.5 * squares


def conditional(model: GradientModel, v: Array, psi: Array) -> tuple[Array, Array]:
    """Mean and variance of φ* given (v, ψ), where it is conjugate Gaussian."""
    n, phi_mean, _, gradient_mean, _, _ = model.statistics
    line, noise_variance = model.sampling_rate * curvature(v), variance(model, psi)
    denominator = noise_variance + n * line**2 * model.prior_scale**2
    mean = phi_mean - n * line * gradient_mean * model.prior_scale**2 / denominator
    return mean, noise_variance * model.prior_scale**2 / denominator
