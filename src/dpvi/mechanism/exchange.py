"""What devices tell each other: their own arrays, all of them, to all."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def everyones(own: jax.Array, axis: str) -> jax.Array:
    """The arrays of all devices along a mesh axis, (devices, …), in the same order on each; inside ``shard_map`` only.

    Between processes on CPUs an all-gather passes halves of each array round a ring, and the thread that receives them
    spins while the one that sends holds a lock. With one core for a process that took a slice of the scheduler, about
    3 ms, at every call. Sent to everybody at once, an array is one message, and takes half of that.
    """
    if jax.default_backend() != "cpu":
        return jax.lax.all_gather(own, axis)
    copies = jnp.broadcast_to(own, (jax.lax.axis_size(axis), *own.shape))
    return jax.lax.all_to_all(copies, axis, split_axis=0, concat_axis=0)
