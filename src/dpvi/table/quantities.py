"""Columns that hold quantities: numbers within bounds, counts and dates."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpvi.table.base import (
    LARGEST_EXACT,
    Column,
    SchemaError,
    as_numbers,
    outside_error,
    scaled,
    unscaled,
)

_LARGEST_COUNT = 2**31 - 1
_WIDEN = "widen the bounds if they are public knowledge, or let encode clamp them"


@dataclass(frozen=True)
class Numeric(Column):
    """A number between declared bounds, encoded as 2 (x − lower)/(upper − lower) − 1 ∈ [−1, 1].

    Parameters
    ----------
    lower, upper
        Public bounds. Values beyond are clamped to them.
    integer
        Whether values are whole numbers; what is decoded is then rounded.
    dtype
        What the decoded column is stored as: by default ``"int64"`` for whole numbers, ``"float64"`` for others.

    Examples
    --------
    >>> age = Numeric(0, 100, integer=True)
    >>> age.encode("age", np.array([25, 100, 130]), strict=False)
    array([-0.5,  1. ,  1. ])
    >>> age.decode("age", np.array([-0.5, 0.0, 7.0]))
    array([ 25,  50, 100])
    """

    kind: ClassVar[str] = "numeric"
    leaf_dtype: ClassVar[type] = np.float64
    lower: float
    upper: float
    integer: bool = False
    dtype: str = ""

    def __post_init__(self) -> None:
        bounds = (_plain(self.lower), _plain(self.upper))
        if any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in bounds) or not bounds[0] < bounds[1]:
            raise SchemaError(
                f"A numeric column needs numbers lower < upper, got lower = {self.lower!r}, upper = {self.upper!r}."
            )
        if not all(abs(x) <= LARGEST_EXACT for x in bounds):
            raise SchemaError(f"Bounds must be finite and within ±2^53, got {self.lower!r} and {self.upper!r}.")
        if self.integer and any(x != int(x) for x in bounds):
            raise SchemaError(f"Bounds of whole numbers must be whole, got {self.lower!r} and {self.upper!r}.")
        object.__setattr__(self, "lower", int(bounds[0]) if self.integer else bounds[0])
        object.__setattr__(self, "upper", int(bounds[1]) if self.integer else bounds[1])
        _check_dtype(self.dtype, "iu" if self.integer else "f", self.lower, self.upper)

    @property
    def stored_as(self) -> np.dtype:
        """The dtype of the decoded column."""
        return np.dtype(self.dtype or ("int64" if self.integer else "float64"))

    def encode(self, name: str, values: np.ndarray, strict: bool) -> np.ndarray:
        numbers = as_numbers(name, values)
        if strict and np.any((numbers < self.lower) | (numbers > self.upper)):
            raise outside_error(name, f"[{self.lower}, {self.upper}]", _WIDEN)
        if strict and self.integer and np.any(numbers != np.rint(numbers)):
            raise outside_error(name, "the whole numbers", "declare it with integer = false")
        if self.integer:
            numbers = np.rint(np.clip(numbers, self.lower, self.upper))
        return scaled(numbers, self.lower, self.upper)

    def decode(self, name: str, leaf: np.ndarray) -> np.ndarray:
        values = unscaled(leaf, self.lower, self.upper)
        if self.integer:
            return np.rint(values).astype(self.stored_as)
        stored = values.astype(self.stored_as)
        # A narrower float may round a value at a bound to just beyond it.
        stored = np.where(
            stored.astype(np.float64) > self.upper, np.nextafter(stored, stored.dtype.type(-np.inf)), stored
        )
        return np.where(stored.astype(np.float64) < self.lower, np.nextafter(stored, stored.dtype.type(np.inf)), stored)


@dataclass(frozen=True)
class Count(Column):
    """A count 0, 1, …, ``upper``, encoded as it is; larger counts are clamped.

    Parameters
    ----------
    upper
        A public bound.
    dtype
        What the decoded column is stored as, ``"int64"`` by default.
    """

    kind: ClassVar[str] = "count"
    leaf_dtype: ClassVar[type] = np.int32
    upper: int
    dtype: str = "int64"

    def __post_init__(self) -> None:
        upper = _plain(self.upper)
        if isinstance(upper, bool) or not isinstance(upper, int) or not 1 <= upper <= _LARGEST_COUNT:
            raise SchemaError(f"A count column needs a whole number upper from 1 to 2^31 − 1, got {self.upper!r}.")
        object.__setattr__(self, "upper", upper)
        _check_dtype(self.dtype, "iu", 0, upper)

    @property
    def stored_as(self) -> np.dtype:
        """The dtype of the decoded column."""
        return np.dtype(self.dtype)

    def encode(self, name: str, values: np.ndarray, strict: bool) -> np.ndarray:
        numbers = as_numbers(name, values)
        if strict and np.any((numbers < 0) | (numbers > self.upper) | (numbers != np.rint(numbers))):
            raise outside_error(name, f"0, 1, …, {self.upper}", _WIDEN)
        return np.rint(np.clip(numbers, 0, self.upper)).astype(self.leaf_dtype)

    def decode(self, name: str, leaf: np.ndarray) -> np.ndarray:
        return np.clip(np.asarray(leaf), 0, self.upper).astype(self.stored_as)


@dataclass(frozen=True)
class Date(Column):
    """A calendar day between declared days, encoded as a position in [−1, 1].

    Parameters
    ----------
    lower, upper
        The first and the last day, ``datetime.date``.
    """

    kind: ClassVar[str] = "date"
    leaf_dtype: ClassVar[type] = np.float64
    lower: datetime.date
    upper: datetime.date

    def __post_init__(self) -> None:
        # a datetime is a date to isinstance, but carries a time that the column would lose
        if any(type(day) is not datetime.date for day in (self.lower, self.upper)) or not self.lower < self.upper:
            raise SchemaError(
                f"A date column needs days lower < upper (datetime.date), got {self.lower!r} and {self.upper!r}."
            )

    def _days(self) -> tuple[float, float]:
        lower, upper = np.array([self.lower, self.upper], dtype="datetime64[D]").astype(np.int64).tolist()
        return float(lower), float(upper)

    def encode(self, name: str, values: np.ndarray, strict: bool) -> np.ndarray:
        lower, upper = self._days()
        try:
            days = np.asarray(values, dtype="datetime64[us]").astype("datetime64[D]")
        except (TypeError, ValueError):
            days = np.array(["NaT"], dtype="datetime64[D]")
        if np.isnat(days).any():
            raise SchemaError(f"Column {name!r} must hold dates such as 2001-12-31; convert what is written otherwise.")
        numbers = days.astype(np.int64).astype(np.float64)
        if strict and np.any((numbers < lower) | (numbers > upper)):
            raise outside_error(name, f"{self.lower} to {self.upper}", _WIDEN)
        return scaled(numbers, lower, upper)

    def decode(self, name: str, leaf: np.ndarray) -> np.ndarray:
        return np.rint(unscaled(leaf, *self._days())).astype(np.int64).astype("datetime64[D]")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _check_dtype(dtype: str, kinds: str, lower: float, upper: float) -> None:
    if not dtype:
        return
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    wanted = "an integer type such as 'int32'" if kinds == "iu" else "'float32' or 'float64'"
    if found.kind not in kinds or found.name == "float16":
        raise SchemaError(f"dtype must be {wanted}, got {dtype!r}.")
    if kinds == "iu" and not np.iinfo(found.name).min <= lower <= upper <= np.iinfo(found.name).max:
        raise SchemaError(f"dtype {dtype!r} cannot hold all numbers from {lower} to {upper}; choose a wider one.")
