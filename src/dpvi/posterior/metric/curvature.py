"""The curvature of the log likelihood at the answer, measured: how far from a point the answer lies, given its score.

In whitened coordinates, V h Vᵀ with h = −∇²log p of a record, the model expects T = V F Vᵀ, nearly the identity, for
the mean over records. What the records have instead is T + E. It tells what no law of covariates could: which records
there are, how columns go together, where responses are nearly certain. E is shrunk where noise explains it
(positive-part James-Stein), eigenvalues are kept away from zero, and H = N V⁻¹ (T + E) V⁻ᵀ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvi.posterior.metric.moments import kept_share, power, symmetric

_SMALLEST = 0.02  # eigenvalue of T + E
_LARGEST_FLOOR = 0.5  # what noise may raise the smallest one to
_ASSUMED = 1.0  # the relative error of a curvature that is the model's own
_STRAIGHT = 0.15  # of one that was measured: a log likelihood is no parabola
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


def assumed_curvature(information: np.ndarray, whitener: np.ndarray, num_records: float) -> MeasuredCurvature:
    """The model's own."""
    return MeasuredCurvature(num_records * information, information, whitener, 0.0, _ASSUMED)


class CurvatureClipping(NamedTuple):
    """How V h Vᵀ of records is clipped, and what the model then expects of their mean."""

    bound: float
    whole: np.ndarray  # T, (d, d), without clipping
    clipped: np.ndarray  # the same with


def curvature_clipping(
    hessians: np.ndarray, weights: np.ndarray, whitener: np.ndarray, noise: float
) -> CurvatureClipping:
    """Where to clip, by what simulated ``hessians`` (m, d, d) lose and what ``noise``, that of a mean, costs."""
    white = whitener @ hessians @ whitener.T
    sizes = np.linalg.norm(white, axis=(1, 2))
    whole = np.einsum("m,mab->ab", weights, white)
    dimension = len(whitener)

    def clipping(bound: float) -> CurvatureClipping:
        shares = weights * np.minimum(1, bound / np.maximum(sizes, 1e-300))
        return CurvatureClipping(bound, whole, np.einsum("m,mab->ab", shares, white))

    def cost(one: CurvatureClipping) -> float:
        lost = np.linalg.norm(one.whole - one.clipped) ** 2 / dimension
        return 0.25 * float(lost) + dimension * (one.bound * noise) ** 2 / 4

    return min((clipping(bound) for bound in (dimension * _CANDIDATES).tolist()), key=cost)


def measured_curvature(
    released: np.ndarray, expected: MeasuredCurvature, clipping: CurvatureClipping, noise: float, num_records: float
) -> MeasuredCurvature:
    """H from what was released, beside what was ``expected``."""
    whitener, dimension = expected.whitener, len(expected.whitener)
    undo = power(clipping.whole, 0.5) @ power(clipping.clipped, -0.5)
    found = undo @ symmetric(released, dimension) @ undo.T * clipping.bound / num_records
    noise = noise * clipping.bound * float(np.linalg.norm(undo) ** 2 / dimension)
    target = whitener @ expected.matrix @ whitener.T / num_records
    off = found - target
    edge = 1.4 * noise * np.sqrt(dimension)  # the largest eigenvalue of symmetric noise
    shrink = kept_share(off, noise, edge)
    values, vectors = np.linalg.eigh(target + shrink * off)
    values = np.maximum(values, max(_SMALLEST, min(_LARGEST_FLOOR, 0.3 * edge * np.sqrt(shrink))))
    back = np.linalg.inv(whitener)
    matrix = num_records * back @ ((vectors * values) @ vectors.T) @ back.T
    # what was not seen to differ may still differ by as much as noise hides
    error = float(np.hypot(_STRAIGHT, min(expected.error, edge)))
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
