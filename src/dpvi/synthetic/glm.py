"""Generalised linear models on synthetic data sets, pooled: the analysis most readers will want first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpvi.data.schema import Boolean, Count, Design, Numeric, Schema, SchemaError, observed_leaf
from dpvi.data.schema.levels import Level
from dpvi.synthetic.generate import SyntheticData
from dpvi.synthetic.rubin import Pooled, pool

_INTERCEPT = "intercept"


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
        ``intercept`` first, then one entry per column of the design. Needs statsmodels.
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

    Records with a missing response or predictor are left out.
    """
    api = _statsmodels()
    column = design.schema[response]
    families = ((Count, api.families.Poisson), (Boolean, api.families.Binomial), (Numeric, api.families.Gaussian))
    family = next((family for kind, family in families if isinstance(column, kind)), None)
    if family is None:
        raise SchemaError(f"The response must be a count, boolean or numeric column, {response!r} is {column.kind}.")
    keep = _complete(arrays, design, response)
    y = np.asarray(column.decode(response, np.asarray(arrays[response])), dtype=np.float64)[keep]
    matrix = design.matrix(arrays, units="own")[keep]
    _check_design(matrix, design, where)
    # Columns of very different size (a year, an income) would cost the solver digits.
    size = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    scaled = np.column_stack([np.ones(len(matrix)), matrix / size])
    fitted = api.GLM(y, scaled, family=family()).fit(cov_type="HC0" if robust else "nonrobust")
    if not fitted.converged:
        raise ValueError(f"The regression did not converge on {where}; use fewer predictors or more records.")
    factor = np.concatenate([[1.0], 1 / size])
    # statsmodels' GLM answers to "HC1" with HC0, so the correction n/(n − k) that makes the difference is put here.
    correction = len(y) / (len(y) - scaled.shape[1]) if robust else 1.0
    return fitted.params * factor, correction * np.square(fitted.bse * factor)


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
    """Refuse what a pseudo-inverse would answer silently with a coefficient of zero and no error."""
    constant = [name for name, flag in zip(design.names, np.ptp(matrix, axis=0) == 0, strict=True) if flag]
    if constant:
        raise ValueError(
            f"In {where} {', '.join(map(repr, constant))} does not vary, so it has no coefficient; draw data sets with "
            "more records, merge rare levels, or leave the predictor out."
        )


def _statsmodels() -> Any:
    try:
        import statsmodels.api
    except ImportError:
        raise ImportError(
            "Regressions need statsmodels, which is optional: install dpvi[tables] or statsmodels."
        ) from None
    return statsmodels.api
