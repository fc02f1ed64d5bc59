"""What released histograms say about the records: how many there are, and what their covariates look like.

For a regression whose model is right, the mean of an unclipped score at the truth is zero whatever the covariates are;
their law decides only how much information a score carries and how clipping bends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared.columns import Column
from dpvi.declared.plan import HISTOGRAMS, Plan
from dpvi.models.base import GenerativeModel, ModelError
from dpvi.population.covariate_law import CovariateLaw, Law, draw_columns, drawn_law, independent_law, is_ordered
from dpvi.population.generative import covariate_leaves
from dpvi.population.shares import shares_of


class Population(NamedTuple):
    """The number of records and the shares of their covariates' bins, public or released; arrays, so it can be traced.

    ``num_records`` is N or an estimate N̂, ``variance`` the variance of its error (zero where N is public), ``law`` how
    covariates are drawn (empty without histograms).
    """

    num_records: Any
    variance: Any
    law: Law


def public_population(num_records: float, variance: float = 0.0) -> Population:
    """A population of which the size is known, or was estimated elsewhere, and no covariate was counted."""
    return Population(np.float64(num_records), np.float64(variance), independent_law((), np.zeros(0)))


def released_population(plan: Plan, histograms: np.ndarray) -> Population:
    """The population that noisy ``histograms`` of ``plan.covariates`` describe.

    Every column's counts sum to N plus noise of variance b s², for b bins and noise of scale s, so N̂ is the mean of the
    totals with weights 1/b. Shares come from :func:`dpvi.population.shares.shares_of`. Where the plan declares the
    number of records public, that is used.
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
        shares_of(part, size, scale, is_ordered(column))
        for column, part in zip(columns, parts, strict=False)  # without columns the one part is the total
    ]
    law = independent_law(plan.covariates or (), np.concatenate([np.zeros(0), *shares]))
    return Population(np.float64(size), np.float64(variance), law)


def drawn_populations(plan: Plan, found: Population, count: int, seed: int) -> list[Population]:
    """``count`` populations that the histograms behind ``found`` allow, each as likely; ``found`` where none is needed.

    Shares differ by what the noise may have done to them (had ``found`` been right, a parametric bootstrap), and
    columns go together in another way in each.
    """
    columns = plan.covariates or ()
    if not any(column.bins for column in columns):
        return [found]
    random, scale = np.random.default_rng(seed), plan.release(HISTOGRAMS).noise_scale
    size = float(found.num_records)
    return [found._replace(law=drawn_law(columns, found.law.shares, size, scale, random)) for _ in range(count)]


def check_columns(model: GenerativeModel, columns: Sequence[Column]) -> None:
    """Refuse columns that do not cover the model's covariates, which are the leaves no site observes."""
    names, shapes = covariate_leaves(model)
    wanted, given = sum(_size(leaf.shape) for leaf in shapes), sum(column.width for column in columns)
    if wanted != given:
        raise ModelError(
            f"The plan declares covariates {given} columns wide, but those of the model ({names or 'none'}) have "
            f"{wanted}. Declare one entry per raw column, in the order of the data; Constant() for an intercept."
        )


def histogram_law(model: GenerativeModel, columns: Sequence[Column], law: Law) -> CovariateLaw:
    """``law`` as a law of the model's covariate leaves."""

    def draw(key: jax.Array, num_records: int) -> list[jax.Array]:
        return as_leaves(model, draw_columns(columns, law, key, num_records))

    return draw


def as_leaves(model: GenerativeModel, rows: Any) -> list[Any]:
    """Rows of all covariates side by side, as the leaves of the data that no site observes."""
    _, structures = covariate_leaves(model)
    ends = np.cumsum([_size(leaf.shape) for leaf in structures])[:-1]
    parts = (jnp if isinstance(rows, jax.Array) else np).split(rows, ends, axis=1)
    return [part.reshape(len(rows), *leaf.shape) for part, leaf in zip(parts, structures, strict=True)]


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
