"""Where the batch of a step is put together on a processor.

XLA cuts a plain gather in two for two cores, because it counts all records there are and not the few that are read.
Every step then waits for another thread, which may be drawing, or asleep, and fetches half of its batch from the other
core's cache. What writes into a part of an array that is there already is never cut.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from dpvi.run.program.lanes import on_host
from dpvi.run.program.step import Algorithm

_LARGEST = 2**17  # bytes; two cores that are both free put a larger batch together faster


def make_room(algorithm: Algorithm, records: Any) -> Any:
    """Room for one batch of ``records`` and a slot more, or None where batches come otherwise."""
    elsewhere = algorithm.feed is not None or algorithm.shards is not None
    if elsewhere or algorithm.sampler.takes_all or not on_host():
        return None
    record = sum(leaf.dtype.itemsize * math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(records))
    if algorithm.slots * record > _LARGEST:
        return None
    return jax.tree.map(lambda leaf: jnp.zeros((algorithm.slots + 1, *leaf.shape[1:]), leaf.dtype), records)


def put_together(room: Any, records: Any, positions: jax.Array, step: jax.Array) -> tuple[Any, Any]:
    """``room`` with the records at ``positions`` in it, and those alone; a position without a record has any.

    The slot that is left over, and a beginning at ``min(step, 0)``, which is zero, are for the compiler: were it sure
    that all of the room is written, it would make a plain gather of it.
    """
    beginning = jnp.minimum(step, 0)

    def put(room: jax.Array, leaf: jax.Array) -> jax.Array:
        rows = leaf.at[positions].get(mode="clip")
        return jax.lax.dynamic_update_slice_in_dim(room, rows, beginning, axis=0)

    room = jax.tree.map(put, room, records)
    return room, jax.tree.map(lambda leaf: leaf[:-1], room)
