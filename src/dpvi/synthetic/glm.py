"""Generalised linear models on synthetic data sets, pooled: the analysis most readers will want first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpvi.synthetic.generate import SyntheticData
from dpvi.synthetic.irls import FAMILIES, cells_of, distinguishable, fit_cells, group
from dpvi.synthetic.rubin import Pooled, pool
from dpvi.table import Boolean, Count, Design, Numeric, Schema, SchemaError, observed_leaf
from dpvi.table.levels import Level

_INTERCEPT = "intercept"
_FAMILIES = ((Count, "poisson"), (Boolean, "logistic"), (Numeric, "linear"))


def pool_glm(
    datasets: SyntheticData | Iterable[Any],
    schema: Schema,
    response: str,
    predictors: Sequence[str] | None = None,
    *,
    references: Mapping[str, Level] | None = None,
    robust: bool = False,
    rule: str = "synthetic",
    size_ratio: float | None = None,
) -> Pooled:
    """Fit one generalised linear model to every data set and pool the coefficients.

    Poisson regression for a count, logistic for a boolean, least squares for a numeric response; numbers and counts in
    the table's own units, dates in days since the first declared day, levels as indicators without the reference.

    Parameters
    ----------
    datasets
        From :func:`~dpvi.synthetic.synthesize`, or tables: data frames, or paths of ``.csv`` or ``.parquet`` files.
    schema
        Their schema.
    response
        The column to explain.
    predictors
        The columns to explain it by; all others by default.
    references
        ``{column: level}`` whose indicator is left out; the first level by default.
    robust
        HC1 standard errors instead of the model's own. Use them where the response need not have the model's variance,
        such as a 0/1 count.
    rule, size_ratio
        See :func:`~dpvi.synthetic.pool`.

    Returns
    -------
    Pooled
        ``intercept`` first, then one entry per column of the design.
    """
    others = tuple(name for name in schema.columns if name != response)
    design = Design(schema, others if predictors is None else predictors, references or {})
    estimates, variances = [], []
    for number, arrays in enumerate(_arrays(datasets, schema)):
        estimate, variance = fit_glm(arrays, design, response, robust=robust, where=f"data set {number}")
        estimates.append(estimate)
        variances.append(variance)
    if len(estimates) < 2:
        raise ValueError(f"Pooling needs at least two data sets, got {len(estimates)}.")
    return pool(estimates, variances, rule=rule, size_ratio=size_ratio, names=(_INTERCEPT, *design.names))


def fit_glm(
    arrays: Mapping[str, np.ndarray],
    design: Design,
    response: str,
    *,
    robust: bool = False,
    where: str = "the data set",
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and their variances from one encoded data set, intercept first.

    Records with a missing response or predictor are left out. Records with equal predictors are fitted as one cell,
    which changes nothing but the time (:mod:`dpvi.synthetic.irls`).
    """
    column = design.schema[response]
    family = next((FAMILIES[name] for kind, name in _FAMILIES if isinstance(column, kind)), None)
    if family is None:
        raise SchemaError(f"The response must be a count, boolean or numeric column, {response!r} is {column.kind}.")
    keep = _complete(arrays, design, response)
    leaves = {name: np.asarray(arrays[name])[keep] for name in (response, *design.predictors)}
    y = np.asarray(column.decode(response, leaves[response]), dtype=np.float64)
    first, cell = group([leaves[name] for name in design.predictors])
    matrix = design.matrix({name: leaves[name][first] for name in design.predictors}, units="own")
    _check_design(matrix, design, where)
    # Columns of very different size (a year, an income) would cost the solver digits, and so would a far centre.
    center, size = _center_and_size(matrix)
    cells = cells_of(np.column_stack([np.ones(len(matrix)), (matrix - center) / size]), cell, y)
    if len(y) <= cells.matrix.shape[1] or not distinguishable(cells):
        raise ValueError(
            f"In {where} some predictors cannot be told apart; leave one of them out, or draw data sets with more "
            "records."
        )
    fitted = fit_cells(cells, family, transform=_own_units(center, size), robust=robust)
    if fitted is None:
        raise ValueError(f"The regression did not converge on {where}; use fewer predictors or more records.")
    return fitted


def _center_and_size(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indicators stay as they are; other columns are moved to their middle and scaled to [−1, 1]."""
    low, high = matrix.min(axis=0), matrix.max(axis=0)
    indicator = (low == 0) & (high == 1)
    return np.where(indicator, 0.0, (low + high) / 2), np.where(indicator, 1.0, (high - low) / 2)


def _own_units(center: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The matrix that takes coefficients of (1, (x − center)/size) to those of (1, x)."""
    transform = np.diag(np.concatenate([[1.0], 1 / size]))
    transform[0, 1:] = -center / size
    return transform


def _arrays(datasets: SyntheticData | Iterable[Any], schema: Schema) -> Iterable[Mapping[str, np.ndarray]]:
    if isinstance(datasets, SyntheticData):
        return (datasets.encoded(index) for index in range(len(datasets)))
    return (schema.encode(table) for table in datasets)


def _complete(arrays: Mapping[str, np.ndarray], design: Design, response: str) -> np.ndarray:
    keep = np.ones(len(arrays[response]), dtype=bool)
    for name in (response, *design.predictors):
        if design.schema[name].missing:
            keep &= np.asarray(arrays[observed_leaf(name)])
    return keep


def _check_design(matrix: np.ndarray, design: Design, where: str) -> None:
    """Name the columns that have no coefficient because they do not vary."""
    constant = [name for name, flag in zip(design.names, np.ptp(matrix, axis=0) == 0, strict=True) if flag]
    if constant:
        raise ValueError(
            f"In {where} {', '.join(map(repr, constant))} does not vary, so it has no coefficient; draw data sets with "
            "more records, merge rare levels, or leave the predictor out."
        )
