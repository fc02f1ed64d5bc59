"""Contractions of a parameter matrix with data, in one normal form.

Whatever axes a ``dot_general`` contracts, batches and leaves free, with the weight W on either side, per record it is

    Y_h = A_h W_h        A: (H, S, I) data,  W: (H, I, O) parameters,  Y: (H, S, O),

with h over batched axes, S rows (1 for a dense layer on a vector, the length of a sequence), I contracted and O free
axes of the weight. With B = ∂term/∂Y the gradient of W_h is A_hᵀB_h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.gradients.ghost.views import View, has_repeats


@dataclass(frozen=True)
class Contraction:
    """One ``dot_general`` of data with a view of the parameters.

    Attributes
    ----------
    equation, weight
        Its index in the jaxpr and which operand is the weight.
    order
        Axes of the data: batched, free, contracted.
    sizes
        (H, S, I, O).
    positions
        (H, I, O): which parameters the weight consists of.
    swapped
        Whether data and errors exchange roles, because the matrix is shared with a contraction of its transpose.
    """

    equation: int
    weight: int
    order: tuple[int, ...]
    sizes: tuple[int, int, int, int]
    positions: View
    swapped: bool = False

    @property
    def rows(self) -> int:
        return self.sizes[1]

    def data_rows(self, data: jax.Array) -> jax.Array:
        """A for every record, (n, H, S, I), from the data operand with a leading axis of records."""
        batched, rows, inner, _ = self.sizes
        moved = jnp.transpose(data, (0, *(axis + 1 for axis in self.order)))
        return moved.reshape(data.shape[0], batched, rows, inner)

    def error_rows(self, errors: jax.Array) -> jax.Array:
        """B for every record, (n, H, S, O), from the back-propagated errors of the output."""
        batched, rows, _, outer = self.sizes
        if self.weight == 1:
            return errors.reshape(errors.shape[0], batched, rows, outer)
        return jnp.swapaxes(errors.reshape(errors.shape[0], batched, outer, rows), -1, -2)


class Rows(NamedTuple):
    """A and B of one parameter matrix: its gradient is AᵀB, summed over everything that uses it."""

    data: jax.Array  # (n, H, S, I)
    errors: jax.Array  # (n, H, S, O)


@dataclass(frozen=True)
class Matrix:
    """A parameter matrix and every contraction that uses it, their rows side by side."""

    uses: tuple[Contraction, ...]

    @property
    def positions(self) -> View:
        return self.uses[0].positions

    @property
    def rows(self) -> int:
        return sum(use.rows for use in self.uses)

    @property
    def gram_pays(self) -> bool:
        """Whether two S by S Gram matrices are smaller than the gradient itself."""
        _, inner, outer = self.positions.shape
        return 2 * self.rows**2 <= inner * outer

    def join(self, data: Sequence[jax.Array], errors: Sequence[jax.Array], dtype: Any) -> Rows:
        """Rows of all uses, from the data operand and the errors of each."""
        sides: tuple[list[jax.Array], list[jax.Array]] = ([], [])
        for use, a, b in zip(self.uses, data, errors, strict=True):
            pair = use.data_rows(a).astype(dtype), use.error_rows(b).astype(dtype)
            for side, rows in zip(sides, reversed(pair) if use.swapped else pair, strict=True):
                side.append(rows)
        return Rows(*(jnp.concatenate(side, axis=2) for side in sides))


def read_contraction(index: int, equation: Any, views: Sequence[View | None]) -> Contraction | None:
    """The normal form of an equation, or None where it is not one contraction of parameters with data."""
    if equation.primitive.name != "dot_general" or sum(view is not None for view in views) != 1:
        return None
    weight = 0 if views[0] is not None else 1
    view, data = views[weight], equation.invars[1 - weight].aval
    if view is None or has_repeats(view):
        return None
    if not all(jnp.issubdtype(kind, jnp.floating) for kind in (data.dtype, equation.outvars[0].aval.dtype)):
        return None
    contracted, batched = equation.params["dimension_numbers"]
    order = _order(data.ndim, batched[1 - weight], contracted[1 - weight])
    of_weight = _order(view.ndim, batched[weight], contracted[weight], free_last=True)
    inner = math.prod(data.shape[axis] for axis in contracted[1 - weight])
    batch = math.prod(data.shape[axis] for axis in batched[1 - weight])
    sizes = (batch, data.size // max(1, batch * inner), inner, view.size // max(1, batch * inner))
    if min(sizes) == 0:
        return None
    positions = view.transpose(of_weight).reshape(batch, inner, sizes[3])
    return Contraction(index, weight, order, sizes, positions)


def share(uses: Sequence[Contraction]) -> Matrix | None:
    """One matrix out of contractions that use the same parameters, or None where they arrange them differently."""
    first = uses[0]
    joined = [first]
    for use in uses[1:]:
        if np.array_equal(use.positions, first.positions):
            joined.append(use)
        elif np.array_equal(np.swapaxes(use.positions, 1, 2), first.positions):
            joined.append(Contraction(use.equation, use.weight, use.order, use.sizes, use.positions, swapped=True))
        else:
            return None
    return Matrix(tuple(joined))


def _order(ndim: int, batched: Sequence[int], contracted: Sequence[int], free_last: bool = False) -> tuple[int, ...]:
    free = [axis for axis in range(ndim) if axis not in batched and axis not in contracted]
    return (*batched, *contracted, *free) if free_last else (*batched, *free, *contracted)
