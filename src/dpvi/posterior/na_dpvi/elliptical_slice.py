"""The engine of the dense model: elliptical slice sampling of the curvature, φ* and its kin in closed form.

Given V, the entries of the curvature in the right coordinates are independent normals but for two things: the matrix
is positive definite, and the mean gradient must be likely under it. Elliptical slice sampling (Murray, Adams and MacKay
2010) needs nothing to be tuned for that. It proposes points on the ellipse through the current state and a fresh
normal draw, and shrinks towards the current state until one is good enough; where the curvature is well known, the
first one is, and draws are all but independent. φ* then follows exactly, and ψ by slices of its own. Coordinates are
made once, for the V that residuals suggest; what another V changes is a small factor in the target.

Many chains run side by side, so that linear algebra comes in batches.

References
----------
Murray, Adams and MacKay, Elliptical slice sampling, AISTATS 2010.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from dpvi.declared.validation import ConvergenceWarning
from dpvi.posterior.na_dpvi.dense import (
    Coordinates,
    DenseModel,
    coordinates,
    draw_optimum,
    log_mean_gradient,
    misfit,
    squares,
)

DEFAULT_SWEEPS_BEFORE = 100
_CHAINS = 50
_STARTING_CURVATURE = 0.1  # in standard deviations, where least squares is not positive
_WORST_MIXING = 1.2  # the potential scale reduction above which draws are not to be trusted

LogTarget = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (states, which chains) -> log densities


def slice_draws(
    model: DenseModel, num_draws: int, rng: np.random.Generator, num_warmup: int = DEFAULT_SWEEPS_BEFORE
) -> np.ndarray:
    """(num_draws, p) draws of φ*: the sweeps of 50 chains, each after ``num_warmup`` sweeps that are thrown away."""
    num_chains = min(_CHAINS, num_draws)
    psi = np.broadcast_to(_initial_psi(model), (num_chains, len(model.noise_scale)))
    usual = model.noise_scale**2 + psi[0] ** 2
    frame = coordinates(model, usual)
    standard = np.broadcast_to(_initial_curvature(frame), (num_chains, *frame.mean.shape))
    kept = []
    for sweep in range(num_warmup - (-num_draws // num_chains)):
        variance = model.noise_scale**2 + psi**2
        standard = _sweep_curvature(model, frame, usual, variance, standard, rng)
        _, B = frame.matrix(standard)
        offset = draw_optimum(model, B, variance, rng)
        if model.subsampling_variance:
            psi = _sweep_psi(model, psi, squares(model, B, offset), rng)
        if sweep >= num_warmup:
            kept.append(offset)
    draws = np.stack(kept)  # (sweeps, chains, p)
    _warn_about_mixing(draws)
    return model.statistics.phi_mean + draws.reshape(-1, draws.shape[-1])[:num_draws]


def elliptical_slice(state: np.ndarray, normal: np.ndarray, log_target: LogTarget, rng: np.random.Generator):
    """One update of every chain: states (chains, …) with standard normal priors times exp(log_target).

    ``normal`` is a fresh draw from the prior. Returns the new states.
    """
    shape = (-1,) + (1,) * (state.ndim - 1)
    open_chains = np.arange(len(state))
    level = log_target(state, open_chains) + np.log(rng.uniform(size=len(state)))
    angle = rng.uniform(0, 2 * np.pi, len(state))
    low, high, result = angle - 2 * np.pi, angle.copy(), state.copy()
    while len(open_chains):
        turn = angle[open_chains].reshape(shape)
        proposal = state[open_chains] * np.cos(turn) + normal[open_chains] * np.sin(turn)
        good = log_target(proposal, open_chains) > level[open_chains]
        result[open_chains[good]] = proposal[good]
        open_chains = open_chains[~good]
        # the bracket shrinks to the side of the rejected angle; angle 0 is the current state and always inside
        rejected = angle[open_chains]
        low[open_chains] = np.where(rejected < 0, rejected, low[open_chains])
        high[open_chains] = np.where(rejected < 0, high[open_chains], rejected)
        angle[open_chains] = rng.uniform(low[open_chains], high[open_chains])
    return result


def _sweep_curvature(
    model: DenseModel,
    frame: Coordinates,
    usual: np.ndarray,
    variance: np.ndarray,
    standard: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """The next standard normals behind the curvature, φ* integrated out; ``usual`` is the V that ``frame`` is for."""

    def log_target(proposal: np.ndarray, chains: np.ndarray) -> np.ndarray:
        C, B = frame.matrix(proposal)
        result = np.full(len(chains), -np.inf)
        positive = _positive_definite(C)
        B, ours = B[positive], variance[chains][positive]
        result[positive] = log_mean_gradient(model, B, ours)
        if model.subsampling_variance:
            result[positive] -= 0.5 * np.sum((1 / ours - 1 / usual) * misfit(model, B), axis=-1)
        return result

    normal = np.tril(rng.standard_normal(standard.shape))
    normal = normal + np.swapaxes(np.tril(normal, -1), -1, -2)
    return elliptical_slice(standard, normal, log_target, rng)


def _positive_definite(matrices: np.ndarray) -> np.ndarray:
    """Which of the matrices are positive definite; mostly all of them, and then one factorisation says so."""
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return np.linalg.eigvalsh(matrices)[:, 0] > 0
    return np.ones(len(matrices), bool)


def _sweep_psi(model: DenseModel, psi: np.ndarray, total: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """ψ given everything else: one dimension per parameter, all at once."""
    n, noise = model.statistics.num_steps, np.broadcast_to(model.noise_scale**2, psi.shape).ravel()
    total = total.ravel()

    def log_target(proposal: np.ndarray, which: np.ndarray) -> np.ndarray:
        variance = noise[which] + proposal**2
        return -0.5 * n * np.log(variance) - 0.5 * total[which] / variance

    return elliptical_slice(psi.ravel(), rng.standard_normal(psi.size), log_target, rng).reshape(psi.shape)


def _initial_psi(model: DenseModel) -> np.ndarray:
    """What the residuals show beyond the privacy noise, and a little where they show nothing."""
    if not model.subsampling_variance:
        return np.zeros_like(model.noise_scale)
    freedom = model.statistics.num_steps - len(model.noise_scale)  # every parameter has fitted a plane
    return np.sqrt(np.maximum(model.statistics.residual / freedom - model.noise_scale**2, 0.1))


def _initial_curvature(frame: Coordinates) -> np.ndarray:
    """Least squares, with eigenvalues that are not positive raised until they are."""
    values, vectors = np.linalg.eigh(frame.mean)
    floor = _STARTING_CURVATURE * np.diagonal(frame.deviation).max()
    C = (vectors * np.maximum(values, floor)) @ vectors.T
    return (C - frame.mean) / frame.deviation


def _warn_about_mixing(draws: np.ndarray) -> None:
    """Compare the chains: where their means differ by more than their spread explains, say so."""
    sweeps, chains, _ = draws.shape
    if sweeps < 10 or chains < 10:
        return
    within = draws.var(axis=0, ddof=1).mean(axis=0)
    between = sweeps * draws.mean(axis=0).var(axis=0, ddof=1)
    reduction = np.sqrt(np.max((sweeps - 1 + between / within) / sweeps))
    if reduction > _WORST_MIXING:
        warnings.warn(
            f"The chains behind the dense curvature have not mixed (potential scale reduction {reduction:.2f}): the "
            "run hardly shows the curvature. Take more num_warmup and num_draws, or use curvature='diagonal'.",
            ConvergenceWarning,
            stacklevel=4,
        )
