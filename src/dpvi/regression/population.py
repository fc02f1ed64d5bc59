"""Whom adjusted predictions are averaged over: rows that have the released histograms and second moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from dpvi.models.formula import FormulaError, FormulaModel
from dpvi.posterior import Result
from dpvi.posterior.metric.belief import first_belief, learned
from dpvi.posterior.score import ScoreModel
from dpvi.release.measurements import answered
from dpvi.release.requests import CovariateMoments
from dpvi.table import Boolean, Leveled, SchemaError, observed_leaf

_ROWS = 1000


def population(result: Result, model: FormulaModel) -> np.ndarray:
    """Simulated raw columns that stand for the records, (rows, width): made from what was released and nothing else.

    Every column has its noisy histogram, and where second moments were measured columns go together as these say.
    Numbers stay within their bounds; indicators may be fractions, of which a mean of predictions makes use.
    """
    if not model.design.raw.names:
        return np.ones((1, 1))
    if result.trace.histograms is None:
        raise ValueError(
            "This run released no histograms of its columns, so there is nobody to average over; give every column a "
            "value with at={...}."
        )
    belief = first_belief(result.scores or ScoreModel(cast(Any, result.model), result.plan), result.trace.histograms)
    for each in answered(result.trace.measurements) if result.trace.measurements is not None else ():
        if not isinstance(each.request, CovariateMoments):
            break
        belief = learned(belief, each.request, each.released)
    leaf = belief.leaves[0]
    rows = np.clip(np.asarray(leaf[:: max(1, len(leaf) // _ROWS)], np.float64), -1, 1)
    rows[:, 0] = 1.0
    return rows


def rows_at(result: Result, model: FormulaModel, at: Mapping[str, Any] | None) -> np.ndarray:
    """The population with the columns of ``at`` at given values; one row where these are all columns."""
    given = dict(at or {})
    names = model.design.raw.names
    unknown = sorted(given.keys() - set(names))
    if unknown:
        raise FormulaError(f"at names {', '.join(map(repr, unknown))}, but the predictors are {', '.join(names)}.")
    whole = set(names) <= given.keys()
    rows = np.ones((1, model.design.raw.width)) if whole else population(result, model)
    for name, value in given.items():
        rows = with_value(model, rows, name, value)
    return rows


def with_value(model: FormulaModel, rows: np.ndarray, name: str, value: Any) -> np.ndarray:
    """``rows`` with column ``name`` at ``value``, in own units."""
    column = model.schema[name]
    try:
        leaf = column.encode(
            name, np.array([value], dtype=object if isinstance(column, Leveled) else None), strict=True
        )
    except SchemaError:
        declared = model.schema[name].to_dict()
        known = ", ".join(f"{entry} {declared[entry]}" for entry in ("levels", "lower", "upper") if entry in declared)
        raise FormulaError(f"{value!r} is no declared value of {name!r}, which has {known or 'no and yes'}.") from None
    raw = model.design.raw
    lone = type(raw)(raw.schema, (name,), raw.as_levels)
    place = raw.places[name]
    changed = rows.copy()
    block = lone.matrix({name: leaf, observed_leaf(name): np.ones(1, bool)})
    changed[:, place.start : place.start + place.width] = block[:, 1:]
    return changed


def values_of(model: FormulaModel, name: str, count: int = 25) -> list[Any]:
    """Values at which to show column ``name``: all levels, or numbers from bound to bound."""
    if name not in model.design.raw.places:
        raise FormulaError(f"{name!r} is no predictor; there are {', '.join(map(repr, model.design.raw.names))}.")
    place = model.design.raw.places[name]
    if place.levels is not None:
        return list(place.levels)
    if isinstance(place.column, Boolean):
        return [False, True]
    column: Any = place.column
    if column.kind == "date":
        days = np.linspace(0, (column.upper - column.lower).days, count).astype(int)
        return [np.datetime64(column.lower) + int(day) for day in days]
    lower = 0 if column.kind == "count" else column.lower
    grid = np.linspace(lower, column.upper, count)
    whole = column.kind == "count" or column.integer
    return sorted(set(np.rint(grid).astype(int).tolist())) if whole else grid.tolist()
