"""Runs side by side on a processor: so many at a time as its cache holds, part after part within one program.

All lanes at once make arrays that outgrow the cache at every operation, which takes up to twice as long; lane after
lane would pay for the start of every operation. An accelerator takes all lanes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


def on_host() -> bool:
    """Whether programs run on the processor itself, and not on an accelerator beside it."""
    return jax.default_backend() == "cpu"


def in_parts(function: Callable[..., Any], arguments: tuple[Any, ...], bytes_per_lane: int, cache_bytes: int) -> Any:
    """``function(*arguments)``, all of whose inputs and outputs have a first axis of lanes, part after part.

    Parameters
    ----------
    function
        Of any number of lanes; what it gives for one does not depend on the others.
    bytes_per_lane
        What the function goes over again and again for a lane.
    cache_bytes
        How many of those may be there at a time.

    The last part takes lanes of the one before again where they do not come out even, from the same inputs, randomness
    included; what it gives for them replaces what was there.
    """
    num_lanes = jax.tree.leaves(arguments)[0].shape[0]
    size = lanes_at_once(num_lanes, cache_bytes // max(bytes_per_lane, 1)) if on_host() else num_lanes
    if size == num_lanes:
        return function(*arguments)

    def part(start: jax.Array) -> Any:
        return function(*jax.tree.map(partial(_lanes_of, start=start, size=size), arguments))

    def store(number: jax.Array, stored: Any) -> Any:
        start = jnp.minimum(number * size, num_lanes - size)
        put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=start, axis=0)
        return jax.tree.map(put, stored, part(start))

    shapes = jax.eval_shape(part, 0)
    empty = jax.tree.map(lambda leaf: jnp.zeros((num_lanes, *leaf.shape[1:]), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, -(-num_lanes // size), store, empty)


def lanes_at_once(num_lanes: int, most: int) -> int:
    """At most ``most``, at least half as many, and so that the fewest are taken twice."""
    most = max(1, most)
    if num_lanes <= most:
        return num_lanes
    return min(range(most, most // 2, -1), key=lambda size: -num_lanes % size)


def _lanes_of(leaf: jax.Array, start: jax.Array, size: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(leaf, start, size)
