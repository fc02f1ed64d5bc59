"""The exact engine: quadrature over v and ψ, everything about φ* in closed form.

Given (v, ψ) the optimum φ* is Gaussian, and integrating it out leaves a density of one or two variables per parameter:

    log p(v, ψ) = −(n−1)/2 log V − (R + Q(κa−b)²)/2V + log N(ḡ; 0, V/n + (κaτ)²) + log prior(v) + log prior(ψ).

Composite Gauss-Legendre rules integrate it. Their panels are moved to where the mass is, a few times, because the
density can be a narrow peak, a plateau (a → 0, where the gradients say nothing) or both.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import scipy.special

from dpvi.posterior.na_dpvi.model import GradientModel, conditional, curvature, variance

_REACH = 9.0  # prior standard deviations on either side
_FIXED_PANELS = (20, 4)  # of v and ψ, over the whole range
_MOVING_EDGES = (24, 6)  # further edges, placed where the mass is
_SEARCH_ORDERS = (1, 1)  # Gauss-Legendre points per panel while placing edges,
_ORDERS = (4, 3)  # and in the end
_ROUNDS = 5
_NODES_AT_ONCE = 2**17  # what a processor's cache holds


class Quadrature(NamedTuple):
    """φ* of every parameter as a finite mixture of Gaussians; arrays are (p, nodes)."""

    weights: np.ndarray  # sum to one along the nodes
    means: np.ndarray
    standard_deviations: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return np.sum(self.weights * self.means, axis=1)

    @property
    def standard_deviation(self) -> np.ndarray:
        second = self.standard_deviations**2 + (self.means - self.mean[:, None]) ** 2
        return np.sqrt(np.sum(self.weights * second, axis=1))

    def cdf(self, phi: np.ndarray) -> np.ndarray:
        """P(φ* ≤ phi) of every parameter."""
        below = scipy.special.ndtr((np.asarray(phi)[:, None] - self.means) / self.standard_deviations)
        return np.sum(self.weights * below, axis=1)

    def sample(self, rng: np.random.Generator, num_draws: int) -> np.ndarray:
        """(num_draws, p) draws: each node as often as its weight says, up to a random rounding, in random order.

        Systematic resampling needs no search, and leaves less Monte Carlo error than independent draws.
        """
        cumulative = np.cumsum(self.weights, axis=1)
        cumulative /= cumulative[:, -1:]
        passed = np.ceil(num_draws * cumulative - rng.uniform(size=(len(cumulative), 1))).astype(np.int64)
        nodes = np.repeat(np.arange(cumulative.size), np.diff(passed, axis=1, prepend=0).ravel())
        draws = rng.standard_normal(len(nodes)) * self.standard_deviations.ravel()[nodes] + self.means.ravel()[nodes]
        return rng.permuted(draws.reshape(len(cumulative), num_draws), axis=1).T


def exact_draws(model: GradientModel, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """(num_draws, p) draws of φ*, a few parameters at a time: fast, and memory stays bounded."""
    nodes = np.multiply(_ORDERS, np.add(_FIXED_PANELS, _MOVING_EDGES))
    step = int(max(1, _NODES_AT_ONCE // (nodes.prod() if model.subsampling_variance else nodes[0])))
    size = len(model.prior_scale)
    parts = [quadrature(model.take(slice(start, start + step))) for start in range(0, size, step)]
    return np.concatenate([part.sample(rng, num_draws) for part in parts], axis=1)


def quadrature(model: GradientModel) -> Quadrature:
    """φ* with v and ψ integrated out."""
    v, psi, log_density, cells = posterior_grid(model)
    weights = np.exp(log_density - log_density.max(axis=(1, 2), keepdims=True)) * cells
    weights /= weights.sum(axis=(1, 2), keepdims=True)
    means, variances = _conditional(model, v, psi)
    return Quadrature(*(part.reshape(len(v), -1) for part in (weights, means, np.sqrt(variances))))


def posterior_grid(model: GradientModel) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Nodes of v (p, I) and ψ (p, J), the log density (p, I, J) there and the nodes' weights (p, I, J)."""
    fixed = _initial_edges(model)
    edges = fixed
    for _ in range(_ROUNDS):
        v, psi, log_density, cells = _evaluate(model, edges, _SEARCH_ORDERS)
        mass = np.exp(log_density - log_density.max(axis=(1, 2), keepdims=True)) * cells
        marginals = (mass.sum(axis=2), mass.sum(axis=1))
        typical_psi = np.sum(marginals[1] * psi, axis=1) / marginals[1].sum(axis=1)
        marginals = (_with_tails(model, v, typical_psi, marginals[0]), marginals[1])
        edges = tuple(map(_moved, fixed, edges, marginals, _MOVING_EDGES))
    return _evaluate(model, edges, _ORDERS)


def _initial_edges(model: GradientModel) -> tuple[np.ndarray, ...]:
    """Edges of panels over all that could matter: even ones over the prior of v, and denser ones towards zero."""
    half = _FIXED_PANELS[0] // 2
    even = model.curvature_mean[:, None] + model.curvature_scale[:, None] * np.linspace(-_REACH, _REACH, half)
    reach = np.arcsinh(np.maximum(np.abs(even[:, :1]), np.abs(even[:, -1:])))
    dense = np.clip(np.sinh(reach * np.linspace(-1, 1, half + 1)), even[:, :1], even[:, -1:])
    v_edges = np.sort(np.concatenate([even, dense], axis=1), axis=1)
    if not model.subsampling_variance:
        return (v_edges,)
    statistics = model.statistics
    size = np.sqrt((statistics.residual + statistics.phi_spread * statistics.slope**2) / statistics.num_steps)
    return v_edges, np.sinh(np.arcsinh(_REACH + 2 * size)[:, None] * np.linspace(0, 1, _FIXED_PANELS[1] + 1))


def _evaluate(
    model: GradientModel, edges: tuple[np.ndarray, ...], orders: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Nodes of v and ψ, the log density and the weights there; ψ is one node at zero where it is not in the model."""
    v, v_weights = _nodes(edges[0], orders[0])
    psi, psi_weights = np.zeros((len(v), 1)), np.ones((len(v), 1))
    if model.subsampling_variance:
        psi, psi_weights = _nodes(edges[1], orders[1])
    return v, psi, _log_density(model, v, psi), v_weights[:, :, None] * psi_weights[:, None, :]


_rule = functools.cache(np.polynomial.legendre.leggauss)


def _nodes(edges: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights of every panel, (p, panels · order)."""
    points, weights = _rule(order)
    half = 0.5 * np.diff(edges, axis=1)[:, :, None]
    nodes = edges[:, :-1, None] + half * (1 + points)
    return nodes.reshape(len(edges), -1), (half * weights).reshape(len(edges), -1)


def _log_density(model: GradientModel, v: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """log p(v, ψ) with φ* integrated out, (p, I, J), up to a constant per parameter."""
    n, _, spread, gradient_mean, slope, residual = model.statistics
    column = np.s_[:, None]
    line = model.sampling_rate * curvature(v)
    noise = variance(model, psi.T).T
    left = residual[column] + spread[column] * (line - slope[column]) ** 2
    scatter = noise[:, None, :] / n + (line * model.prior_scale[column])[:, :, None] ** 2
    log_v = -0.5 * ((v - model.curvature_mean[column]) / model.curvature_scale[column]) ** 2
    log_psi = -0.5 * (n - 1) * np.log(noise) - (0.5 * psi**2 if model.subsampling_variance else 0)
    result = -0.5 * (np.log(scatter) + (gradient_mean**2)[:, None, None] / scatter)
    result -= left[:, :, None] * (0.5 / noise)[:, None, :]
    return result + log_v[:, :, None] + log_psi[:, None, :]


def _conditional(model: GradientModel, v: np.ndarray, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of φ* at every node, (p, I, J)."""
    mean, spread = conditional(model, v.T[:, None, :], psi.T[None])  # the model wants parameters last
    return np.moveaxis(mean, -1, 0), np.moveaxis(spread, -1, 0)


def _with_tails(model: GradientModel, v: np.ndarray, psi: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The mass of v plus its share in the second moment of φ*: flat curvatures are rare, but they make the tails."""
    mean, spread = (part.T for part in conditional(model, v.T, psi))
    mass = mass / mass.sum(axis=1, keepdims=True)
    centre = np.sum(mass * mean, axis=1, keepdims=True)
    second = mass * (spread + (mean - centre) ** 2)
    return mass + second / second.sum(axis=1, keepdims=True)


def _moved(fixed: np.ndarray, edges: np.ndarray, node_mass: np.ndarray, num_edges: int) -> np.ndarray:
    """The fixed edges and ``num_edges`` more, spread over the panels in proportion to the root of their mass."""
    panels = edges.shape[1] - 1
    mass = np.sqrt(node_mass.reshape(len(edges), panels, -1).sum(axis=2))  # the root looks after tails
    padded = np.pad(mass, ((0, 0), (1, 1)))
    share = np.maximum(np.maximum(padded[:, :-2], padded[:, 2:]), mass)  # a peak may hide behind the next edge
    cumulative = np.concatenate([np.zeros((len(edges), 1)), np.cumsum(share, axis=1)], axis=1)
    levels = (np.arange(num_edges) + 0.5) / num_edges
    moved = np.stack([np.interp(levels * c[-1], c, e) for c, e in zip(cumulative, edges, strict=True)])
    return np.sort(np.concatenate([fixed, moved], axis=1), axis=1)
