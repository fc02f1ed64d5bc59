"""Records spread over devices: who holds which rows, and which of a draw's positions are a device's own.

All records have one numbering, shard after shard. The positions of a Poisson batch are drawn in that numbering, the
same on every device, and each device scores those that it holds. So the draw, and with it the mechanism, does not
depend on the number of shards. Drawn positions increase, so a device's own are a stretch of them: it finds the two
ends and reads on from the first, ``slots`` at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dpvi.records.arrays import filled_up
from dpvi.records.sampling import PoissonSampler, pass_size, whole_tiles

AXIS = "records"  # the mesh axis that records are spread over


class Shards(NamedTuple):
    """Shard k holds rows ``bounds[k]`` to ``bounds[k + 1]``. Private, as the number of records is."""

    bounds: tuple[int, ...]
    slots: int  # physical size of a device's pass

    @property
    def rows(self) -> int:
        """Rows of every shard on its device, where they are filled up to the same number."""
        return whole_tiles(max(np.diff(self.bounds).tolist()))


class Records(NamedTuple):
    """The records of a run as its program reads them. Both are arguments of the program: it knows neither values nor N.

    Rows are filled up to whole tiles with copies of the last one, which nobody counts: a made-up row might not be
    finite where every real one is.
    """

    rows: Any  # pytree of arrays, on several devices each with its own shard; None where a feed reads them
    bounds: jax.Array  # (shards + 1,) int32, as those of `Shards`; 0 and N on one device


class Window(NamedTuple):
    """Slots of one device's pass: rows of its shard, and which of them hold a sampled record."""

    rows: jax.Array  # (slots,) int32, all of them inside the shard
    included: jax.Array  # (slots,)
    start: jax.Array  # the number of the shard's first row among all records


def make_shards(lengths: Sequence[int], sampler: PoissonSampler, sampling_rate: float) -> Shards:
    """Shards of these lengths, with passes that hold nearly every draw of the longest one.

    Parameters
    ----------
    lengths
        Rows of each shard, in order; unequal ones are welcome.
    sampler
        Of all records. How many positions it draws at a time decides which bits draw them, so it must not depend on
        the shards.
    sampling_rate
        κ.
    """
    bounds = (0, *np.cumsum(lengths).tolist())
    longest = max(lengths)
    if sampler.takes_all:  # nothing is drawn, and a device takes its shard as it is
        return Shards(bounds, whole_tiles(longest))
    # where a batch takes several passes, a shard has its share of each
    share = sampler.physical_size / sampler.num_records
    most = min(pass_size(longest, sampling_rate), pass_size(longest, min(share, 1.0)))
    return Shards(bounds, whole_tiles(most))


def even_lengths(num_records: int, num_shards: int) -> list[int]:
    """Lengths that differ by one at most.

    Examples
    --------
    >>> even_lengths(11, 4)
    [3, 3, 3, 2]
    """
    if num_records < num_shards:
        raise ValueError("There are more devices than records; give fewer devices.")
    return [num_records // num_shards + (shard < num_records % num_shards) for shard in range(num_shards)]


def own_window(bounds: jax.Array, slots: int, positions: jax.Array, number: jax.Array | int) -> Window:
    """The ``number``-th window over this device's own among ``positions``; inside ``shard_map`` only.

    Parameters
    ----------
    bounds, slots
        Of :class:`Records` and :class:`Shards`.
    positions
        Of one pass over all records, (n,), increasing; void ones lie past the last record.
    number
        0 for the first ``slots`` of them, 1 for the next, …
    """
    start, stop = own_bounds(bounds)
    void = jnp.broadcast_to(bounds[-1], slots)
    begin = jnp.searchsorted(positions, start).astype(jnp.int32) + number * slots
    # a slice that begins past the positions is moved back to where the void ones begin
    mine = jax.lax.dynamic_slice(jnp.concatenate([positions, void]), (begin,), (slots,))
    return Window(jnp.clip(mine, start, stop - 1) - start, (mine >= start) & (mine < stop), start)


def num_windows(bounds: jax.Array, slots: int, positions: jax.Array) -> jax.Array:
    """How many windows hold all of this device's own positions; inside ``shard_map`` only."""
    ends = jnp.searchsorted(positions, jnp.stack(own_bounds(bounds)))
    return -(-(ends[1] - ends[0]) // slots)


def one_window_is_enough(shards: Shards, positions: jax.Array) -> jax.Array:
    """Whether on every device the first window holds all of its own; ``positions`` is (n, steps) or (n, …, steps)."""
    columns = positions.reshape(positions.shape[0], -1)
    bounds = jnp.asarray(shards.bounds, columns.dtype)
    below = jax.vmap(jnp.searchsorted, (1, None))(columns, bounds)
    return jnp.max(jnp.diff(below, axis=1)) <= shards.slots


def own_bounds(bounds: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first and last row (exclusive) of this device's shard, in the numbering of all records."""
    shard = jax.lax.axis_index(AXIS)
    return bounds[shard], bounds[shard + 1]


def mesh_of(devices: Sequence[Any]) -> Mesh:
    """A mesh of one axis, ordered by process, so that each process holds neighbouring shards."""
    ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(ordered), (AXIS,))


def place_rows(mesh: Mesh, shards: Shards, leaves: Any) -> Any:
    """Put this process's rows on its devices, shard by shard.

    Parameters
    ----------
    mesh
        From :func:`mesh_of`.
    shards
        Of all devices of the mesh.
    leaves
        A pytree of NumPy arrays with the rows of this process's shards, one after the other.

    Returns
    -------
    The same pytree of global arrays, every shard with as many rows.
    """
    sharding = NamedSharding(mesh, P(AXIS))
    numbered = list(enumerate(mesh.devices.flat))
    own = [(shard, device) for shard, device in numbered if device.process_index == jax.process_index()]
    first = shards.bounds[own[0][0]]

    def place(leaf: np.ndarray) -> jax.Array:
        parts = []
        for shard, device in own:
            rows = leaf[shards.bounds[shard] - first : shards.bounds[shard + 1] - first]
            parts.append(jax.device_put(filled_up(rows, shards.rows), device))
        shape = (shards.rows * len(numbered), *leaf.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, parts)

    return jax.tree.map(place, leaves)
