"""Where the records of a run are: on one device, or spread over the devices of one or several processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from dpvi.data.records import as_host_records, as_records
from dpvi.data.sharding import Shards, even_lengths, mesh_of, place_rows
from dpvi.train import hosts


class Rows(NamedTuple):
    """This process's records, before they are placed."""

    arrays: Any  # pytree of arrays with one row per record
    num_records: int
    mesh: Mesh | None


class Placed(NamedTuple):
    """The records of a run, where its program reads them."""

    records: Any  # pytree of device arrays; over a mesh, global ones with padded shards
    own: Any  # this process's rows as they came, for what is counted on the host
    mesh: Mesh | None


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
    if mesh is None:
        return Rows(*as_records(data), None)
    arrays, num_records = as_host_records(data)
    even_lengths(num_records, len(mesh.local_devices))  # refuses too few
    return Rows(arrays, num_records, mesh)


def shard_lengths(rows: Rows) -> list[int]:
    """Rows of every shard of every process, in order; one shard where there is no mesh. All processes call this."""
    if rows.mesh is None:
        return [rows.num_records]
    counts = hosts.from_all(np.array([rows.num_records]))[:, 0].tolist()
    processes = [device.process_index for device in rows.mesh.devices.flat]
    return [length for process, count in enumerate(counts) for length in even_lengths(count, processes.count(process))]


def place(rows: Rows, shards: Shards | None) -> Placed:
    """Put the records where the run reads them."""
    if rows.mesh is None or shards is None:
        return Placed(rows.arrays, rows.arrays, None)
    return Placed(place_rows(rows.mesh, shards, rows.arrays), rows.arrays, rows.mesh)


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
