"""Whether gradients are formed must not follow from the number of records.

Forming a gradient and bounding its norm from its rows are two different clips. Of crafted records whose rows cancel, a
formed one adds about C and the other nearly nothing. While parameters times slots chose between them, one record more
moved the sum by some 60 C: at stated ε = 1, one published sum told 64 records from 65.
"""

from __future__ import annotations

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np

import dpvi
from dpvi.gradients.ghost import clipped_gradient_sum, uses_ghost_clipping
from dpvi.gradients.ghost.whole_rows import BITS
from dpvi.mechanism.bounded_sum import bounded_sum
from dpvi.mechanism.gaussian import FORMED_BITS
from dpvi.records.sampling import whole_tiles

INNER, OUTER = 256, 255
POINT = jnp.zeros(INNER * OUTER)


def term(xi, record):
    """A matrix that meets the same data twice, with errors that cancel but for a thousandth."""
    data = jnp.ones((2, INNER)) / 16
    errors = jnp.array([1000.0, -999.0])[:, None] * jnp.ones(OUTER) / 16 * record
    return jnp.sum((data @ xi.reshape(INNER, OUTER)) * errors)


@dataclasses.dataclass(frozen=True)
class Network(dpvi.Guided):
    """Says of which term its release is the gradient, and leaves the choice to the library."""


def by_size_of_all_gradients(num_slots):
    """The old choice."""
    return POINT.size * num_slots > 2**22


def by_the_model(num_slots):
    del num_slots
    return uses_ghost_clipping(Network(), POINT.size)


def summed(num_records, choose):
    """The sum of equal crafted records, all in one direction, in clip norms."""
    slots = whole_tiles(num_records)
    records, included = jnp.ones(slots), jnp.arange(slots) < num_records
    if choose(slots):
        units, bits = clipped_gradient_sum(term, POINT, records, included, 1.0).total, BITS
    else:
        releases = jax.vmap(jax.grad(term), (None, 0))(POINT, records)
        units, bits = bounded_sum(releases, included, 1.0).total, FORMED_BITS
    return np.linalg.norm(np.asarray(units, np.float64)) * 2.0 / 2.0**bits


def test_the_old_choice_let_one_record_move_the_sum_by_many_clip_norms():
    assert abs(summed(65, by_size_of_all_gradients) - summed(64, by_size_of_all_gradients)) > 30


def test_one_record_moves_the_sum_by_at_most_a_clip_norm():
    assert abs(summed(65, by_the_model) - summed(64, by_the_model)) <= 1


def test_the_choice_is_given_nothing_but_the_model():
    assert list(inspect.signature(uses_ghost_clipping).parameters) == ["estimator", "release_size"]
