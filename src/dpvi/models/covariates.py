"""What released histograms say about the records: how many there are, and what their covariates look like.

Columns are drawn independently of each other, each from its own histogram. For a regression
whose model is right, the mean of an unclipped score at the truth is zero whatever the covariates are; their law decides
only how much information a score carries and how clipping bends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.core.columns import Column, Constant, Levels, Numeric, OneHot
from dpvi.core.plan import HISTOGRAMS, Plan
from dpvi.models.base import ModelError
from dpvi.models.generative import CovariateLaw, covariate_leaves
from dpvi.models.numpyro import NumPyroModel
from dpvi.models.shares import drawn_shares, shares_of


class Population(NamedTuple):
    """The number of records and the shares of their covariates' bins, public or released; arrays, so it can be traced.

    ``num_records`` is N or an estimate N̂, ``variance`` the variance of its error (zero where N is public), ``shares``
    the probability of each bin, one column after the other (empty without histograms).
    """

    num_records: Any
    variance: Any
    shares: Any


def public_population(num_records: float, variance: float = 0.0) -> Population:
    """A population of which the size is known, or was estimated elsewhere, and no covariate was counted."""
    return Population(np.float64(num_records), np.float64(variance), np.zeros(0))


def released_population(plan: Plan, histograms: np.ndarray) -> Population:
    """The population that noisy ``histograms`` of ``plan.covariates`` describe.

    Every column's counts sum to N plus noise of variance b s², for b bins and noise of scale s, so N̂ is the mean of the
    totals with weights 1/b. Shares come from :func:`dpvi.models.shares.shares_of`. Where the plan declares the number
    of records public, that is used.
    """
    sizes = [column.bins for column in plan.covariates or () if column.bins] or [1]
    parts = np.split(np.asarray(histograms, np.float64), np.cumsum(sizes)[:-1])
    weights = 1 / np.array(sizes, np.float64)
    if plan.num_records is not None:
        size, variance = float(plan.num_records), 0.0
    else:
        totals = np.array([part.sum() for part in parts])
        size = max(float(weights @ totals / weights.sum()), 1.0)
        variance = plan.release(HISTOGRAMS).noise_scale ** 2 / float(weights.sum())
    columns = [column for column in plan.covariates or () if column.bins]
    scale = plan.release(HISTOGRAMS).noise_scale
    shares = [
        shares_of(part, size, scale, _ordered(column))
        for column, part in zip(columns, parts, strict=False)  # without columns the one part is the total
    ]
    return Population(np.float64(size), np.float64(variance), np.concatenate([np.zeros(0), *shares]))


def drawn_populations(plan: Plan, found: Population, count: int, seed: int) -> list[Population]:
    """``found`` and ``count - 1`` others that the noise of the histograms allows, each as likely.

    The others are what the same histograms might have shown had ``found`` been right (a parametric bootstrap), so that
    their spread is the error of ``found``.
    """
    columns = [column for column in plan.covariates or () if column.bins]
    if not columns:
        return [found]
    random, scale = np.random.default_rng(seed), plan.release(HISTOGRAMS).noise_scale
    size = float(found.num_records)
    parts = np.split(np.asarray(found.shares), np.cumsum([column.bins for column in columns])[:-1])

    def drawn() -> np.ndarray:
        return np.concatenate(
            [
                drawn_shares(part, size, scale, _ordered(column), random)
                for column, part in zip(columns, parts, strict=True)
            ]
        )

    return [found, *(found._replace(shares=drawn()) for _ in range(count - 1))]


def _ordered(column: Column) -> bool:
    return isinstance(column, Numeric | Levels)


def check_columns(model: NumPyroModel, columns: Sequence[Column]) -> None:
    """Refuse columns that do not cover the model's covariates, which are the leaves no site observes."""
    names, shapes = covariate_leaves(model)
    wanted, given = sum(_size(leaf.shape) for leaf in shapes), sum(column.width for column in columns)
    if wanted != given:
        raise ModelError(
            f"The plan declares covariates {given} columns wide, but those of the model ({names or 'none'}) have "
            f"{wanted}. Declare one entry per raw column, in the order of the data; Constant() for an intercept."
        )


def histogram_law(model: NumPyroModel, columns: Sequence[Column], shares: jax.Array) -> CovariateLaw:
    """A law of the model's covariate leaves: columns independent, each from its histogram."""

    def draw(key: jax.Array, num_records: int) -> list[jax.Array]:
        matrix = draw_columns(columns, shares, key, num_records)
        _, structures = covariate_leaves(model)
        ends = np.cumsum([_size(leaf.shape) for leaf in structures])[:-1]
        parts = jnp.split(matrix, ends, axis=1)
        return [part.reshape(num_records, *leaf.shape) for part, leaf in zip(parts, structures, strict=True)]

    return draw


def draw_columns(columns: Sequence[Column], shares: jax.Array, key: jax.Array, num_records: int) -> jax.Array:
    """(num_records, width) draws; each column is stratified, so its own distribution is met almost exactly."""
    drawn, first = [], 0
    for index, column in enumerate(columns):
        if isinstance(column, Constant):
            drawn.append(jnp.full((num_records, 1), column.value))
            continue
        order_key, level_key, inside_key = jax.random.split(jax.random.fold_in(key, index), 3)
        strata = jax.random.permutation(order_key, num_records)
        jitter = jax.random.uniform(level_key, (num_records,))
        level = (strata.astype(jitter.dtype) + jitter) / num_records
        limits = jnp.cumsum(shares[first : first + column.bins])
        bins = jnp.minimum(jnp.searchsorted(limits / limits[-1], level), column.bins - 1)
        drawn.append(_values(column, bins, inside_key))
        first += column.bins
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


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
