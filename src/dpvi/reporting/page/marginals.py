"""Columns of synthetic tables: their shares, beside what a private run released of the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpvi.reporting.page.charts import bars_figure, side_by_side
from dpvi.reporting.page.elements import Markup, element, joined, number
from dpvi.table import Boolean, Column, Count, Date, Numeric, Schema, observed_leaf
from dpvi.table.levels import Leveled

_BINS = 16
_MOST_TABLES = 10  # that are looked at


def marginals(result: Any, data: Any) -> Markup:
    """The section of a report: every column of ``data``, with released counts where the plan paid for some."""
    return marginal_figures(data.schema, tables_of(data), released_shares(result, data.schema))


def tables_of(data: Any) -> list[dict[str, np.ndarray]]:
    """The first few encoded tables of synthetic data."""
    return [data.encoded(index) for index in range(min(len(data), _MOST_TABLES))]


def marginal_figures(
    schema: Schema, tables: Sequence[dict[str, np.ndarray]], released: dict[str, np.ndarray] | None = None
) -> Markup:
    """One picture for every column of the schema."""
    known, figures = released or {}, []
    for name, column in schema.columns.items():
        labels, shares = column_shares(name, column, tables)
        series = [("synthetic tables", shares)]
        if name in known and len(known[name]) % len(shares) == 0:
            series.append(("released counts", known[name].reshape(len(shares), -1).sum(axis=1)))
        figures.append(bars_figure(name, labels, series, _gaps(name, column, tables)))
    keys = [
        element("li", element("span", class_=f"key bar{index}"), words)
        for index, words in enumerate(["synthetic tables", "released counts"][: 2 if known else 1])
    ]
    return joined([element("ul", *keys, class_="legend"), side_by_side(figures)])


def column_shares(name: str, column: Column, tables: Sequence[dict[str, np.ndarray]]) -> tuple[list[str], np.ndarray]:
    """Labels of a column's levels or bins, and the share of each over all tables."""
    values = np.concatenate([_present(name, column, each) for each in tables])
    if isinstance(column, (Leveled, Boolean)):
        labels = ["no", "yes"] if isinstance(column, Boolean) else [str(level) for level in column.levels]
        counts = np.bincount(values.astype(np.int64), minlength=len(labels)).astype(np.float64)
    else:
        counts, edges = np.histogram(values, bins=_BINS, range=_range(column))
        labels = [_at(name, column, edge) for edge in edges[:-1]]
    return labels, counts / max(1.0, counts.sum())


def released_shares(result: Any, schema: Schema) -> dict[str, np.ndarray]:
    """Shares of the bins that a run's histograms released, for columns that the schema names in the same order."""
    from dpvi.population.covariates import released_population

    columns = [each for each in result.plan.covariates or () if each.bins]
    named = sorted(name for name in schema.columns)
    if result.trace.histograms is None or len(columns) != len(named):
        return {}
    people = released_population(result.plan, result.trace.histograms)
    ends = np.cumsum([each.bins for each in columns])[:-1]
    return dict(zip(named, np.split(np.asarray(people.law.shares), ends), strict=True))


def _present(name: str, column: Column, arrays: dict[str, np.ndarray]) -> np.ndarray:
    leaf = np.asarray(arrays[name])
    return leaf[np.asarray(arrays[observed_leaf(name)], bool)] if column.missing else leaf


def _gaps(name: str, column: Column, tables: Sequence[dict[str, np.ndarray]]) -> str:
    if not column.missing:
        return ""
    share = 1 - np.mean([np.mean(np.asarray(each[observed_leaf(name)], bool)) for each in tables])
    return f"{100 * share:.0f} % missing"


def _range(column: Column) -> tuple[float, float]:
    return (0.0, float(column.upper)) if isinstance(column, Count) else (-1.0, 1.0)


def _at(name: str, column: Column, edge: float) -> str:
    value = column.decode(name, np.array([edge]))[0]
    if isinstance(column, (Numeric, Count)):
        return number(float(value), 4)
    return str(value)[:7] if isinstance(column, Date) else str(value)
