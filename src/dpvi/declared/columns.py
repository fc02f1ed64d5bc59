"""How covariates look, as declared by the user: what a histogram of a column counts, without reading a record.

A covariate leaf is a matrix whose columns belong to raw columns of a table: a number, one of a few levels, or a block
of indicators. Each raw column has bins declared here; a record falls into one bin of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpvi.declared import validation


@dataclass(frozen=True)
class Numeric:
    """A number between declared bounds, counted in equal bins; what lies outside counts in the outermost ones.

    Examples
    --------
    >>> Numeric(0, 100).bins, Numeric(0, 100).width
    (32, 1)
    """

    lower: float
    upper: float
    bins: int = 32
    width = 1

    def __post_init__(self) -> None:
        lower, upper = validation.number("lower", self.lower), validation.number("upper", self.upper)
        if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
            raise ValueError(f"Numeric needs finite bounds, lower below upper, got {self.lower!r} and {self.upper!r}.")
        validation.keep(self, lower=lower, upper=upper, bins=validation.whole_number("bins", self.bins))


@dataclass(frozen=True)
class Levels:
    """A number that takes one of the declared values; any other counts as the nearest."""

    values: tuple[float, ...]
    width = 1

    def __post_init__(self) -> None:
        values = tuple(sorted(validation.number("a level", value) for value in self.values))
        if len(values) < 1 or len(set(values)) < len(values) or not all(map(math.isfinite, values)):
            raise ValueError(f"Levels needs one or more distinct finite values, got {self.values!r}.")
        validation.keep(self, values=values)

    @property
    def bins(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class OneHot:
    """A block of 0/1 columns, one per level; with ``reference`` one of the levels has no column, and its row is zeros.

    Parameters
    ----------
    levels
        How many levels there are. The reference counts as one of them.
    reference
        Whether one level is the reference. The block then has ``levels - 1`` columns.

    Examples
    --------
    >>> OneHot(3).width, OneHot(3, reference=True).width
    (3, 2)
    >>> OneHot(3).bins, OneHot(3, reference=True).bins
    (3, 3)
    """

    levels: int
    reference: bool = False

    def __post_init__(self) -> None:
        if self.reference not in (False, True):  # NumPy's, too
            raise ValueError(f"reference must be True or False, got {self.reference!r}.")
        reference = bool(self.reference)
        levels = validation.whole_number("levels", self.levels, 2 if reference else 1)
        validation.keep(self, levels=levels, reference=reference)

    @property
    def bins(self) -> int:
        return self.levels

    @property
    def width(self) -> int:
        return self.levels - self.reference


@dataclass(frozen=True)
class Constant:
    """A column that is the same for every record, such as an intercept: nothing to count."""

    value: float = 1.0
    bins = 0
    width = 1

    def __post_init__(self) -> None:
        value = validation.number("value", self.value)
        if not math.isfinite(value):
            raise ValueError(f"Constant needs a finite value, got {self.value!r}.")
        validation.keep(self, value=value)


Column = Numeric | Levels | OneHot | Constant
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Numeric, Levels, OneHot, Constant)}


def checked_columns(columns: Iterable[Any]) -> tuple[Column, ...]:
    """``columns`` as a tuple, or a sentence that says what a column may be."""
    found = tuple(columns)
    for column in found:
        if not isinstance(column, Column):
            raise TypeError(
                f"covariates must be a sequence of {', '.join(_KINDS)} (from dpvi, not from dpvi.table, which "
                f"declares tables), one per raw column, got {column!r}."
            )
    return found


def counted(columns: Iterable[Column]) -> int:
    """k, in how many bins a record counts: one of every column that has any, or the total alone."""
    return max(1, sum(column.bins > 0 for column in columns))


def columns_to_list(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """A JSON-serialisable form.

    Examples
    --------
    >>> columns_from_list(columns_to_list([Levels((0, 1)), Constant()])) == (Levels((0, 1)), Constant())
    True
    """
    return [{"kind": type(column).__name__, **asdict(column)} for column in columns]


def columns_from_list(stored: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The inverse of :func:`columns_to_list`."""
    columns = []
    for entry in stored:
        if not isinstance(entry, Mapping):
            raise TypeError(f"a column is stored as an object with a kind, got {entry!r}")
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()
        }
        columns.append(_KINDS[fields.pop("kind")](**fields))
    return tuple(columns)
