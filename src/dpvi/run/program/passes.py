"""The clipped sum over one Poisson batch, pass after pass, on one device or on many. It never leaves the step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpvi.mechanism.bounded_sum import Clipped, all_reduced
from dpvi.records.sampling import PoissonSampler, is_complete, last_drawn
from dpvi.records.sharding import AXIS, Records, Shards, Window, num_windows, own_bounds, own_window
from dpvi.run.placement.feed import Feed

LaterPass = Callable[[jax.Array, jax.Array], jax.Array]  # (index, start) -> positions
ClippedSum = Callable[[Any, jax.Array], Clipped]  # (batch, included) -> sum of clipped releases, and their count


class InMemory(NamedTuple):
    """Records on the device: all of them, or its own shard."""

    records: Records
    batch: Any = None  # of a step's first window, where it was put together before

    def at(self, window: Window, first: bool) -> Any:
        """The batch of a window; ``first`` marks the first of a step."""
        if first and self.batch is not None:
            return self.batch
        return jax.tree.map(lambda leaf: leaf.at[window.rows].get(mode="clip"), self.records.rows)


class ReadAhead(NamedTuple):
    """Records from a source: the batch of a step's first window is here, others are read when they are needed."""

    records: Records
    batch: Any
    feed: Feed

    def at(self, window: Window, first: bool) -> Any:
        return self.batch if first else self.feed.rows(window.rows + window.start, window.included)


Rows = InMemory | ReadAhead


def noiseless_sum(
    sampler: PoissonSampler,
    summed: ClippedSum,
    rows: Rows,
    first_positions: jax.Array,
    later_pass: LaterPass | None,
    shards: Shards | None = None,
) -> Clipped:
    """The clipped sum over one Poisson batch, in as many passes as the draw needs.

    With ``shards`` each device adds up its own records, with no word to the others until all passes are done; then one
    all-reduce makes the sum.
    """
    bounds = rows.records.bounds
    if sampler.takes_all:
        assert isinstance(rows, InMemory), "a source that every step takes whole is loaded"
        every = jnp.arange(jax.tree.leaves(rows.records.rows)[0].shape[0], dtype=jnp.int32)
        if shards is None:
            included = (every >= bounds[0]) & (every < bounds[1])
        else:
            start, stop = own_bounds(bounds)
            included = every < stop - start
        own = summed(rows.records.rows, included)
    else:
        pass_sum = partial(_whole_pass, bounds) if shards is None else partial(_own_pass, bounds, shards.slots)
        own = _all_passes(sampler, partial(pass_sum, summed, rows), first_positions, later_pass)
    return own if shards is None else all_reduced(own, AXIS)


def _all_passes(sampler: PoissonSampler, one_pass: Any, positions: jax.Array, later_pass: LaterPass | None) -> Clipped:
    total = one_pass(positions, first=True, further=later_pass is not None)
    if later_pass is None:
        return total

    def unfinished(carry: tuple[Clipped, jax.Array, jax.Array]) -> jax.Array:
        return ~is_complete(sampler, carry[1])

    def another(carry: tuple[Clipped, jax.Array, jax.Array]) -> tuple[Clipped, jax.Array, jax.Array]:
        total, last, index = carry
        positions = later_pass(index, last + 1)
        return total.plus(one_pass(positions, first=False, further=True)), last_drawn(sampler, positions), index + 1

    begun = (total, last_drawn(sampler, positions), jnp.ones((), jnp.uint32))
    return jax.lax.while_loop(unfinished, another, begun)[0]


def _whole_pass(
    bounds: jax.Array, summed: ClippedSum, rows: Rows, positions: jax.Array, first: bool, further: bool
) -> Clipped:
    del further
    window = Window(positions, positions < bounds[1], bounds[0])
    return summed(rows.at(window, first), window.included)


def _own_pass(
    bounds: jax.Array, slots: int, summed: ClippedSum, rows: Rows, positions: jax.Array, first: bool, further: bool
) -> Clipped:
    """This device's part of a pass over all records: window after window of its own, or the first where all fit."""

    def window_sum(number: jax.Array | int, first: bool) -> Clipped:
        window = own_window(bounds, slots, positions, number)
        return summed(rows.at(window, first), window.included)

    total = window_sum(0, first)
    if not further:
        return total
    windows = num_windows(bounds, slots, positions)
    return jax.lax.fori_loop(1, windows, lambda number, total: total.plus(window_sum(number, False)), total)
