"""Columns of synthetic tables: their shares, beside what a private run released of the same columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpvi.declared import columns as counted
from dpvi.population.covariates import released_population
from dpvi.reporting.page.charts import bars_figure, side_by_side
from dpvi.reporting.page.elements import Markup, element, joined, number
from dpvi.table import Boolean, Column, Count, Date, Numeric, Schema, observed_leaf
from dpvi.table.levels import Leveled

_BINS = 16
_MOST_TABLES = 10  # that are looked at

Released = Mapping[str, tuple[np.ndarray, np.ndarray]]  # {column: (values as the schema encodes them, their shares)}


def marginals(result: Any, data: Any) -> Markup:
    """The section of a report: every column of ``data``, with released counts where the plan paid for some."""
    return marginal_figures(data.schema, tables_of(data), released_shares(result, sorted(data.schema.columns)))


def tables_of(data: Any) -> list[dict[str, np.ndarray]]:
    """The first few encoded tables of synthetic data."""
    return [data.encoded(index) for index in range(min(len(data), _MOST_TABLES))]


def marginal_figures(
    schema: Schema, tables: Sequence[dict[str, np.ndarray]], released: Released | None = None
) -> Markup:
    """One picture for every column of the schema."""
    known, figures = released or {}, []
    for name, column in schema.columns.items():
        labels, shares = column_shares(name, column, tables)
        series = [("synthetic tables", shares)]
        if name in known:
            series.append(("released counts", _shares(column, *known[name])))
        figures.append(bars_figure(name, labels, series, _gaps(name, column, tables)))
    words = ["synthetic tables", "released counts"][: 2 if known else 1]
    keys = [element("li", element("span", class_=f"key bar{i}"), text) for i, text in enumerate(words)]
    return joined([element("ul", *keys, class_="legend"), side_by_side(figures)])


def column_shares(name: str, column: Column, tables: Sequence[dict[str, np.ndarray]]) -> tuple[list[str], np.ndarray]:
    """Labels of a column's levels or bins, and the share of each over all tables."""
    values = np.concatenate([_present(name, column, each) for each in tables])
    if isinstance(column, Boolean):
        labels = ["no", "yes"]
    elif isinstance(column, Leveled):
        labels = [str(level) for level in column.levels]
    else:
        labels = [_at(name, column, edge) for edge in _edges(column)[:-1]]
    return labels, _shares(column, values, np.ones(len(values)))


def released_shares(result: Any, names: Sequence[str]) -> Released:
    """What a run's histograms say of the columns that it counted, if they have these ``names`` in this order."""
    columns = [each for each in result.plan.covariates or () if each.bins]
    if result.trace.histograms is None or len(columns) != len(names):
        return {}
    shares = np.asarray(released_population(result.plan, result.trace.histograms).law.shares)
    parts = np.split(shares, np.cumsum([each.bins for each in columns])[:-1])
    return {name: (_values(each), part) for name, each, part in zip(names, columns, parts, strict=True)}


def _values(column: Any) -> np.ndarray:
    """Where the bins of a counted column lie."""
    if isinstance(column, counted.Numeric):
        return column.lower + (np.arange(column.bins) + 0.5) / column.bins * (column.upper - column.lower)
    return np.asarray(column.values) if isinstance(column, counted.Levels) else np.arange(column.bins)


def _shares(column: Column, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Shares of levels or bins from weighted values as the schema encodes them."""
    if isinstance(column, (Leveled, Boolean)):
        size = 2 if isinstance(column, Boolean) else column.num_levels
        found = np.bincount(values.astype(np.int64), weights, minlength=size)
    else:
        found = np.histogram(values, _edges(column), weights=weights)[0]
    return found / max(float(found.sum()), 1e-12)


def _edges(column: Column) -> np.ndarray:
    """Ends of bins; of whole numbers each bin holds equally many."""
    lower, upper, steps = -1.0, 1.0, 0
    if isinstance(column, Count):
        lower, upper, steps = 0.0, float(column.upper), column.upper
    elif isinstance(column, Date):
        steps = (column.upper - column.lower).days
    elif isinstance(column, Numeric) and column.integer:
        steps = int(column.upper - column.lower)
    if not steps:
        return np.linspace(lower, upper, _BINS + 1)
    width = -(-(steps + 1) // _BINS)
    first = np.arange(0, steps + 1, width)
    return lower + (np.append(first, first[-1] + width) - 0.5) / steps * (upper - lower)


def _present(name: str, column: Column, arrays: dict[str, np.ndarray]) -> np.ndarray:
    leaf = np.asarray(arrays[name])
    return leaf[np.asarray(arrays[observed_leaf(name)], bool)] if column.missing else leaf


def _gaps(name: str, column: Column, tables: Sequence[dict[str, np.ndarray]]) -> str:
    if not column.missing:
        return ""
    share = 1 - np.mean([np.mean(np.asarray(each[observed_leaf(name)], bool)) for each in tables])
    return f"{100 * share:.0f} % missing"


def _at(name: str, column: Column, edge: float) -> str:
    """The first value of a bin."""
    value = column.decode(name, np.array([edge]))[0]
    if isinstance(column, Count):
        return str(max(0, math.ceil(edge)))
    if isinstance(column, Numeric):
        steps = column.upper - column.lower
        own = column.lower + (edge + 1) / 2 * steps
        return number(math.ceil(own - 1e-9) if column.integer else float(value), 4)
    return str(value)[:7]
