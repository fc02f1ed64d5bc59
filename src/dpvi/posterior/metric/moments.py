"""How columns go together: second moments of the covariates, measured in rounds, each in the metric of the one before.

Histograms give every column its own distribution, and rows with independent columns, X. A round whitens these,
x̃ = B x, and asks for S = Σ x̃x̃ᵀ min(1, 1/|x̃|²) of the records. Were the rows right, S would be what they give
themselves; what it is instead tells how columns go together:

    S₀^(−½) S S₀^(−½) = I + E + noise,     S₀ the same sum over the rows, clipping included.

E is shrunk where noise explains it (positive-part James-Stein), eigenvalues are kept away from zero, and every row is
moved, x̃ ← (I + E)^½ x̃: then the rows have the measured moments. Where columns nearly depend on each other the first
round finds the direction and the next one, in whose metric it is as large as any, measures it.
"""

from __future__ import annotations

import numpy as np

from dpvi.release.requests import CovariateMoments

_NO_DIRECTION = 1e-6  # an eigenvalue of the correlations below which records cannot differ
_SMALLEST = 0.02  # an eigenvalue of I + E: what is smaller a later round finds
_HOPELESS = 1.5
_LARGEST_FLOOR = 0.5  # what noise may raise the smallest eigenvalue to
_CANDIDATES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)  # quantiles of |x̃|² to clip at


def moments_request(rows: np.ndarray, num_records: float, noise: float, units: int) -> CovariateMoments:
    """One round.

    Parameters
    ----------
    rows
        Simulated covariates, (M, columns).
    num_records
        N or its estimate.
    noise
        Standard deviation of the answer to so many ``units``.
    """
    whitener = _whitener(rows)
    squares = np.sum((rows @ whitener.T) ** 2, axis=1)
    size = int(np.any(whitener != 0, axis=1).sum())
    return CovariateMoments(whitener / np.sqrt(_bound(squares, noise / num_records, size)), units)


def moved_rows(
    rows: np.ndarray, metric: np.ndarray, released: np.ndarray, num_records: float, noise: float
) -> tuple[np.ndarray, float]:
    """Rows like ``rows`` with the moments that the records have, and how far a curvature computed from them may err.

    Returns
    -------
    The moved rows, and the largest eigenvalue that the noise may have: a relative error.
    """
    white = rows @ metric.T
    used = np.any(metric != 0, axis=1)  # directions in which records can differ
    size = int(used.sum())
    weights = np.minimum(1, 1 / np.maximum(np.sum(white**2, axis=1), 1e-300))
    expected = ((white * weights[:, None]).T @ white / len(rows))[np.ix_(used, used)]
    root = power(expected, -0.5)
    moments = symmetric(released, len(metric))[np.ix_(used, used)] / num_records
    off = root @ moments @ root - np.eye(size)  # E and its noise
    noise = noise / num_records * float(np.mean(np.diag(root))) ** 2
    edge = largest_of_noise(noise, size)
    off, shrink = denoised(off, noise)
    values, vectors = np.linalg.eigh(np.eye(size) + off)
    values = np.maximum(values, max(_SMALLEST, min(_LARGEST_FLOOR, 0.3 * edge * np.sqrt(shrink))))
    white = white[:, used]
    back = np.linalg.lstsq(white, rows, rcond=None)[0]  # where columns add up, moved rows still do
    moved = white @ ((vectors * np.sqrt(values)) @ vectors.T) @ back
    return _with_constants(rows, moved), min(edge, 1.0)


def _with_constants(rows: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Rows with the covariance that ``moved`` has beside a constant column, which stays as it is, and so do means.

    Moments with a constant are means, and these the histograms tell better. A constant that is moved with the others
    is none any more, and what an intercept cannot explain then a rare level has to.
    """
    constant = (np.ptp(rows, axis=0) == 0) & (rows[0] != 0)
    if not constant.any():
        return moved
    second, first = moved.T @ moved / len(moved), int(np.argmax(constant))
    wanted = second - np.outer(second[first], second[first]) / second[first, first]
    mean = rows.mean(axis=0)
    away = rows - mean
    scale = np.where(constant, 1.0, np.maximum(away.std(axis=0), 1e-12))
    away = away / scale
    values, vectors = np.linalg.eigh(away.T @ away / len(away))
    kept = values > _NO_DIRECTION * values.max()
    narrow = (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T
    return mean + away @ narrow @ power(wanted / np.outer(scale, scale), 0.5) * np.where(constant, 0.0, scale)


def largest_of_noise(noise: float, size: int) -> float:
    """The largest eigenvalue that a symmetric matrix of ``noise`` has, about."""
    return 1.4 * noise * float(np.sqrt(size))


def _whitener(rows: np.ndarray) -> np.ndarray:
    """B with E[Bx xᵀBᵀ] = I in the directions that rows have, zero in others."""
    second = rows.T @ rows / len(rows)
    scale = np.sqrt(np.maximum(np.diag(second), 1e-12))
    values, vectors = np.linalg.eigh(second / np.outer(scale, scale))
    kept = values > _NO_DIRECTION * values.max()
    roots = np.where(kept, np.sqrt(np.where(kept, values, 1.0)), np.inf)
    return (vectors / roots).T / scale


def _bound(squares: np.ndarray, noise: float, size: int) -> float:
    """Where to clip |x̃|²: what is lost beside what noise costs. Half of what is lost is thought to be told by rows."""

    def cost(bound: float) -> float:
        lost = 1 - float(np.minimum(squares, bound).sum() / squares.sum())
        return (0.5 * lost) ** 2 + size * (bound * noise) ** 2 / 4

    return min(np.quantile(squares, _CANDIDATES).tolist(), key=cost)


def symmetric(released: np.ndarray, size: int) -> np.ndarray:
    """The matrix whose upper triangle, √2 times off the diagonal, is ``released``."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = released
    diagonal = np.diag(np.diag(matrix))
    upper = (matrix - diagonal) / np.sqrt(2)
    return diagonal + upper + upper.T


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    """A power of a symmetric matrix; eigenvalues that rounding made zero or less count as tiny."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    values = np.maximum(values, 1e-10 * max(float(values.max()), 1e-300))
    return (vectors * values**exponent) @ vectors.T


def denoised(off: np.ndarray, noise: float) -> tuple[np.ndarray, float]:
    """``off``, symmetric, with ``noise`` on its diagonal, shrunk: positive-part James-Stein, and the share kept.

    What all directions have in common is one number with little noise and is shrunk by itself; the rest is shrunk
    around it. Where noise alone has eigenvalues beyond what is measured, which is about one, nothing of the rest stays.
    """
    size = len(off)
    mean = float(np.trace(off)) / size
    rest = off - mean * np.eye(size)
    common = max(0.0, 1 - noise**2 / size / max(mean**2, 1e-300)) * mean * np.eye(size)
    if largest_of_noise(noise, size) > _HOPELESS:
        return common * (noise < _HOPELESS), 0.0
    expected = noise**2 * (size * (size + 1) / 2 - 1)
    share = max(0.0, 1 - expected / max(float(np.sum(rest**2)), 1e-300))
    return common + share * rest, share
