"""Where the records of a run are: on one device, spread over those of one or several processes, or on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dpvi.records.arrays import as_host_records, as_records, filled_up, with_dtypes
from dpvi.records.sampling import whole_tiles
from dpvi.records.sharding import AXIS, Records, even_lengths, mesh_of, place_rows
from dpvi.records.sources.base import RowSource, blocks, described
from dpvi.run.placement import hosts
from dpvi.run.placement.feed import Feed
from dpvi.run.placement.mesh import share
from dpvi.run.placement.shared_rows import refuse_shared
from dpvi.run.program.step import Algorithm


class Rows(NamedTuple):
    """This process's records, before they are placed."""

    held: Any  # pytree of arrays with one row per record, or a source
    num_records: int
    mesh: Mesh | None


class Placed(NamedTuple):
    """The records of a run, where its program reads them."""

    records: Records
    own: Any  # this process's rows, arrays that may be filled up, or a source
    num_own: int
    mesh: Mesh | None

    @property
    def shapes(self) -> Any:
        """Shapes and dtypes of this process's records."""
        if isinstance(self.own, RowSource):
            return described(self.own)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((self.num_own, *leaf.shape[1:]), leaf.dtype), self.own)

    def blocks(self) -> Iterable[Any]:
        """This process's records as pytrees of arrays, each record once: for what is counted on the host."""
        if isinstance(self.own, RowSource):
            return blocks(self.own)
        return [jax.tree.map(lambda leaf: np.asarray(leaf)[: self.num_own], self.own)]


def bring_in(data: Any, devices: Sequence[Any] | None) -> Rows:
    """Check ``data`` and ``devices``; speaks to no other process.

    Parameters
    ----------
    data
        This process's records: all there are, or one part per process.
    devices
        ``None``: the default device, or, where there are several processes, all devices of all of them.
    """
    mesh = _mesh(devices)
    if isinstance(data, RowSource):
        rows = Rows(data, data.num_records, mesh)
    else:
        rows = Rows(*(as_records(data) if mesh is None else as_host_records(data)), mesh)
    if mesh is not None:
        even_lengths(rows.num_records, len(mesh.local_devices))  # refuses too few
    return rows


def shard_lengths(rows: Rows) -> list[int]:
    """Rows of every shard of every process, in order; one shard where there is no mesh. All processes call this.

    Rows that two processes hold are refused: they would be counted, and later added, twice.
    """
    if rows.mesh is None:
        return [rows.num_records]
    refuse_shared(rows.held)
    counts = hosts.from_all(np.array([rows.num_records]))[:, 0].tolist()
    processes = [device.process_index for device in rows.mesh.devices.flat]
    return [length for process, count in enumerate(counts) for length in even_lengths(count, processes.count(process))]


def place(rows: Rows, algorithm: Algorithm, structure: Any) -> tuple[Algorithm, Placed]:
    """Put the records where the run reads them; a source that every step takes whole is loaded.

    Speaks to no other process.
    """
    held, num_own, mesh = rows
    bounds = jnp.asarray((0, num_own) if algorithm.shards is None else algorithm.shards.bounds, jnp.int32)
    bounds = bounds if mesh is None else share(mesh, bounds)
    if isinstance(held, RowSource):
        if not algorithm.sampler.takes_all:
            feed = Feed(held, structure, algorithm.sampler, mesh, algorithm.shards)
            return replace(algorithm, feed=feed), Placed(Records(None, bounds), held, num_own, mesh)
        loaded = held.take(np.arange(held.num_records))
        held.check_unchanged()  # nothing is read later, so no later look at the file would tell
        held = with_dtypes(loaded, structure)
        held = jax.tree.map(jnp.asarray, held) if mesh is None else held
    if mesh is None or algorithm.shards is None:
        held = jax.tree.map(lambda leaf: filled_up(leaf, whole_tiles(num_own)), held)
        return algorithm, Placed(Records(held, bounds), held, num_own, None)
    return algorithm, Placed(Records(place_rows(mesh, algorithm.shards, held), bounds), held, num_own, mesh)


def lane_mesh(devices: Sequence[Any] | None, num_lanes: int) -> tuple[Mesh | None, list[int]]:
    """A mesh for runs side by side, and which of them run on it: all, and copies of the last that fill it up.

    A copy has the data and the key of its original, so it releases nothing new; whoever asked for it drops it.
    """
    mesh = None if devices is None else _mesh(devices)
    if mesh is None:
        return None, list(range(num_lanes))
    mesh = mesh_of(list(mesh.devices.flat)[:num_lanes])
    return mesh, [*range(num_lanes), *[num_lanes - 1] * (-num_lanes % mesh.size)]


def spread_lanes(mesh: Mesh | None, tree: Any) -> Any:
    """Arrays whose first axis is that of lanes, each lane where it runs."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, P(AXIS)))


def _mesh(devices: Sequence[Any] | None) -> Mesh | None:
    if devices is None:
        return mesh_of(jax.devices()) if hosts.several() else None
    given = list(devices) if isinstance(devices, Sequence) else [devices]
    if not given or not all(isinstance(device, jax.Device) for device in given) or len(set(given)) < len(given):
        raise TypeError(f"devices must be a list of different devices such as jax.devices(), got {devices!r}.")
    if {device.process_index for device in given} != set(range(jax.process_count())):
        raise ValueError(
            "devices must hold at least one device of every process; leave it out to use all devices of all processes."
        )
    return mesh_of(given)
