"""Bounds that a person declares, and the coordinates in which they are −1 and 1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpvi.declared.columns import Numeric

_FORM = "a pair (lower, upper), each a number for all features or a sequence with one number per feature"


class Bounds(NamedTuple):
    """Declared bounds, and the coordinates (x − centre)/half of a value x: within −1 and 1."""

    lower: np.ndarray
    upper: np.ndarray
    centre: np.ndarray
    half: np.ndarray

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Coordinates of values; what lies outside the bounds is put onto them."""
        return (np.clip(values, self.lower, self.upper) - self.centre) / self.half

    def unscaled(self, coordinates: np.ndarray) -> np.ndarray:
        """The values that have these coordinates."""
        return self.centre + self.half * coordinates

    @property
    def columns(self) -> list[Numeric]:
        """The coordinates, as columns of a plan."""
        ends = self.scaled(np.stack([self.lower, self.upper])).T
        return [Numeric(lower, upper) for lower, upper in ends]


def declared(name: str, given: Any, size: int, *, centred: bool = True) -> Bounds:
    """The bounds of ``size`` columns from what a user gave as the argument ``name``.

    With ``centred`` coordinates are −1 and 1 at the bounds; without it, 0 at 0, for a model without intercept.

    Examples
    --------
    >>> bounds = declared("bounds", ([0, 18], [1, 90]), 2)
    >>> bounds.scaled(np.array([[0.5, 90.0], [3.0, 18.0]])).tolist()
    [[0.0, 1.0], [1.0, -1.0]]
    """
    if given is None:
        raise ValueError(
            f"{name} must be declared: {_FORM}. They are public knowledge about the columns (an age: 0 to 120); "
            "nothing is read from the records, because the smallest and largest value would tell of single records."
        )
    try:
        lower, upper = given
        ends = [np.broadcast_to(np.asarray(end, np.float64), (size,)) for end in (lower, upper)]
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {_FORM} ({size} of them), got {given!r}.") from None
    if not np.all(np.isfinite(ends)) or not np.all(ends[0] < ends[1]):
        raise ValueError(f"{name} must be finite, every lower one below its upper one, got {given!r}.")
    lower, upper = ends
    if centred:
        return Bounds(lower, upper, (lower + upper) / 2, (upper - lower) / 2)
    return Bounds(lower, upper, np.zeros(size), np.maximum(np.abs(lower), np.abs(upper)))
