"""What every column of a table declares, and how a refusal is phrased.

A declaration is public: it is written down by someone who has not looked at the records, or who vouches that what they
read from them may be published. Encoding clamps to it, so a record can never enlarge what others see of it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

LARGEST_EXACT = 2**53  # the whole numbers up to here are exact in a 64-bit float


class SchemaError(ValueError):
    """A declaration that makes no sense, or a table that does not fit one.

    The message names the column and what to change, never a value or a number of records.
    """


@dataclass(frozen=True)
class Column(ABC):
    """One column of a table.

    Attributes
    ----------
    missing
        Whether values may be missing. Where they may, the encoded table has one more leaf, ``<name>_observed``.
    """

    kind: ClassVar[str]
    leaf_dtype: ClassVar[type]
    missing: bool = field(default=False, kw_only=True)

    @abstractmethod
    def encode(self, name: str, values: np.ndarray, strict: bool) -> np.ndarray:
        """Numbers for the present ``values`` of column ``name``.

        Parameters
        ----------
        name
            The column's name, for messages.
        values
            Numbers, booleans, dates or objects, none of them missing.
        strict
            Refuse values outside the declaration instead of clamping them or mapping them to ``other``.
        """

    @abstractmethod
    def decode(self, name: str, leaf: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`encode`; numbers that stand for no declared value go to the nearest one."""

    def to_dict(self) -> dict[str, Any]:
        """The declaration without entries that are at their defaults."""
        content: dict[str, Any] = {"kind": self.kind}
        for entry in sorted(dataclasses.fields(self), key=lambda entry: entry.name == "missing"):
            value = getattr(self, entry.name)
            if entry.default is dataclasses.MISSING or value != entry.default:
                content[entry.name] = list(value) if isinstance(value, tuple) else value
        return content


def as_numbers(name: str, values: np.ndarray) -> np.ndarray:
    """``values`` as 64-bit floats; text is read as numbers."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if np.isnan(numbers).any():
        raise SchemaError(
            f"Column {name!r} must hold numbers, but holds something else; declare it categorical, or list the text "
            "that stands for a missing value in missing_markers."
        )
    return numbers


def outside_error(name: str, expected: str, remedy: str) -> SchemaError:
    """What a custodian sees who asked for values outside the declaration to be refused."""
    return SchemaError(f"Column {name!r} holds values outside {expected}; {remedy}.")


def unscaled(leaf: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """Map [−1, 1] to [lower, upper], and what lies beyond to the nearer bound."""
    return np.clip(lower + (np.asarray(leaf, np.float64) + 1) / 2 * (upper - lower), lower, upper)


def scaled(values: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """Map [lower, upper] to [−1, 1], and what lies beyond to the nearer end."""
    return (np.clip(values, lower, upper) - lower) / (upper - lower) * 2 - 1
