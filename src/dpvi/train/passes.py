"""The clipped sum over one Poisson batch, pass after pass, on one device or on many. It never leaves the step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dpvi.data.sampling import PoissonSampler, is_complete
from dpvi.data.sharding import AXIS, Shards, num_windows, own_window, whole_shard
from dpvi.mechanism.bounded_sum import TwoFold, all_reduced

LaterPass = Callable[[jax.Array, jax.Array], jax.Array]  # (index, start) -> positions
ClippedSum = Callable[[Any, jax.Array], TwoFold]  # (batch, included) -> sum of clipped releases


def noiseless_sum(
    sampler: PoissonSampler,
    summed: ClippedSum,
    records: Any,
    first_positions: jax.Array,
    later_pass: LaterPass | None,
    shards: Shards | None = None,
) -> TwoFold:
    """The clipped sum over one Poisson batch, in as many passes as the draw needs.

    With ``shards`` each device adds up its own records, with no word to the others until all passes are done; then one
    all-reduce makes the sum.
    """
    if shards is None:
        if sampler.takes_all:
            return summed(records, jnp.ones(sampler.num_records, bool))

        def one_pass(positions: jax.Array) -> TwoFold:
            return summed(_rows(records, positions), positions < sampler.num_records)

        return _all_passes(sampler, one_pass, first_positions, later_pass)
    if sampler.takes_all:
        return all_reduced(summed(records, whole_shard(shards)), AXIS)
    own_pass = partial(_own_pass, shards, summed, records, careful=later_pass is not None)
    return all_reduced(_all_passes(sampler, own_pass, first_positions, later_pass), AXIS)


def _all_passes(
    sampler: PoissonSampler,
    one_pass: Callable[[jax.Array], TwoFold],
    first_positions: jax.Array,
    later_pass: LaterPass | None,
) -> TwoFold:
    total = one_pass(first_positions)
    if later_pass is None:
        return total

    def unfinished(carry: tuple[TwoFold, jax.Array, jax.Array]) -> jax.Array:
        return ~is_complete(sampler, carry[1])

    def another(carry: tuple[TwoFold, jax.Array, jax.Array]) -> tuple[TwoFold, jax.Array, jax.Array]:
        total, last, index = carry
        positions = later_pass(index, last + 1)
        return total.plus(one_pass(positions)), positions[-1], index + 1

    return jax.lax.while_loop(unfinished, another, (total, first_positions[-1], jnp.ones((), jnp.uint32)))[0]


def _own_pass(shards: Shards, summed: ClippedSum, records: Any, positions: jax.Array, careful: bool) -> TwoFold:
    """This device's part of a pass over all records: window after window of its own, or the first where all fit."""

    def window_sum(number: jax.Array | int) -> TwoFold:
        window = own_window(shards, positions, number)
        return summed(_rows(records, window.rows), window.included)

    total = window_sum(0)
    if not careful:
        return total
    windows = num_windows(shards, positions)
    return jax.lax.fori_loop(1, windows, lambda number, total: total.plus(window_sum(number)), total)


def _rows(records: Any, rows: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf.at[rows].get(mode="clip"), records)
