"""The curvature of the log likelihood at the answer, measured: how far from a point the answer lies, given its score.

In whitened coordinates, V h Vᵀ with h = −∇²log p of a record, the model expects T = V F Vᵀ, nearly the identity, for the
mean over records. What the records have instead is T + E. It tells what no law of covariates could: which records there
are, how columns go together, where responses are nearly certain. E is shrunk where noise explains it (positive-part
James-Stein), eigenvalues are kept away from zero, and H = N V⁻¹ (T + E) V⁻ᵀ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvi.core.requests import Curvature
from dpvi.posterior.metric.moments import power, symmetric
from dpvi.posterior.metric.tails import LengthLaw, mean

_SMALLEST = 0.02  # eigenvalue of T + E
_ASSUMED = 0.3  # the relative error of a curvature that is the model's own
_STRAIGHT = 0.1  # of one that was measured: a log likelihood is no parabola
_CHANGE = 4.0  # most that a curvature may grow or fall between two points
_CANDIDATES = 2.0 ** np.arange(-2, 8.5, 0.5)  # of a bound on ‖V h Vᵀ‖, in units of d


class MeasuredCurvature(NamedTuple):
    """H, and how wrong it may be."""

    matrix: np.ndarray  # H, (d, d): of all records
    information: np.ndarray  # F: what the model expected there, of one record
    whitener: np.ndarray  # V
    noise: float  # standard deviation of an entry of V H Vᵀ / N
    error: float  # relative, besides noise

    def distance(self, step: np.ndarray) -> float:
        """|V⁻ᵀ step|: times ``noise`` and N, what noise in H does to a whitened score that far away."""
        return float(np.linalg.norm(np.linalg.solve(self.whitener.T, step)))


def assumed_curvature(information: np.ndarray, whitener: np.ndarray, num_records: float) -> MeasuredCurvature:
    """The model's own."""
    return MeasuredCurvature(num_records * information, information, whitener, 0.0, _ASSUMED)


def curvature_request(
    query: np.ndarray, whitener: np.ndarray, laws: list[LengthLaw], noise: float, units: int
) -> tuple[Curvature, float]:
    """What to ask at ``query``, and the bound on ‖V h Vᵀ‖ that its metric absorbs; ``noise`` is that of a mean.

    ‖V h Vᵀ‖ has the size of |V g|²: they have the same mean trace.
    """
    dimension = len(query)

    def cost(bound: float) -> float:
        return (0.5 * _lost(laws, bound)) ** 2 + dimension * (bound * noise) ** 2 / 4

    bound = min((dimension * _CANDIDATES).tolist(), key=cost)
    return Curvature(query, whitener / np.sqrt(bound), units), bound


def measured_curvature(
    released: np.ndarray,
    expected: MeasuredCurvature,
    bound: float,
    noise: float,
    num_records: float,
) -> MeasuredCurvature:
    """H from what was released, beside what was ``expected``."""
    whitener, dimension = expected.whitener, len(expected.whitener)
    found, noise = symmetric(released, dimension) * bound / num_records, noise * bound
    target = whitener @ expected.matrix @ whitener.T / num_records
    off = found - target
    shrink = max(0.0, 1 - noise**2 * dimension * (dimension + 1) / 2 / max(float(np.sum(off**2)), 1e-300))
    edge = 1.4 * noise * np.sqrt(dimension) * np.sqrt(shrink)
    values, vectors = np.linalg.eigh(target + shrink * off)
    values = np.maximum(values, max(_SMALLEST, 0.3 * edge))
    back = np.linalg.inv(whitener)
    matrix = num_records * back @ ((vectors * values) @ vectors.T) @ back.T
    error = float(np.hypot(_STRAIGHT, (1 - shrink) * expected.error))
    return MeasuredCurvature((matrix + matrix.T) / 2, expected.information, whitener, noise * float(np.sqrt(shrink)), error)


def elsewhere(curvature: MeasuredCurvature, information: np.ndarray) -> np.ndarray:
    """H where the model expects ``information`` of a record instead: H^½ U H^½, U how the model's own changes.

    A law of covariates that is wrong about a curvature still tells well by how much it grows or falls on a short way.
    """
    spread = power(curvature.information, -0.5)
    values, vectors = np.linalg.eigh(spread @ information @ spread)
    change = (vectors * np.clip(values, 1 / _CHANGE, _CHANGE)) @ vectors.T
    root = power(curvature.matrix, 0.5)
    return root @ change @ root


def _lost(laws: list[LengthLaw], bound: float) -> float:
    """The share of E n² that clipping n² at ``bound`` takes."""
    whole = mean(laws, lambda n: n**2)
    return 1 - mean(laws, lambda n: np.minimum(n**2, bound)) / max(whole, 1e-300)
