"""Symmetric systems of a few unknowns, written out: one of them for every record of a batch.

Entries are arrays over records. Compilers merge these with what surrounds them, where a call of a library for every
record would take many times as long.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

Lower = list[list[jax.Array]]  # rows of a lower triangle
Vector = list[jax.Array]


class Factored(NamedTuple):
    """L and D with L D Lᵀ a symmetric positive definite matrix, L with ones on its diagonal, which are left out."""

    lower: Lower
    diagonal: Vector

    def solve(self, right: Vector) -> Vector:
        """x with L D Lᵀ x = ``right``."""
        solution: Vector = []
        for entry, row in zip(right, self.lower, strict=True):
            for weight, earlier in zip(row, solution, strict=True):
                entry = entry - weight * earlier
            solution.append(entry)
        solution = [entry / scale for entry, scale in zip(solution, self.diagonal, strict=True)]
        for i in reversed(range(len(solution))):
            for k in range(i + 1, len(solution)):
                solution[i] = solution[i] - self.lower[k][i] * solution[k]
        return solution

    def log_determinant(self) -> jax.Array:
        """Of the matrix."""
        return sum((jnp.log(each) for each in self.diagonal[1:]), jnp.log(self.diagonal[0]))


def factored(matrix: Lower) -> Factored:
    """The factors of ``matrix``, without a square root.

    Examples
    --------
    >>> lower, diagonal = factored([[jnp.array(4.0)], [jnp.array(2.0), jnp.array(10.0)]])
    >>> float(lower[1][0]), [float(each) for each in diagonal]
    (0.5, [4.0, 9.0])
    """
    lower: Lower = []
    diagonal: Vector = []
    for i, row in enumerate(matrix):
        scaled: Vector = []
        for j in range(i):
            rest = row[j]
            for k in range(j):
                rest = rest - scaled[k] * lower[j][k]
            scaled.append(rest)
        lower.append([each / diagonal[j] for j, each in enumerate(scaled)])
        rest = row[i]
        for each, weight in zip(scaled, lower[i], strict=True):
            rest = rest - each * weight
        diagonal.append(rest)
    return Factored(lower, diagonal)


def quadratic(matrix: Lower, vector: Vector) -> jax.Array:
    """vᵀ M v of a symmetric matrix."""
    whole = vector[0] * matrix[0][0] * vector[0]
    for i in range(1, len(vector)):
        whole = whole + vector[i] * matrix[i][i] * vector[i]
        for j in range(i):
            whole = whole + 2.0 * vector[i] * matrix[i][j] * vector[j]
    return whole
