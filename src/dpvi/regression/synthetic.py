"""Synthetic tables from a regression: predictors as the run's counts have them, responses by the formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from dpvi.models.formula import FormulaModel
from dpvi.models.formula.raw_columns import Place, bounds_of
from dpvi.posterior.posterior import given_or_fresh_key
from dpvi.posterior.predictors import predictor_rows
from dpvi.regression.draws import drawn
from dpvi.regression.fitted import RegressionResult
from dpvi.regression.predictions import response_draws
from dpvi.reporting.page.marginals import released_shares
from dpvi.synthetic import SyntheticData
from dpvi.table import Boolean, Count, Date, Leveled, Numeric, Schema


def synthesize_regression(
    fitted: RegressionResult, *, num_records: int, num_datasets: int = 10, key: jax.Array | None = None
) -> SyntheticData:
    """Draw synthetic tables of the columns that a formula names.

    Parameters
    ----------
    fitted
        From :func:`dpvi.glm`.
    num_records
        In each table: a public number, such as the released one.
    num_datasets
        How many tables. Each has parameters of its own from the posterior, and predictors of its own population that
        the released counts allow.
    key
        A PRNG key; the same key gives the same tables. By default a fresh one.

    Guarantees
    ----------
    Post-processing of the result: the tables have its (ε, δ), however many are drawn.
    """
    model, result = fitted.model, fitted.result
    seed = np.asarray(jax.random.key_data(given_or_fresh_key(key)), np.uint64)
    base = jax.random.key(int(seed[-1]))
    draws = drawn(fitted.posterior, num_datasets, int(seed[0] ^ seed[-1]))
    schema = complete_schema(model.read_schema)

    def draw(index: int) -> dict[str, Any]:
        first, second = jax.random.split(jax.random.fold_in(base, index))
        rows = predictor_rows(result, num_records, first)
        one = {site: values[index : index + 1] for site, values in draws.items()}
        response = response_draws(model, rows, one, int(np.asarray(jax.random.key_data(second))[-1]))[0]
        columns = {name: own_values(place, name, rows) for name, place in model.design.raw.places.items()}
        columns[model.response.name] = _response_values(model, response)
        return schema.encode({name: columns[name] for name in schema.columns})

    return SyntheticData(schema, num_datasets, num_records, fitted.posterior.method, fitted.guarantee, draw)


def complete_schema(schema: Schema) -> Schema:
    """The same columns, none of whose values may be missing: records with gaps were left out."""
    columns = {name: replace(column, missing=False) for name, column in schema.columns.items()}
    return Schema(columns, schema.missing_markers)


def own_values(place: Place, name: str, rows: np.ndarray) -> np.ndarray:
    """The values of a raw column as they stand in a table."""
    column, block = place.column, rows[:, place.start : place.start + place.width]
    if place.levels is not None:
        codes = np.where(block.max(axis=1, initial=0.0) > 0.5, block.argmax(axis=1) + 1, 0)
        return np.array(place.levels, dtype=object)[codes]
    if isinstance(column, Boolean):
        return block[:, 0] > 0.5
    lower, upper = bounds_of(name, column)
    return _allowed(column, lower + (block[:, 0] + 1) / 2 * (upper - lower))


def _response_values(model: FormulaModel, drawn_response: np.ndarray) -> np.ndarray:
    column = model.response.column
    if isinstance(column, Boolean):
        return drawn_response > 0.5
    if isinstance(column, Leveled):
        return np.array(column.levels, dtype=object)[np.rint(drawn_response).astype(np.int64)]
    return _allowed(column, drawn_response)


def _allowed(column: Any, values: np.ndarray) -> np.ndarray:
    """The nearest values that the declaration allows."""
    if isinstance(column, Date):
        days = np.rint(values).astype("timedelta64[D]")
        return np.clip(np.datetime64(column.lower) + days, np.datetime64(column.lower), np.datetime64(column.upper))
    if isinstance(column, Count):
        return np.clip(np.rint(values), 0, column.upper).astype(np.int64)
    assert isinstance(column, Numeric)
    inside = np.clip(values, column.lower, column.upper)
    return np.rint(inside) if column.integer else inside


def released_of(fitted: RegressionResult) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What the run's counts say of each predictor, on the scale on which the schema encodes it."""
    places = fitted.model.design.raw.places
    found = {}
    for name, (values, shares) in released_shares(fitted.result, list(places)).items():
        column = places[name].column
        if places[name].levels is None or isinstance(column, Leveled):
            found[name] = ((values + 1) / 2 * column.upper if isinstance(column, Count) else values), shares
    return found
