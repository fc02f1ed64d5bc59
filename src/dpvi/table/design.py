"""The columns of a regression: what a model and an analyst both make of the predictors of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpvi.table.base import SchemaError
from dpvi.table.levels import Boolean, Level, Leveled
from dpvi.table.quantities import Count, Date, Numeric
from dpvi.table.schema import Schema

UNITS = ("scaled", "own")


@dataclass(frozen=True)
class Design:
    """A design matrix without intercept, from the encoded columns of a table.

    A column with L levels becomes L − 1 indicators, one for each level but the reference; every other column stays one.

    Parameters
    ----------
    schema
        The table's schema.
    predictors
        Names of the columns to use, in order.
    references
        ``{column: level}`` whose indicator is left out; the first level by default.

    Examples
    --------
    >>> from dpvi.table import Categorical, Numeric
    >>> schema = Schema({"age": Numeric(0, 80), "job": Categorical(("a", "b", "c"))})
    >>> design = Design(schema, ("age", "job"), {"job": "b"})
    >>> design.names
    ('age', 'job=a', 'job=c')
    >>> design.matrix(schema.encode({"age": [20, 80], "job": ["c", "b"]}), units="own")
    array([[20.,  0.,  1.],
           [80.,  0.,  0.]])
    """

    schema: Schema
    predictors: Sequence[str]
    references: Mapping[str, Level] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "predictors", tuple(self.predictors))
        object.__setattr__(self, "references", dict(self.references))
        if len(set(self.predictors)) < len(self.predictors):
            raise SchemaError(f"predictors must name each column once, got {self.predictors!r}.")
        for name in self.predictors:
            self.schema[name]  # refuses a name that the schema lacks
        for name, level in self.references.items():
            column = self.schema[name]
            if name not in self.predictors or not isinstance(column, Leveled) or level not in column.levels:
                raise SchemaError(f"references must map predictors to one of their levels, got {name!r}: {level!r}.")

    @property
    def names(self) -> tuple[str, ...]:
        """One name per column of the matrix."""
        found: list[str] = []
        for name in self.predictors:
            column = self.schema[name]
            if isinstance(column, Leveled):
                found += [f"{name}={column.levels[code]}" for code in self._codes(name, column)]
            else:
                found.append(name)
        return tuple(found)

    def matrix(self, arrays: Mapping[str, Any], *, units: str = "scaled", numpy: Any = np) -> Any:
        """The matrix, one row per record and one column per name.

        Parameters
        ----------
        arrays
            Encoded columns, from :meth:`Schema.encode`.
        units
            ``"scaled"``: numbers and dates in [−1, 1] as encoded, counts over their bound. ``"own"``: numbers and
            counts as they stand in the table, dates in days since the first declared day.
        numpy
            The array module: NumPy, or ``jax.numpy`` inside a model.
        """
        if units not in UNITS:
            raise ValueError(f"units must be one of {', '.join(map(repr, UNITS))}, got {units!r}.")
        parts = [self._block(name, arrays[name], units, numpy) for name in self.predictors]
        return numpy.concatenate(parts, axis=-1)

    def _block(self, name: str, leaf: Any, units: str, numpy: Any) -> Any:
        column = self.schema[name]
        float_type = numpy.result_type(float)
        if isinstance(column, Leveled):
            codes = numpy.asarray(self._codes(name, column), dtype=leaf.dtype)
            return numpy.asarray(leaf[..., None] == codes, dtype=float_type)
        numbers = numpy.asarray(leaf, dtype=float_type)[..., None]
        if isinstance(column, Boolean):
            return numbers
        if isinstance(column, Count):
            return numbers if units == "own" else numbers / column.upper
        if units == "scaled":
            return numbers
        if isinstance(column, Date):
            return (numbers + 1) / 2 * (column.upper - column.lower).days
        assert isinstance(column, Numeric)
        return column.lower + (numbers + 1) / 2 * (column.upper - column.lower)

    def _codes(self, name: str, column: Leveled) -> list[int]:
        reference = column.levels.index(self.references.get(name, column.levels[0]))
        return [code for code in range(column.num_levels) if code != reference]
