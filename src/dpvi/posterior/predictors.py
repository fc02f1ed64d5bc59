"""Rows of covariates as a run released them: noisy counts of every column, and second moments where it measured them.

A run's own simulations move rows of independent columns until they have the measured moments, which leaves levels that
are no levels. Here every entry becomes a value that the declarations allow, and columns keep what they share:

    few values     the two nearest, at random, so that the mean of the entry given the others stays what it was
    indicators     one level at random, with the entries, cut to [0, 1], for probabilities
    many values    the column's own values, in the order of the moved entries
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dpvi.declared.columns import Column, Constant, Levels, OneHot
from dpvi.declared.plan import HISTOGRAMS
from dpvi.population.covariate_law import draw_columns, is_ordered
from dpvi.population.covariates import released_population
from dpvi.population.shares import drawn_shares
from dpvi.posterior.metric.moments import moved_rows
from dpvi.posterior.result import Result
from dpvi.release.measurements import answered
from dpvi.release.requests import CovariateMoments

_FEW = 8  # values


def predictor_rows(result: Result, num_records: int, key: jax.Array) -> np.ndarray:
    """Rows of all covariates side by side, (num_records, width).

    Parameters
    ----------
    result
        Of a plan with ``covariates``.
    num_records
        How many rows.
    key
        Decides the rows, and the errors that noise leaves in counts: each key is another population that the counts
        allow.
    """
    plan, histograms = result.plan, result.trace.histograms
    if plan.covariates is None or histograms is None:
        raise ValueError(
            "Predictors are drawn from counts that the run released, and this one released none. Make the plan with "
            "covariates=, or fit a model of the whole table."
        )
    people = released_population(plan, histograms)
    draw_key, chance = jax.random.split(key)
    random = np.random.default_rng(np.asarray(jax.random.key_data(chance)))
    size = float(people.num_records)
    shares = _redrawn(
        plan.covariates, np.asarray(people.law.shares), size, plan.release(HISTOGRAMS).noise_scale, random
    )
    with jax.enable_x64(True):
        law = people.law._replace(shares=shares)
        rows = np.asarray(draw_columns(plan.covariates, law, draw_key, num_records), np.float64)
    moved = rows
    for each in [] if result.trace.measurements is None else answered(result.trace.measurements):
        if isinstance(each.request, CovariateMoments):
            noise = plan.noise_multiplier / each.request.units**0.5
            moved = moved_rows(moved, each.request.metric, each.released, size, noise)[0]
    return possible_rows(plan.covariates, rows, moved, random)


def possible_rows(
    columns: Sequence[Column], rows: np.ndarray, moved: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """``moved`` rows with values that ``columns`` allow; ``rows`` are those they were moved from.

    Examples
    --------
    >>> moved = np.array([[0.2, -1.3], [0.9, 0.4], [0.5, 7.0]])
    >>> columns = (Levels((0.0, 1.0)), Levels(tuple(range(9))))
    >>> found = possible_rows(columns, np.array([[0, 4.0], [1, 2.0], [1, 8.0]]), moved, np.random.default_rng(0))
    >>> found[:, 1].tolist(), set(found[:, 0].tolist()) <= {0.0, 1.0}
    ([2.0, 4.0, 8.0], True)
    """
    parts, start = [], 0
    for column in columns:
        block = slice(start, start + column.width)
        start += column.width
        if isinstance(column, Constant):
            parts.append(rows[:, block])
        elif isinstance(column, OneHot):
            parts.append(_one_level(column, moved[:, block], random))
        elif isinstance(column, Levels) and len(column.values) <= _FEW:
            parts.append(_nearest_two(np.array(column.values), moved[:, block], random))
        else:
            order = np.argsort(np.argsort(moved[:, block], axis=0, kind="stable"), axis=0, kind="stable")
            parts.append(np.take_along_axis(np.sort(rows[:, block], axis=0), order, axis=0))
    return np.concatenate(parts, axis=1)


def _one_level(column: OneHot, moved: np.ndarray, random: np.random.Generator) -> np.ndarray:
    first = 1 - moved.sum(axis=1, keepdims=True)
    chances = np.maximum(np.hstack([first, moved]) if column.reference else moved, 0.0)
    total = chances.sum(axis=1, keepdims=True)
    limits = np.cumsum(np.where(total > 0, chances / np.where(total > 0, total, 1.0), 1 / chances.shape[1]), axis=1)
    level = np.sum(random.random((len(moved), 1)) > limits[:, :-1], axis=1)
    return np.eye(column.levels)[level][:, int(column.reference) :]


def _nearest_two(values: np.ndarray, moved: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if len(values) == 1:
        return np.full_like(moved, values[0])
    inside = np.clip(moved, values[0], values[-1])
    below = np.clip(np.searchsorted(values, inside, side="right") - 1, 0, len(values) - 2)
    share = (inside - values[below]) / (values[below + 1] - values[below])
    return values[below + (random.random(moved.shape) < share)]


def _redrawn(
    columns: Sequence[Column], shares: np.ndarray, size: float, noise_scale: float, random: np.random.Generator
) -> np.ndarray:
    """Shares that the noisy counts allow as well as the ones read off them."""
    counted = [column for column in columns if column.bins]
    parts = np.split(shares, np.cumsum([column.bins for column in counted])[:-1])
    drawn = [
        drawn_shares(part, size, noise_scale, is_ordered(column), random)
        for column, part in zip(counted, parts, strict=True)
    ]
    return np.concatenate([np.zeros(0), *drawn])


def released_size(result: Result) -> int:
    """The number of records that a plan declares or its counts say; what was released may be used by anybody."""
    plan: Any = result.plan
    if plan.num_records is not None:
        return int(plan.num_records)
    if plan.covariates is None or result.trace.histograms is None:
        raise ValueError(
            "Neither plan nor result says how many records there are; give a public number with --records, such as the "
            "size that a publication has named."
        )
    return max(1, round(float(released_population(plan, result.trace.histograms).num_records)))
