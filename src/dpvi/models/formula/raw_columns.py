"""The raw columns that a formula reads, side by side in one matrix of numbers: what a record is to the model.

==========================  ==================================================  ===========================
column                      in the matrix                                       counted for the population
==========================  ==================================================  ===========================
(always)                    1                                                   not at all
number, date, count         one column, [lower, upper] mapped to [−1, 1]        in bins, or value by value
boolean                     one column, 0 or 1                                  value by value
category, or inside C(...)  one indicator for every level but the first         level by level
==========================  ==================================================  ===========================

A design is computed from this matrix inside the model. So whatever law the raw columns are thought to have, their
squares, interactions and splines follow from the same rows, and are never taken for columns of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpvi.declared import columns as counted
from dpvi.models.formula.errors import FormulaError
from dpvi.table import Boolean, Column, Count, Date, Leveled, Numeric, Schema

_MOST_VALUES = 64  # whole numbers with more values than this are counted in bins
_MOST_LEVELS = 200  # whole numbers as categories
_WIDEST = 10_000  # a matrix of all levels against all levels must fit into memory
Level = str | int | bool


@dataclass(frozen=True)
class Place:
    """Where a raw column stands in the matrix; ``levels`` where it is a block of indicators."""

    column: Column
    start: int
    levels: tuple[Level, ...] | None

    @property
    def width(self) -> int:
        return 1 if self.levels is None else len(self.levels) - 1


@dataclass(frozen=True)
class RawColumns:
    """The raw columns ``names`` of a schema, those in ``as_levels`` as indicators.

    Examples
    --------
    >>> from dpvi.table import Categorical
    >>> raw = RawColumns(Schema({"age": Numeric(0, 80), "job": Categorical(("a", "b", "c"))}), ("age", "job"))
    >>> raw.matrix(raw.schema.encode({"age": [20, 80], "job": ["c", "a"]})).tolist()
    [[1.0, -0.5, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]]
    """

    schema: Schema
    names: Sequence[str]
    as_levels: frozenset[str] = frozenset()
    places: Mapping[str, Place] = field(init=False)

    def __post_init__(self) -> None:
        places: dict[str, Place] = {}
        start = 1
        for name in self.names:
            column = self.schema[name]
            levels = levels_of(name, column) if isinstance(column, Leveled) or name in self.as_levels else None
            places[name] = Place(column, start, levels)
            start += places[name].width
            if start > _WIDEST:
                raise FormulaError(
                    f"The columns of the formula have more than {_WIDEST} levels together; collect rare levels in one "
                    'with other = "..." in the schema, or leave columns out.'
                )
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "places", places)

    @property
    def width(self) -> int:
        return 1 + sum(place.width for place in self.places.values())

    def counted_columns(self) -> tuple[counted.Column, ...]:
        """The columns of the matrix as ``dpvi.plan(covariates=...)`` takes them."""
        return (counted.Constant(), *(_counted(place) for place in self.places.values()))

    def matrix(self, arrays: Mapping[str, Any]) -> np.ndarray:
        """One row per record, from the columns that :meth:`Schema.encode` returns."""
        rows = len(next(iter(arrays.values())))
        parts = [np.ones((rows, 1)), *(_block(place, np.asarray(arrays[name])) for name, place in self.places.items())]
        return np.concatenate(parts, axis=1)

    def number(self, matrix: Any, name: str, numpy: Any, *, within: bool = False) -> Any:
        """Column ``name`` in its own units; ``within`` its bounds, where a function is defined there alone."""
        place = self.places[name]
        if place.levels is not None:
            if not all(isinstance(level, int) for level in place.levels):
                raise FormulaError(
                    f"Column {name!r} holds categories and has no numbers to compute with; write {name} by itself, or "
                    f'({name} == "a level").'
                )
            return self.indicators(matrix, name, numpy) @ numpy.asarray(place.levels, dtype=matrix.dtype)
        leaf = matrix[..., place.start]
        if isinstance(place.column, Boolean):
            return leaf
        lower, upper = bounds_of(name, place.column)
        leaf = numpy.clip(leaf, -1, 1) if within else leaf
        return lower + (leaf + 1) / 2 * (upper - lower)

    def indicators(self, matrix: Any, name: str, numpy: Any) -> Any:
        """(…, L) indicators of all levels of column ``name``; the first is what the others leave."""
        place = self.places[name]
        assert place.levels is not None
        others = matrix[..., place.start : place.start + place.width]
        return numpy.concatenate([matrix[..., :1] - others.sum(axis=-1, keepdims=True), others], axis=-1)

    def public_grid(self) -> np.ndarray:
        """Rows all over the declared bounds and levels, for what must be known of a design before any record.

        The first half has every number at one of its bounds. Positions come from whole numbers, so that they are the
        same on every machine.
        """
        index = np.arange(_GRID, dtype=np.int64)
        parts = [np.ones((_GRID, 1))]
        for order, place in enumerate(self.places.values()):
            drawn = (index * (2654435761 + 40503 * order * 2 + 2 * order) >> 7) % 2**20
            if place.levels is not None:
                indicators = np.eye(len(place.levels))[drawn % len(place.levels)]
                parts.append(indicators[:, 1:])
                continue
            corner = np.where((drawn >> 10) % 2 == 0, -1.0, 1.0)
            inside = (drawn % _INSIDE) / (_INSIDE - 1) * 2 - 1
            leaf = np.where(index < _GRID // 2, corner, inside)
            parts.append((leaf > 0).astype(float)[:, None] if isinstance(place.column, Boolean) else leaf[:, None])
        return np.concatenate(parts, axis=1)


_GRID, _INSIDE = 8192, 65


def levels_of(name: str, column: Column) -> tuple[Level, ...]:
    """All declared values of a column that is used as a category."""
    if isinstance(column, Leveled):
        return column.levels
    if isinstance(column, Boolean):
        return (False, True)
    if isinstance(column, (Count, Numeric)):
        lower, upper = bounds_of(name, column)
        whole = isinstance(column, Count) or column.integer
        if whole and upper - lower < _MOST_LEVELS:
            return tuple(range(int(lower), int(upper) + 1))
    raise FormulaError(
        f"C({name}) needs a column with declared levels, or whole numbers with at most {_MOST_LEVELS} values between "
        f"their bounds; {name!r} is {column.kind}. Declare it categorical, with its levels."
    )


def bounds_of(name: str, column: Column) -> tuple[float, float]:
    """Declared bounds in own units; a date's are days since its first one."""
    match column:
        case Numeric():
            return float(column.lower), float(column.upper)
        case Count():
            return 0.0, float(column.upper)
        case Date():
            return 0.0, float((column.upper - column.lower).days)
        case Boolean():
            return 0.0, 1.0
    raise FormulaError(f"Column {name!r} holds categories and has no bounds; use a column of numbers there.")


def _counted(place: Place) -> counted.Column:
    column = place.column
    if place.levels is not None:
        return counted.OneHot(len(place.levels), reference=True)
    if isinstance(column, Boolean):
        return counted.Levels((0, 1))
    whole = isinstance(column, Count) or (isinstance(column, Numeric) and column.integer)
    lower, upper = bounds_of("", column)
    values = int(upper - lower) + 1
    if whole and values <= _MOST_VALUES:
        return counted.Levels(tuple(np.linspace(-1, 1, values).tolist()))
    return counted.Numeric(-1, 1)


def _block(place: Place, leaf: np.ndarray) -> np.ndarray:
    column = place.column
    if place.levels is None:
        return _scaled(column, leaf)[:, None]
    if isinstance(column, Leveled):
        codes = leaf
    else:
        lower, _ = bounds_of("", column)
        codes = np.rint(_own(column, leaf) - lower).astype(np.int64)
    return (codes[:, None] == np.arange(1, len(place.levels))).astype(np.float64)


def _scaled(column: Column, leaf: np.ndarray) -> np.ndarray:
    return leaf / column.upper * 2.0 - 1 if isinstance(column, Count) else leaf.astype(np.float64)


def _own(column: Column, leaf: np.ndarray) -> np.ndarray:
    if isinstance(column, Numeric):
        return column.lower + (leaf + 1) / 2 * (column.upper - column.lower)
    return leaf.astype(np.float64)
