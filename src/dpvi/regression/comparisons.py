"""Adjusted predictions and contrasts: what the response is at one value of a column, and how it changes to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpvi.models.formula import FormulaError
from dpvi.regression.fitted import RegressionResult
from dpvi.regression.population import rows_at, values_of, with_value
from dpvi.regression.predictions import mean_draws

SCALES = ("difference", "ratio")
_DRAWS = 1000


class Effects(NamedTuple):
    """One row per value or contrast, and per level of an ordinal response; prints as a table.

    Attributes
    ----------
    variable
        The column that is varied.
    values
        Its values, or pairs of them.
    labels
        What each row is called.
    estimate, lower, upper
        The mean response, or its change, with its interval.
    """

    title: str
    variable: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]
    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability: float

    def to_pandas(self) -> Any:
        """A data frame with one row per value or contrast."""
        import pandas

        columns = {"estimate": self.estimate, "lower": self.lower, "upper": self.upper}
        return pandas.DataFrame(columns, index=pandas.Index(self.labels, name=self.variable))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        width = max([len(self.variable), *map(len, self.labels)])
        level = f"{100 * self.probability:g} % interval"
        lines = [self.title, f"{self.variable:<{width}}  {'estimate':>10}  {level:>24}"]
        for label, estimate, lower, upper in zip(self.labels, self.estimate, self.lower, self.upper, strict=True):
            lines.append(f"{label:<{width}}  {estimate:>10.4g}  [{lower:>10.4g}, {upper:>10.4g}]")
        return "\n".join(lines)


def adjusted_predictions(
    fitted: RegressionResult,
    variable: str,
    values: Sequence[Any] | None = None,
    *,
    at: Mapping[str, Any] | None = None,
    probability: float = 0.95,
) -> Effects:
    """The mean response with ``variable`` at each of ``values``, averaged over the released population.

    Parameters
    ----------
    fitted
        A regression.
    variable
        A column of the formula.
    values
        In own units; by default all levels, or 25 numbers from bound to bound.
    at
        ``{column: value}`` of other columns to hold; the rest vary as the released histograms and moments say.
    probability
        Of the intervals.
    """
    shown = list(values) if values is not None else values_of(fitted.model, variable)
    rows = rows_at(fitted.result, fitted.model, {**(at or {}), variable: shown[0]})
    draws = fitted.draws(_DRAWS)
    means = [mean_draws(fitted.model, with_value(fitted.model, rows, variable, each), draws) for each in shown]
    title = f"{fitted.model.response.label}: mean response by {variable}{_held(at)}"
    return _effects(fitted, title, variable, shown, [str(each) for each in shown], means, probability)


def comparisons(
    fitted: RegressionResult,
    variable: str,
    between: tuple[Any, Any] | None = None,
    *,
    at: Mapping[str, Any] | None = None,
    scale: str = "difference",
    probability: float = 0.95,
) -> Effects:
    """How the mean response changes with ``variable``, averaged over the released population.

    Parameters
    ----------
    fitted, variable, at, probability
        As for :func:`adjusted_predictions`.
    between
        Two values in own units; by default the first level with each other one, or the two quarter points of a
        number's declared range.
    scale
        ``"difference"`` of means, or their ``"ratio"``.
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, SCALES))}, got {scale!r}.")
    pairs = [between] if between is not None else _pairs(fitted, variable)
    rows = rows_at(fitted.result, fitted.model, {**(at or {}), variable: pairs[0][0]})
    draws = fitted.draws(_DRAWS)
    changes, labels = [], []
    for first, second in pairs:
        low, high = (
            mean_draws(fitted.model, with_value(fitted.model, rows, variable, each), draws).mean(axis=1)
            for each in (first, second)
        )
        changes.append((high - low if scale == "difference" else high / low)[:, None])
        labels.append(f"{second} {'−' if scale == 'difference' else '/'} {first}")
    title = f"{fitted.model.response.label}: {scale} of mean responses by {variable}{_held(at)}"
    return _effects(fitted, title, variable, pairs, labels, changes, probability)


def _pairs(fitted: RegressionResult, variable: str) -> list[tuple[Any, Any]]:
    values = values_of(fitted.model, variable)
    place = fitted.model.design.raw.places[variable]
    if place.levels is not None or len(values) == 2:
        return [(values[0], each) for each in values[1:]]
    return [(values[len(values) // 4], values[(3 * len(values)) // 4])]


def _held(at: Mapping[str, Any] | None) -> str:
    return "".join(f", {name} = {value}" for name, value in (at or {}).items())


def _effects(
    fitted: RegressionResult,
    title: str,
    variable: str,
    values: Sequence[Any],
    labels: Sequence[str],
    draws: Sequence[np.ndarray],
    probability: float,
) -> Effects:
    """Means over rows with their intervals, from draws (draws, rows) or (draws, rows, levels)."""
    if not 0 < probability < 1:
        raise FormulaError(f"probability must lie strictly between 0 and 1, got {probability!r}.")
    averaged = [each.mean(axis=1) for each in draws]
    levels: tuple[Any, ...] = ()
    if averaged[0].ndim == 2:
        levels = tuple(getattr(fitted.model.response.column, "levels"))  # noqa: B009
        averaged = [each[:, index] for each in averaged for index in range(len(levels))]
        labels = [f"{label}: {level}" for label in labels for level in levels]
        values = [value for value in values for _ in levels]
    flat = np.stack(averaged, axis=1)
    lower, upper = np.quantile(flat, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
    return Effects(title, variable, tuple(values), tuple(labels), flat.mean(axis=0), lower, upper, probability)
