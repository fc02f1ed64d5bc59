"""Gradients of a batch in parts: for every matrix its rows, for everything else the gradients of all records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.gradients.ghost.analysis import Analysis, Copies
from dpvi.gradients.ghost.contractions import Rows
from dpvi.gradients.ghost.norms import gradient_norms, vector_norms
from dpvi.gradients.ghost.replay import Taps
from dpvi.gradients.ghost.whole_rows import BITS, cut_data, exact_product, plain_product
from dpvi.mechanism.gaussian import exact_sum, plain_sum

_MOST_RUNS = 256  # weights cut from the vector one after the other are put back so; a matrix turned round is gathered


class Part(NamedTuple):
    """What n records add to some parameters, all of one layer."""

    positions: np.ndarray
    gradient: Rows | jax.Array  # rows of a matrix, or (n, positions)

    def norms(self) -> jax.Array:
        """A few numbers for each record, (n, ·), whose norm is at least that of its gradient."""
        if isinstance(self.gradient, Rows):
            return gradient_norms(self.gradient)
        return vector_norms(self.gradient)[:, None]

    def exact_sum(self, scale: jax.Array | None, present: jax.Array) -> jax.Array:
        """Σ_i w_i g_i over records that are ``present``, int64, in units of 2^-BITS C₂; ``scale`` is w_i/C₂.

        Without a scale nothing is clipped, and the sum is float64.
        """
        if isinstance(self.gradient, Rows):
            return (
                plain_product(self.gradient, present) if scale is None else exact_product(self.gradient, scale, present)
            )
        if scale is None:
            return plain_sum(self.gradient, present)
        return exact_sum(jnp.trunc(self.gradient * (scale * 2.0**BITS)[:, None]), present)


def parts_of(analysis: Analysis, taps: Taps, data: Sequence[jax.Array], count: int, dtype: Any) -> Iterator[Part]:
    """Parts of a batch of ``count`` records, from the gradients of all taps and the data that contractions read."""
    by_equation = dict(zip(analysis.places.reads, zip(data, taps.outputs, strict=True), strict=True))
    for matrix in analysis.matrices:
        pairs = [by_equation[use.equation] for use in matrix.uses]
        rows = matrix.join([pair[0] for pair in pairs], [pair[1] for pair in pairs], dtype)
        yield Part(matrix.positions.reshape(-1), cut_data(rows))
    flat = [tap.reshape(count, -1).astype(dtype) for tap in taps.variables]
    for copies in analysis.copies:
        yield Part(copies.positions, _copy_gradients(copies, flat))


def side_by_side(parts: Sequence[Part]) -> list[Part]:
    """The same gradients with those that are formed joined to one part: one sum is made sooner than many short ones."""
    rows = [part for part in parts if isinstance(part.gradient, Rows)]
    formed = [(part.positions, part.gradient) for part in parts if not isinstance(part.gradient, Rows)]
    if len(formed) < 2:
        return list(parts)
    positions, gradients = zip(*formed, strict=True)
    return [*rows, Part(np.concatenate(positions), jnp.concatenate(gradients, axis=1))]


def assemble(pieces: Sequence[tuple[np.ndarray, jax.Array]], size: int) -> jax.Array:
    """One vector of ``size`` entries out of values at positions; parameters that nothing uses get zero."""
    unused = np.ones(size, bool)
    for positions, _ in pieces:
        unused[positions] = False
    gaps = np.flatnonzero(unused)
    pieces = [*pieces, (gaps, jnp.zeros(gaps.size, pieces[0][1].dtype))]
    positions = np.concatenate([each for each, _ in pieces])
    if np.count_nonzero(np.diff(positions) != 1) >= _MOST_RUNS:
        return jnp.concatenate([each for _, each in pieces])[np.argsort(positions)]
    runs = [run for positions, values in pieces for run in _runs(positions, values)]
    return jnp.concatenate([values for _, values in sorted(runs, key=lambda run: run[0])])


def _copy_gradients(copies: Copies, taps: Sequence[jax.Array]) -> jax.Array:
    """(n, columns); gradients that reach one column by several ways are added."""
    first = taps[copies.taps[0]]
    if copies.is_one_tap:
        return first
    total = jnp.zeros((first.shape[0], copies.positions.size), first.dtype)
    for index, entries, columns in zip(copies.taps, copies.entries, copies.columns, strict=True):
        total = total.at[:, columns].add(taps[index][:, entries])
    return total


def _runs(positions: np.ndarray, values: jax.Array) -> Iterator[tuple[int, jax.Array]]:
    """Parts of ``values`` that lie side by side in the vector, each with its first position."""
    ends = [*(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), positions.size]
    for first, last in zip([0, *ends], ends, strict=False):
        if last > first:
            yield int(positions[first]), values[first:last]
