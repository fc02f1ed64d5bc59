"""Cholesky factors and triangular systems of a few unknowns, written out: one of them for every record of a batch.

Entries are arrays over records. Compilers merge these with what surrounds them, where a call of a library for every
record would take many times as long.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

Lower = list[list[jax.Array]]  # rows of a lower triangle
Vector = list[jax.Array]


def cholesky(matrix: Lower) -> Lower:
    """L with L Lᵀ = ``matrix``, a symmetric positive definite one.

    Examples
    --------
    >>> [[float(entry) for entry in row] for row in cholesky([[jnp.array(4.0)], [jnp.array(2.0), jnp.array(10.0)]])]
    [[2.0], [1.0, 3.0]]
    """
    factor: Lower = []
    for i, row in enumerate(matrix):
        new: Vector = []
        for j in range(i + 1):
            above = new if i == j else factor[j]
            rest = row[j]
            for k in range(j):
                rest = rest - new[k] * above[k]
            new.append(jnp.sqrt(rest) if i == j else rest / above[j])
        factor.append(new)
    return factor


def solve_lower(factor: Lower, right: Vector) -> Vector:
    """x with L x = ``right``."""
    solution: Vector = []
    for i, row in enumerate(factor):
        rest = right[i]
        for k in range(i):
            rest = rest - row[k] * solution[k]
        solution.append(rest / row[i])
    return solution


def solve_upper(factor: Lower, right: Vector) -> Vector:
    """x with Lᵀ x = ``right``."""
    solution = list(right)
    for i in reversed(range(len(factor))):
        rest = right[i]
        for k in range(i + 1, len(factor)):
            rest = rest - factor[k][i] * solution[k]
        solution[i] = rest / factor[i][i]
    return solution
