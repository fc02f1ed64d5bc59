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

from dpvi.data.sampling import PoissonSampler, pass_size

AXIS = "records"  # the mesh axis that records are spread over


class Shards(NamedTuple):
    """Shard k holds rows ``bounds[k]`` to ``bounds[k + 1]``. Private, as the number of records is."""

    bounds: tuple[int, ...]
    slots: int  # physical size of a device's pass

    @property
    def longest(self) -> int:
        return max(np.diff(self.bounds).tolist())


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
        return Shards(bounds, longest)
    # where a batch takes several passes, a shard has its share of each
    share = sampler.physical_size / sampler.num_records
    return Shards(bounds, min(pass_size(longest, sampling_rate), pass_size(longest, min(share, 1.0))))


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


def own_window(shards: Shards, positions: jax.Array, number: jax.Array | int) -> Window:
    """The ``number``-th window over this device's own among ``positions``; inside ``shard_map`` only.

    Parameters
    ----------
    positions
        Of one pass over all records, (n,), increasing; void ones lie past the last record.
    number
        0 for the first ``slots`` of them, 1 for the next, …
    """
    start, stop = _own(shards)
    void = jnp.full(shards.slots, shards.bounds[-1], positions.dtype)
    begin = jnp.searchsorted(positions, start).astype(jnp.int32) + number * shards.slots
    # a slice that begins past the positions is moved back to where the void ones begin
    mine = jax.lax.dynamic_slice(jnp.concatenate([positions, void]), (begin,), (shards.slots,))
    return Window(jnp.clip(mine, start, stop - 1) - start, (mine >= start) & (mine < stop), start)


def num_windows(shards: Shards, positions: jax.Array) -> jax.Array:
    """How many windows hold all of this device's own positions; inside ``shard_map`` only."""
    ends = jnp.searchsorted(positions, jnp.stack(_own(shards)))
    return -(-(ends[1] - ends[0]) // shards.slots)


def whole_shard(shards: Shards) -> jax.Array:
    """Which rows of this device's padded shard hold a record; inside ``shard_map`` only."""
    start, stop = _own(shards)
    return jnp.arange(shards.longest, dtype=jnp.int32) < stop - start


def one_window_is_enough(shards: Shards, positions: jax.Array) -> jax.Array:
    """Whether on every device the first window holds all of its own; ``positions`` is (n, steps) or (n, …, steps)."""
    columns = positions.reshape(positions.shape[0], -1)
    bounds = jnp.asarray(shards.bounds, columns.dtype)
    below = jax.vmap(jnp.searchsorted, (1, None))(columns, bounds)
    return jnp.max(jnp.diff(below, axis=1)) <= shards.slots


def _own(shards: Shards) -> tuple[jax.Array, jax.Array]:
    """The first and last row (exclusive) of this device's shard, in the numbering of all records."""
    bounds = jnp.asarray(shards.bounds, jnp.int32)
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
    The same pytree of global arrays. Shards shorter than the longest are filled up with copies of their last row, which
    nobody counts: a made-up row might not be finite where every real one is.
    """
    sharding = NamedSharding(mesh, P(AXIS))
    numbered = list(enumerate(mesh.devices.flat))
    own = [(shard, device) for shard, device in numbered if device.process_index == jax.process_index()]
    first = shards.bounds[own[0][0]]
    longest = shards.longest

    def place(leaf: np.ndarray) -> jax.Array:
        parts = []
        for shard, device in own:
            rows = leaf[shards.bounds[shard] - first : shards.bounds[shard + 1] - first]
            filled = np.concatenate([rows, np.repeat(rows[-1:], longest - len(rows), axis=0)])
            parts.append(jax.device_put(filled, device))
        shape = (longest * len(numbered), *leaf.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, parts)

    return jax.tree.map(place, leaves)
