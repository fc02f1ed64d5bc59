"""A run on several devices: one program that all of them run, what is the same on each, and what is read here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dpvi.records.sharding import AXIS, Records
from dpvi.run.program.draws import Draws


def on_every_device(chunk: Callable, mesh: Mesh) -> Callable:
    """The chunk of :func:`~dpvi.run.program.chunk.make_chunk` on all devices: records are spread, the rest is shared.

    Guarantees
    ----------
    Whatever comes out is the same on every device: a device's own sum meets the others' before noise is added
    (:func:`~dpvi.mechanism.bounded_sum.all_reduced`), and noise, drawn ahead, is an argument like any other. It is
    added to the sum of all, so once.
    """
    everywhere: Any = P()
    draws = Draws(everywhere, everywhere, everywhere, batch=P(None, AXIS))
    # state, records, streams, draws, noise, base, query, start, stop
    inputs = (everywhere, Records(P(AXIS), everywhere), everywhere, draws, *[everywhere] * 5)
    # that the outputs agree follows from the collective; JAX cannot see it through a gather
    return jax.shard_map(chunk, mesh=mesh, in_specs=inputs, out_specs=everywhere, check_vma=False)


def lanes_apart(chunk: Callable, draw: Callable, mesh: Mesh, same_records: bool = False) -> tuple[Callable, Callable]:
    """A chunk and its draws for runs side by side, as many on every device; devices have nothing to say to each other.

    Parameters
    ----------
    chunk
        Of all lanes, from :func:`~dpvi.run.program.chunk.side_by_side`.
    draw
        From :func:`~dpvi.run.program.draws.make_draws`.
    same_records
        Every device has a copy of the one set of records that all lanes read.
    """
    own: Any = P(AXIS)
    everywhere: Any = P()
    records = Records(everywhere if same_records else own, everywhere)
    # state, records, streams, draws, noise, base, query, start, stop
    inputs = (own, records, own, own, everywhere, everywhere, own, everywhere, everywhere)
    return (
        jax.shard_map(chunk, mesh=mesh, in_specs=inputs, out_specs=own, check_vma=False),
        jax.shard_map(draw, mesh=mesh, in_specs=(own, everywhere), out_specs=own, check_vma=False),
    )


def share(mesh: Mesh, tree: Any) -> Any:
    """Copies of this process's arrays on all of its devices, as global arrays; every process must hold the same."""
    sharding = NamedSharding(mesh, P())
    devices = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]

    def copies(leaf: jax.Array) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = copies(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        parts = [jax.device_put(leaf, device) for device in devices]
        return jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts)

    return jax.tree.map(copies, tree)


def read_here(tree: Any) -> Any:
    """This process's first copy of arrays that are the same everywhere."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)
