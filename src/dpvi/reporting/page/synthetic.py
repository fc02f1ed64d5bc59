"""One page about synthetic tables: their columns, how these go together, and what their model cannot express."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.reporting.page.charts import matrix_figure
from dpvi.reporting.page.elements import Markup, element, joined, number, table
from dpvi.reporting.page.marginals import Released, marginal_figures, tables_of
from dpvi.reporting.page.promise import promise
from dpvi.reporting.page.shell import Section, masthead, page, write_page
from dpvi.table import Boolean, Column, Schema, observed_leaf
from dpvi.table.levels import Leveled

_BINS = 8  # of a number, where it is held against another column
_MOST_COLUMNS = 20  # in the matrix

MIXTURE_LIMITS = (
    "Within a cluster columns are independent, so two columns go together only as far as few clusters can show it. "
    "Rules between columns (a date before another, a sum of others) are not kept.",
    "Numbers are normal within a cluster: hard edges, heaps at round numbers and long tails are smoothed away.",
    "Levels that noise hides, and combinations of levels that few records have, come out more or less often than they "
    "were.",
)
REGRESSION_LIMITS = (
    "Predictors were drawn from their noisy counts and, where the run measured them, second moments: how columns go "
    "together beyond correlations is not there.",
    "The response depends on the predictors as the formula says, and in no other way: interactions and curves that it "
    "leaves out are not in the tables.",
)
_ALWAYS = (
    "Each table has parameters of its own. Analyse all of them and pool (dpvi.synthetic.pool): one alone hides how "
    "uncertain the model is.",
)


def write_synthetic_page(
    data: Any,
    path: str | Path,
    *,
    released: Released | None = None,
    limits: Sequence[str] = MIXTURE_LIMITS,
    title: str = "",
) -> Path:
    """Write one self-contained HTML page about synthetic tables; parameters as for :func:`synthetic_page`."""
    return write_page(synthetic_page(data, released=released, limits=limits, title=title), path)


def synthetic_page(
    data: Any, *, released: Released | None = None, limits: Sequence[str] = MIXTURE_LIMITS, title: str = ""
) -> str:
    """The page about synthetic tables as text.

    Parameters
    ----------
    data
        From :func:`dpvi.synthesize`; at most ten of its tables are looked at.
    released
        ``{column: (values, shares)}`` that the run released, shown beside those of the tables; see
        :func:`~dpvi.reporting.page.marginals.released_shares`.
    limits
        What the model of the tables cannot express, one sentence or two each.
    title
        Of the page.
    """
    tables = tables_of(data)
    cannot = element("ul", *(element("li", each) for each in (*limits, *_ALWAYS)))
    sections = [
        Section("The guarantee", promise(data.guarantee)),
        Section("Columns", marginal_figures(data.schema, tables, released)),
        Section("Columns together", _together(data.schema, tables)),
        Section("What the tables cannot show", cannot),
        Section("The tables", _shape(data)),
    ]
    heading, promised = title or "Synthetic tables", data.guarantee
    facts = [("Tables", str(len(data))), ("Records in each", f"{data.num_records:,}")]
    if promised.private:
        facts += [("Privacy budget ε", number(promised.epsilon, 4)), ("May fail with δ", number(promised.delta))]
    subtitle = f"{len(data.schema.columns)} columns: {', '.join(data.schema.columns)}"
    footer = element("footer", element("p", "Made by dpvi. Drawing more tables from one result costs no more privacy."))
    return page(heading, masthead("Synthetic data", heading, subtitle, facts), sections, footer)


def association(first: np.ndarray, second: np.ndarray) -> float:
    """Cramér's V of two columns of codes: 0 where they are independent, 1 where one follows from the other.

    Its bias from chance is taken off (Bergsma, 2013), so that independent columns have 0 and not a bit more.

    Examples
    --------
    >>> codes = np.tile([0, 0, 1, 1], 100)
    >>> association(codes, codes), association(codes, np.tile([0, 1, 0, 1], 100))
    (1.0, 0.0)
    """
    counts = np.zeros((int(first.max(initial=0)) + 1, int(second.max(initial=0)) + 1))
    np.add.at(counts, (first, second), 1)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    total, (rows, columns) = counts.sum(), counts.shape
    if min(rows, columns) < 2:
        return 0.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / total
    phi = float(np.sum((counts - expected) ** 2 / expected)) / total
    phi = max(0.0, phi - (rows - 1) * (columns - 1) / (total - 1))
    most = min(rows - (rows - 1) ** 2 / (total - 1), columns - (columns - 1) ** 2 / (total - 1)) - 1
    return float(min(1.0, np.sqrt(phi / most))) if most > 0 else 0.0


def associations(schema: Schema, tables: Sequence[dict[str, np.ndarray]]) -> tuple[list[str], np.ndarray]:
    """Names of columns, and the mean over tables of the association of every pair."""
    names = list(schema.columns)[:_MOST_COLUMNS]
    found = np.eye(len(names))
    for row, name in enumerate(names):
        for other in range(row):
            values = [
                association(_codes(name, schema[name], each), _codes(names[other], schema[names[other]], each))
                for each in tables
            ]
            found[row, other] = found[other, row] = float(np.mean(values))
    return names, found


def _codes(name: str, column: Column, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Levels, or bins of about equal counts; a missing value is a level of its own."""
    leaf = np.asarray(arrays[name])
    if isinstance(column, (Leveled, Boolean)):
        codes = leaf.astype(np.int64)
    else:
        codes = np.searchsorted(np.unique(np.quantile(leaf, np.linspace(0, 1, _BINS + 1)[1:-1])), leaf, side="right")
    return np.where(np.asarray(arrays[observed_leaf(name)], bool), codes + 1, 0) if column.missing else codes


def _together(schema: Schema, tables: Sequence[dict[str, np.ndarray]]) -> Markup:
    names, found = associations(schema, tables)
    pairs = [(found[i, j], names[j], names[i]) for i in range(len(names)) for j in range(i)]
    strongest = sorted(pairs, key=lambda each: -each[0])[:8]
    parts = [
        element(
            "p",
            "How strongly two columns of the synthetic tables go together, as Cramér's V: 0 where they are "
            "independent, 1 where one follows from the other. Numbers are put into bins.",
        )
    ]
    if len(names) < 2:
        return element("p", "The tables have one column.")
    rows = [[f"{first} and {second}", f"{value:.2f}"] for value, first, second in strongest]
    parts += [
        matrix_figure("Association of every pair of columns", names, found),
        table("The strongest", ["Columns", "Cramér's V"], rows, numbers=(1,)),
    ]
    if len(schema.columns) > len(names):
        parts.append(element("p", f"The first {len(names)} columns are shown.", class_="note"))
    return joined(parts)


def _shape(data: Any) -> Markup:
    rows = [[name, column.kind, _declared(column)] for name, column in data.schema.columns.items()]
    return table("Columns and what was declared of them", ["Column", "Kind", "Declared"], rows)


def _declared(column: Column) -> str:
    if isinstance(column, Leveled):
        return ", ".join(map(str, column.levels))
    if isinstance(column, Boolean):
        return "yes or no"
    return f"{getattr(column, 'lower', 0)} to {getattr(column, 'upper', '')}"
