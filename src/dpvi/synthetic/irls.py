"""Maximum likelihood of generalised linear models with canonical links, from cells instead of records.

Records with the same predictors form a cell c with n_c records, sum of responses S_c = Σ y and Q_c = Σ y². Likelihood,
information and the sandwich's middle depend on the records through these three numbers alone, so a table of a few
categorical columns is fitted in milliseconds whatever its length, with the estimate and errors of the full table:

    β        solves Σ_c x_c (S_c − n_c μ_c) = 0,  μ_c = h(x_c·β)                by Newton's method (here Fisher scoring)
    J        = Σ_c n_c v_c x_c x_cᵀ                v the family's variance at μ_c
    model    Cov β = φ J⁻¹                         φ = RSS/(n − k) for least squares, else 1
    robust   Cov β = n/(n − k) J⁻¹ Σ_c x_c x_cᵀ (Q_c − 2 μ_c S_c + n_c μ_c²) J⁻¹                             (HC1)

=========  ==============  =============  ==============================
family     h(a)            v              log-likelihood of a cell
=========  ==============  =============  ==============================
poisson    exp(a)          μ              S a − n exp(a)
logistic   1/(1 + exp −a)  μ (1 − μ)      S a − n log(1 + exp a)
linear     a               1              −½ (Q − 2 S a + n a²)
=========  ==============  =============  ==============================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_MAX_STEPS = 100
_MAX_HALVINGS = 40
_TOLERANCE = 1e-12  # of the log-likelihood, relative: beyond the digits that estimates have
_DEGENERATE = 1e-10  # smallest eigenvalue of a correlation matrix of columns that are told apart
_LARGEST = 700.0  # exp of more is infinite


class Cells(NamedTuple):
    """Distinct rows of a design matrix, intercept included, and what is needed of the responses in each."""

    matrix: np.ndarray  # (cells, k)
    number: np.ndarray  # n_c
    total: np.ndarray  # S_c
    squares: np.ndarray  # Q_c


class Family(NamedTuple):
    """A response law: mean, variance and log-likelihood terms, each of the linear predictor a (cells,)."""

    mean: Callable[[np.ndarray], np.ndarray]
    variance: Callable[[np.ndarray], np.ndarray]
    log_likelihood: Callable[[Cells, np.ndarray], float]
    dispersed: bool = False


def _logistic(a: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -a))


def _rate(a: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(a, _LARGEST))


FAMILIES: Mapping[str, Family] = {
    "poisson": Family(_rate, _rate, lambda c, a: float(c.total @ a - c.number @ _rate(a))),
    "logistic": Family(
        _logistic,
        lambda a: _logistic(a) * _logistic(-a),
        lambda c, a: float(c.total @ a - c.number @ np.logaddexp(0, a)),
    ),
    "linear": Family(
        lambda a: a,
        np.ones_like,
        lambda c, a: -0.5 * float(np.sum(c.squares - 2 * c.total * a + c.number * a**2)),
        True,
    ),
}


def group(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct rows of ``columns`` (one array per predictor, each (n,)).

    Returns
    -------
    A record of each cell, (cells,), and the cell of each record, (n,).

    Examples
    --------
    >>> first, cell = group([np.array([0, 1, 0, 1]), np.array([True, False, True, True])])
    >>> first.tolist(), cell.tolist()
    ([1, 0, 3], [1, 0, 1, 2])
    """
    key, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        codes = _codes(column)
        levels = int(codes.max(initial=0)) + 1
        if size * levels > np.iinfo(np.int64).max // 2:  # so many levels together: renumber those that occur
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            size = int(key.max(initial=0)) + 1
        key, size = key + size * codes, size * levels
    _, first, cell = np.unique(key, return_index=True, return_inverse=True)
    return first, cell


def _codes(column: np.ndarray) -> np.ndarray:
    """Equal values get equal whole numbers from 0 on; sorting is spared where they are such numbers nearly."""
    if column.dtype.kind in "bui" and len(column):
        shifted = column.astype(np.int64) - int(column.min())
        if shifted.max() < len(column):
            return shifted
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def cells_of(matrix: np.ndarray, cell: np.ndarray, response: np.ndarray) -> Cells:
    """Sums of ``response`` (n,) over the cells whose rows are ``matrix``."""
    size = len(matrix)
    return Cells(
        matrix,
        np.bincount(cell, minlength=size).astype(np.float64),
        np.bincount(cell, response, size),
        np.bincount(cell, response**2, size),
    )


def distinguishable(cells: Cells) -> bool:
    """Whether no column of the design is a combination of the others."""
    gram = (cells.matrix.T * cells.number) @ cells.matrix
    size = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(float).tiny))
    return bool(np.linalg.eigvalsh(gram / np.outer(size, size))[0] > _DEGENERATE)


def fit_cells(
    cells: Cells, family: Family, *, transform: np.ndarray | None = None, robust: bool = False
) -> tuple[np.ndarray, np.ndarray] | None:
    """β, or ``transform @ β``, and the diagonal of its covariance; ``None`` where no maximum was found.

    ``cells.matrix`` must be :func:`distinguishable`. Where the maximum lies at infinity (no event in some level), the
    last step has a huge coefficient with a far larger variance, as in other programs.
    """
    beta = np.zeros(cells.matrix.shape[1])
    height = family.log_likelihood(cells, cells.matrix @ beta)
    for _ in range(_MAX_STEPS):
        step = _newton_step(cells, family, beta)
        if step is None:
            return None
        for _ in range(_MAX_HALVINGS):
            reached = family.log_likelihood(cells, cells.matrix @ (beta + step))
            if reached >= height - _TOLERANCE * abs(height):
                break
            step = step / 2
        else:
            return None
        gain, beta, height = abs(reached - height), beta + step, reached
        if gain <= _TOLERANCE * (abs(height) + 1e-300):
            return _answer(cells, family, beta, transform, robust)
    return None


def _newton_step(cells: Cells, family: Family, beta: np.ndarray) -> np.ndarray | None:
    a = cells.matrix @ beta
    slope = cells.matrix.T @ (cells.total - cells.number * family.mean(a))
    try:
        return np.linalg.solve(_information(cells, family, a), slope)
    except np.linalg.LinAlgError:
        return None


def _information(cells: Cells, family: Family, a: np.ndarray) -> np.ndarray:
    return (cells.matrix.T * (cells.number * family.variance(a))) @ cells.matrix


def _answer(
    cells: Cells, family: Family, beta: np.ndarray, transform: np.ndarray | None, robust: bool
) -> tuple[np.ndarray, np.ndarray]:
    a = cells.matrix @ beta
    units = np.eye(len(beta)) if transform is None else transform
    inverse = units @ np.linalg.inv(_information(cells, family, a))
    mean = family.mean(a)
    residual_squares = np.maximum(cells.squares - 2 * mean * cells.total + cells.number * mean**2, 0.0)
    num_records, freedom = cells.number.sum(), cells.number.sum() - len(beta)
    if robust:
        half = inverse @ (cells.matrix.T * np.sqrt(residual_squares))
        return units @ beta, num_records / freedom * np.sum(half**2, axis=1)
    dispersion = residual_squares.sum() / freedom if family.dispersed else 1.0
    return units @ beta, dispersion * np.sum(inverse * units, axis=1)
