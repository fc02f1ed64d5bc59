"""How rows of covariates are drawn: each column from its shares, columns together through the ranks of their values.

Histograms say what every column looks like and nothing of how columns go together. Independent columns are the simplest
guess and one that real tables do not keep: a posterior that believed it would be too sure of what columns share. So
laws are drawn at random, and a posterior is averaged over several: a column's rank is a normal score

    u_c = Σ_f l_cf v_f + √(1 − |l_c|²) e_c,     v_f, e_c ~ N(0, 1)

of four factors that carry half of its variance, with directions l_c at random and, where levels have no order, the
levels in a random one. Correlations then have a standard deviation of a quarter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dpvi.declared.columns import Column, Constant, Levels, Numeric, OneHot
from dpvi.models.simulate import compiled_for_few_calls
from dpvi.population.shares import drawn_shares

_FACTORS = 4
_COMMUNALITY = 0.5  # the share of a rank's variance that factors carry


CovariateLaw = Callable[[jax.Array, int], Any]  # (key, n) -> the covariate leaves, n rows each, in the data's order


class Law(NamedTuple):
    """A law of rows; arrays, so that it can be traced. Bins are those of one column after the other."""

    shares: Any  # (bins,): the probability of each bin
    order: Any  # (bins,): which bin of its column comes first, second, … as the rank rises
    loadings: Any  # (columns with bins, factors): l_c


def independent_law(columns: Sequence[Column], shares: Any) -> Law:
    """Columns that know nothing of each other."""
    sizes = [column.bins for column in columns if column.bins]
    order = np.concatenate([np.zeros(0), *(np.arange(size, dtype=np.float64) for size in sizes)])
    return Law(shares, order, np.zeros((len(sizes), _FACTORS)))


def drawn_law(
    columns: Sequence[Column], shares: np.ndarray, size: float, noise_scale: float, random: np.random.Generator
) -> Law:
    """A law at random: ``shares`` but for the error that noisy counts leave in them, and columns that go together."""
    counted = [column for column in columns if column.bins]
    parts = np.split(np.asarray(shares), np.cumsum([column.bins for column in counted])[:-1])
    drawn = [
        drawn_shares(part, size, noise_scale, is_ordered(column), random)
        for column, part in zip(counted, parts, strict=True)
    ]
    order = [np.arange(column.bins) if is_ordered(column) else random.permutation(column.bins) for column in counted]
    loadings = random.normal(size=(len(counted), _FACTORS))
    loadings *= np.sqrt(_COMMUNALITY) / np.linalg.norm(loadings, axis=1, keepdims=True)
    return Law(np.concatenate(drawn), np.concatenate(order).astype(np.float64), loadings)


def is_ordered(column: Column) -> bool:
    """Whether the bins of a column lie in an order."""
    return isinstance(column, Numeric | Levels)


def draw_columns(columns: Sequence[Column], law: Law, key: jax.Array, num_records: int) -> jax.Array:
    """(num_records, width) draws; each column is stratified, so its own distribution is met almost exactly."""
    if isinstance(key, Tracer):
        return _drawn(columns, num_records, law, key)
    # as separate operations it would take ten times as long to compile
    return compiled_for_few_calls(partial(_drawn, columns, num_records))(jax.tree.map(jnp.asarray, law), key)


def _drawn(columns: Sequence[Column], num_records: int, law: Law, key: jax.Array) -> jax.Array:
    factor_key, own_key, place_key, inside_key = jax.random.split(key, 4)
    loadings = jnp.asarray(law.loadings)
    factors = jax.random.normal(factor_key, (num_records, loadings.shape[1]), loadings.dtype)
    own = jnp.sqrt(1 - jnp.sum(loadings**2, axis=1))
    normal = factors @ loadings.T + own * jax.random.normal(own_key, (num_records, len(loadings)), loadings.dtype)
    ranks = jnp.argsort(jnp.argsort(normal, axis=0), axis=0)
    level = (ranks.astype(normal.dtype) + jax.random.uniform(place_key, normal.shape, normal.dtype)) / num_records
    drawn, first, counted = [], 0, 0
    for index, column in enumerate(columns):
        if isinstance(column, Constant):
            drawn.append(jnp.full((num_records, 1), column.value))
            continue
        order = jnp.asarray(law.order[first : first + column.bins]).astype(jnp.int32)
        limits = jnp.cumsum(jnp.asarray(law.shares)[first + order])
        place = jnp.minimum(jnp.searchsorted(limits / limits[-1], level[:, counted]), column.bins - 1)
        drawn.append(_values(column, order[place], jax.random.fold_in(inside_key, index)))
        first, counted = first + column.bins, counted + 1
    return jnp.concatenate(drawn, axis=1)


def _values(column: Column, bins: jax.Array, key: jax.Array) -> jax.Array:
    """A value inside each bin, (n, width)."""
    match column:
        case Numeric():
            jitter = jax.random.uniform(key, bins.shape)
            inside = (bins.astype(jitter.dtype) + jitter) / column.bins
            return (column.lower + (column.upper - column.lower) * inside)[:, None]
        case Levels():
            return jnp.asarray(column.values, jnp.result_type(float))[bins][:, None]
        case OneHot():
            return jax.nn.one_hot(bins - int(column.reference), column.width, dtype=jnp.result_type(float))
        case Constant():
            raise AssertionError("a constant has no bins")
