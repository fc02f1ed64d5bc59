"""Noisy histograms of declared columns: one release, made before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.backend.compiling import plain_fusions
from dpvi.declared.columns import Column, Constant, Levels, Numeric, OneHot
from dpvi.declared.plan import GaussianRelease
from dpvi.mechanism.gaussian import noisy_counts
from dpvi.mechanism.normals import normals_from_words
from dpvi.mechanism.rng import step_words


def noisy_histograms(
    columns: Sequence[Column],
    blocks: Iterable[Sequence[Any]],
    release: GaussianRelease,
    stream: jax.Array,
    over_all: Callable[[Callable[[], np.ndarray]], np.ndarray] = lambda count: count(),
) -> np.ndarray:
    """Counts of every bin of every column plus Gaussian noise: whole numbers, one column after the other, float64.

    Parameters
    ----------
    columns
        What the columns of a block hold. Where none has bins, the number of records alone is released.
    blocks
        The covariates, every record in one block: arrays with one row per record, whose trailing axes are flattened to
        columns.
    release
        Its clip norm is √k for k columns with bins.
    stream
        A ChaCha20 key that serves nothing else.
    over_all
        Counts here, and adds the counts of other processes, all of which then add the same noise to the same sum.

    Guarantees
    ----------
    A record counts once in each of k columns, or not where its value is not a number, so adding or removing one moves
    the counts by a vector of norm at most √k. Counts and what is released are whole numbers
    (:func:`~dpvi.mechanism.gaussian.noisy_counts`): no digit shows what noise was added to.
    """
    counts = over_all(lambda: np.sum([_counts(columns, leaves) for leaves in blocks], axis=0))
    with jax.enable_x64(True):
        noise = np.asarray(_drawing()(stream, 2 * counts.size))[:, 0]
    return noisy_counts(counts, noise, release.noise_scale)


@cache
def _drawing() -> Callable[..., jax.Array]:
    """Compiled once for all histograms of a size: as separate operations, a cipher is compiled on every call."""

    def normals(stream: jax.Array, size: int) -> jax.Array:
        return normals_from_words(step_words(stream, jnp.zeros(1, jnp.uint32), size))

    return jax.jit(normals, static_argnums=1, compiler_options=plain_fusions())


def _counts(columns: Sequence[Column], leaves: Sequence[Any]) -> np.ndarray:
    num_records = len(leaves[0])
    if not any(column.bins for column in columns):
        return np.array([num_records], np.int64)
    matrix = np.concatenate([np.asarray(leaf).reshape(num_records, -1) for leaf in leaves], axis=1)
    counts, first = [], 0
    for column in columns:
        values = matrix[:, first : first + column.width].astype(np.float64)
        known = np.all(np.isfinite(values), axis=1)
        if column.bins:
            counts.append(np.bincount(_bin(column, values[known]), minlength=column.bins))
        first += column.width
    return np.concatenate(counts).astype(np.int64)


def _bin(column: Column, values: np.ndarray) -> np.ndarray:
    """The bin of each row of ``values``, (n, width)."""
    match column:
        case Numeric():
            with np.errstate(over="ignore"):  # a warning would tell of a value
                position = (values[:, 0] - column.lower) / (column.upper - column.lower) * column.bins
            return np.clip(position, 0, column.bins - 1).astype(np.int64)
        case Levels():
            middles = (np.array(column.values)[1:] + np.array(column.values)[:-1]) / 2
            return np.searchsorted(middles, values[:, 0])
        case OneHot():
            if not column.reference:
                return np.argmax(values, axis=1)
            return np.where(np.max(values, axis=1) > 0.5, np.argmax(values, axis=1) + 1, 0)
        case Constant():
            raise AssertionError("a constant has no bins")
