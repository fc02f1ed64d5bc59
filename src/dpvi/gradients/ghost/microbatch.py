"""A batch cut into parts of one size, one after the other: less memory, the same sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dpvi.declared import validation
from dpvi.mechanism.bounded_sum import Clipped
from dpvi.records.sampling import whole_tiles

LARGEST = 2048  # more would take memory and save no time, fewer leave a graphics processor idle


def in_microbatches(
    part_sum: Callable[[Any, jax.Array], Clipped],
    records: Any,
    included: jax.Array,
    microbatch_size: int | None = None,
    fill_up: bool = False,
) -> Clipped:
    """Add ``part_sum(records, included)`` over parts of ``microbatch_size`` slots.

    Parameters
    ----------
    part_sum
        The clipped sum of a part.
    records, included
        Arrays with a leading axis of slots. The last part is filled up with excluded slots.
    microbatch_size
        A multiple of 64; ``None`` for parts of up to 2,048 slots.
    fill_up
        Fill up a batch that is smaller than a part, too, so that the size of a part tells nothing of the batch.

    Guarantees
    ----------
    A record is clipped in its part as it would be in the batch, and sums are exact, so that ``microbatch_size`` changes
    nothing of what is released where the compiler computes what a record adds by the same digits.
    """
    slots = included.shape[0]
    size = min(checked_microbatch_size(microbatch_size) or LARGEST, LARGEST)
    if slots == size or (slots < size and not fill_up):
        return part_sum(records, included)
    count = -(-slots // size)
    order = jnp.arange(count * size).reshape(count, size)

    def part(index: jax.Array) -> Clipped:
        batch = jax.tree.map(lambda leaf: leaf.at[index].get(mode="clip"), records)
        return part_sum(batch, included.at[index].get(mode="fill", fill_value=False))

    if count == 1:
        return part(order[0])
    shapes = jax.eval_shape(part, order[0])
    with jax.enable_x64(True):
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def another(total: Clipped, index: jax.Array) -> tuple[Clipped, None]:
        return total.plus(part(index)), None

    return jax.lax.scan(another, nothing, order)[0]


def checked_microbatch_size(microbatch_size: int | None) -> int | None:
    """``microbatch_size``, rounded up to whole tiles: what a record adds must not depend on it."""
    return None if microbatch_size is None else whole_tiles(validation.whole_number("microbatch_size", microbatch_size))
