"""Columns with a declared list of values: categories, ordered categories, yes and no."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpvi.table.base import Column, SchemaError, outside_error

Level = str | int

_TRUTH = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


@dataclass(frozen=True)
class Leveled(Column, ABC):
    """A column whose values are ``levels``, encoded as 0, 1, … in their order.

    Parameters
    ----------
    levels
        All values, texts or whole numbers: a public list.
    other
        The level that stands for every value that is not listed. Without it such a value is refused.
    """

    leaf_dtype: ClassVar[type] = np.int32
    levels: tuple[Level, ...]
    other: Level | None = None

    def __post_init__(self) -> None:
        levels = tuple(x.item() if isinstance(x, np.generic) else x for x in self.levels)
        texts = all(isinstance(level, str) for level in levels)
        numbers = all(isinstance(level, int) and not isinstance(level, bool) for level in levels)
        if isinstance(self.levels, str) or len(levels) < 2 or not (texts or numbers) or len(set(levels)) < len(levels):
            raise SchemaError(
                f"A {self.kind} column needs at least two different levels, all texts or all whole numbers, "
                f"got {self.levels!r}."
            )
        if self.other is not None and self.other not in levels:
            raise SchemaError(f"other must be one of the levels {levels}, got {self.other!r}; add it to them.")
        object.__setattr__(self, "levels", levels)

    @property
    def num_levels(self) -> int:
        return len(self.levels)

    def encode(self, name: str, values: np.ndarray, strict: bool) -> np.ndarray:
        codes = np.array(self._look_up(values.tolist()), dtype=self.leaf_dtype)
        unknown = codes < 0
        if unknown.any():
            if strict or self.other is None:
                remedy = (
                    "correct them, or let encode map them to the declared other"
                    if self.other is not None
                    else "declare other = one of the levels to collect them, or add what is public to the levels"
                )
                raise outside_error(name, "its declared levels", remedy)
            codes[unknown] = self.levels.index(self.other)
        return codes

    def decode(self, name: str, leaf: np.ndarray) -> np.ndarray:
        texts = isinstance(self.levels[0], str)
        return np.array(self.levels, dtype=object if texts else np.int64)[self.codes(leaf)]

    def codes(self, leaf: np.ndarray) -> np.ndarray:
        """``leaf`` as positions among the levels."""
        return np.clip(np.asarray(leaf).astype(np.int64), 0, self.num_levels - 1)

    def _look_up(self, values: list[Any]) -> list[int]:
        index: dict[Any, int] = {str(level): code for code, level in enumerate(self.levels)}
        index |= {level: code for code, level in enumerate(self.levels)}
        # Files turn numbers into text and put blanks around it; frames turn whole numbers with gaps into floats.
        known = {value: index.get(value, index.get(str(value).strip(), -1)) for value in set(values)}
        return [known[value] for value in values]


@dataclass(frozen=True)
class Categorical(Leveled):
    """Unordered categories.

    Examples
    --------
    >>> work = Categorical(("private", "state", "else"), other="else")
    >>> work.encode("work", np.array(["state", "circus"], dtype=object), strict=False).tolist()
    [1, 2]
    """

    kind: ClassVar[str] = "categorical"


@dataclass(frozen=True)
class Ordinal(Leveled):
    """Categories in rising order."""

    kind: ClassVar[str] = "ordinal"


@dataclass(frozen=True)
class Boolean(Column):
    """True or false; 0 and 1 and the texts "true" and "false" are read as such. Other pairs are categories."""

    kind: ClassVar[str] = "boolean"
    leaf_dtype: ClassVar[type] = np.bool_

    def encode(self, name: str, values: np.ndarray, strict: bool) -> np.ndarray:
        if values.dtype == bool:
            return values.astype(bool)
        known = {value: _TRUTH.get(str(value).strip().lower()) for value in set(values.tolist())}
        if None in known.values():
            raise outside_error(name, "true and false", "declare it categorical and list its levels")
        return np.array([known[value] for value in values.tolist()], dtype=bool)

    def decode(self, name: str, leaf: np.ndarray) -> np.ndarray:
        return np.asarray(leaf).astype(bool)
