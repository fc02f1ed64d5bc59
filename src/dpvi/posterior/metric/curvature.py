"""The curvature of the log likelihood at the answer, measured: how far from a point the answer lies, given its score.

In whitened coordinates, V h Vᵀ with h = −∇²log p of a record, the model expects T = V F Vᵀ, nearly the identity, for
the mean over records. What the records have instead is T + E. It tells what no law of covariates could: which records
there are, how columns go together, where responses are nearly certain. E is shrunk where noise explains it
(positive-part James-Stein), eigenvalues are kept away from zero, and H = N V⁻¹ (T + E) V⁻ᵀ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvi.posterior.metric.moments import denoised, largest_of_noise, power, symmetric
from dpvi.release.requests import Curvature

_SMALLEST = 0.02  # eigenvalue of T + E
_LARGEST_FLOOR = 0.5  # what noise may raise the smallest one to
_ASSUMED = 1.0  # the relative error of a curvature that is the model's own
_STRAIGHT = 0.15  # of one that was measured: a log likelihood is no parabola
_SURE = 1.5  # standard deviations of noise that a curvature may be too large by
_CHANGE = 4.0  # most that a curvature may grow or fall between two points
_CANDIDATES = 2.0 ** np.arange(-2, 8.5, 0.5)  # of a bound on ‖V h Vᵀ‖, in units of d


class MeasuredCurvature(NamedTuple):
    """H, and how wrong it may be."""

    matrix: np.ndarray  # H, (d, d): of all records
    information: np.ndarray  # F: what the model expected there, of one record
    whitener: np.ndarray  # V
    noise: float  # standard deviation of an entry of V H Vᵀ / N
    error: float  # relative, besides noise

    def distances(self, steps: np.ndarray) -> np.ndarray:
        """V⁻ᵀ step of each of ``steps``, (J, d): times ``noise`` and N, what noise in H does to scores there."""
        return np.linalg.solve(self.whitener.T, steps.T).T

    def doubted(self, num_records: float, tolerated: float) -> np.ndarray:
        """D, (d, d): H D is the curvature as small as it may be.

        An error of the whole is relative. Noise is not: it weighs most where there is little curvature. Each principal
        direction of T + E has both, and what exceeds ``tolerated`` makes its curvature smaller.
        """
        values, vectors = np.linalg.eigh(self.whitener @ self.matrix @ self.whitener.T / num_records)
        relative = np.hypot(self.error, _SURE * self.noise / np.maximum(values, 1e-300))
        shrunk = vectors / (1 + np.maximum(relative - tolerated, 0.0)) @ vectors.T
        return self.whitener.T @ shrunk @ np.linalg.inv(self.whitener.T)


def assumed_curvature(information: np.ndarray, whitener: np.ndarray, num_records: float) -> MeasuredCurvature:
    """The model's own."""
    return MeasuredCurvature(num_records * information, information, whitener, 0.0, _ASSUMED)


def curvature_request(
    expected: MeasuredCurvature,
    query: np.ndarray,
    hessians: np.ndarray,
    weights: np.ndarray,
    num_records: float,
    noise: float,
    units: int,
) -> Curvature:
    """Clipped where what simulated ``hessians`` (m, d, d) lose is worth what ``noise`` costs."""
    whitener, dimension = expected.whitener, len(query)
    white = whitener @ hessians @ whitener.T
    sizes = np.linalg.norm(white, axis=(1, 2))

    def cost(bound: float) -> float:
        lost = weights * np.maximum(1 - bound / np.maximum(sizes, 1e-300), 0.0)
        bent = float(np.linalg.norm(np.einsum("m,mab->ab", lost, white)) ** 2) / dimension
        return 0.25 * bent + dimension * (bound * noise / num_records) ** 2 / 4

    bound = min((dimension * _CANDIDATES).tolist(), key=cost)
    return Curvature(query, whitener / np.sqrt(bound), units)


def measured_curvature(
    asked: Curvature,
    released: np.ndarray,
    expected: MeasuredCurvature,
    hessians: np.ndarray,
    weights: np.ndarray,
    noise: float,
    num_records: float,
) -> MeasuredCurvature:
    """H from what was released, beside what was ``expected``; clipping is undone by simulated ``hessians``."""
    dimension = len(asked.query)
    told = asked.metric @ expected.matrix @ asked.metric.T / num_records
    bound = dimension / max(float(np.trace(told)), 1e-300)
    whitener = np.sqrt(bound) * asked.metric
    white = asked.metric @ hessians @ asked.metric.T
    shares = weights * np.minimum(1, 1 / np.maximum(np.linalg.norm(white, axis=(1, 2)), 1e-300))
    whole, clipped = (np.einsum("m,mab->ab", each, white) for each in (weights, shares))
    undo = power(whole, 0.5) @ power(clipped, -0.5)
    found = undo @ symmetric(released, dimension) @ undo.T * bound / num_records
    noise = noise / num_records * bound * float(np.linalg.norm(undo) ** 2 / dimension)
    target = whitener @ expected.matrix @ whitener.T / num_records
    edge = largest_of_noise(noise, dimension)
    off, shrink = denoised(found - target, noise)
    values, vectors = np.linalg.eigh(target + off)
    values = np.maximum(values, max(_SMALLEST, min(_LARGEST_FLOOR, 0.3 * edge * np.sqrt(shrink))))
    back = np.linalg.inv(whitener)
    matrix = num_records * back @ ((vectors * values) @ vectors.T) @ back.T
    # what was not seen to differ may still differ by as much as noise hides, beside what was seen
    hidden = edge * dimension / max(float(np.sum(values)), 1e-300)
    error = float(np.hypot(_STRAIGHT, min(expected.error, hidden)))
    matrix = (matrix + matrix.T) / 2
    return MeasuredCurvature(matrix, expected.information, whitener, noise * float(np.sqrt(shrink)), error)


def elsewhere(curvature: MeasuredCurvature, information: np.ndarray) -> np.ndarray:
    """H where the model expects ``information`` of a record instead: H^½ U H^½, U how the model's own changes.

    A law of covariates that is wrong about a curvature still tells well by how much it grows or falls on a short way.
    """
    spread = power(curvature.information, -0.5)
    values, vectors = np.linalg.eigh(spread @ information @ spread)
    change = (vectors * np.clip(values, 1 / _CHANGE, _CHANGE)) @ vectors.T
    root = power(curvature.matrix, 0.5)
    return root @ change @ root
