"""How a category becomes columns: treatment, sum, Helmert and polynomial contrasts, over declared levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpvi.models.formula.errors import FormulaError

KINDS = {
    **dict.fromkeys(("treatment", "Treatment"), "treatment"),
    **dict.fromkeys(("sum", "Sum"), "sum"),
    **dict.fromkeys(("helmert", "Helmert"), "helmert"),
    **dict.fromkeys(("poly", "Poly"), "poly"),
}
_MOST_LEVELS = 100  # of contrasts that weigh all levels against each other


class Contrast(NamedTuple):
    """A kind of contrast, and the reference level of treatment contrasts, the first one by default."""

    kind: str = "treatment"
    reference: Any = None


def coded(levels: Sequence[Any], contrast: Contrast, name: str) -> tuple[np.ndarray, list[str]]:
    """The matrix (L, columns) of a contrast and what stands in brackets behind the name of each column."""
    size = len(levels)
    if contrast.kind == "treatment":
        kept = [i for i in range(size) if i != reference_of(levels, contrast, name)]
        return np.eye(size)[:, kept], [f"T.{levels[i]}" for i in kept]
    if contrast.kind == "sum":
        return np.vstack([np.eye(size - 1), -np.ones(size - 1)]), [f"S.{level}" for level in levels[:-1]]
    if size > _MOST_LEVELS:
        raise FormulaError(
            f"{name} has more than {_MOST_LEVELS} levels, too many for contr.{contrast.kind}; use contr.treatment."
        )
    if contrast.kind == "helmert":
        matrix = np.triu(-np.ones((size, size - 1)))
        matrix[np.arange(1, size), np.arange(size - 1)] = np.arange(1, size)
        return matrix, [f"H.{level}" for level in levels[1:]]
    powers = np.vander(np.arange(size) - (size - 1) / 2, size, increasing=True)
    orthogonal, triangle = np.linalg.qr(powers)
    shown = [".L", ".Q", ".C", *(f"^{power}" for power in range(4, size))]
    return (orthogonal * np.sign(np.diag(triangle)))[:, 1:], shown[: size - 1]


def every_level(levels: Sequence[Any]) -> tuple[np.ndarray, list[str]]:
    """One indicator for every level, where nothing else in the formula spans a constant."""
    return np.eye(len(levels)), [str(level) for level in levels]


def reference_of(levels: Sequence[Any], contrast: Contrast, name: str) -> int:
    """The position of the reference level."""
    if contrast.reference is None:
        return 0
    if contrast.reference not in levels:
        raise FormulaError(
            f"The reference of {name} must be one of its declared levels {', '.join(map(repr, levels))}, got "
            f"{contrast.reference!r}."
        )
    return list(levels).index(contrast.reference)
