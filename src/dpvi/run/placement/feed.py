"""Records from disk, read just before they are needed: rows of the next chunk on a thread, further passes on demand.

Which records a step draws is a function of (key, step), so it is known before the step is taken. A chunk's positions
reach the host, the rows that are drawn are read, each once, while the device works on the chunk before. A batch has the
same physical size whatever was drawn; empty slots hold copies of a row that was drawn and count for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dpvi.records.arrays import with_dtypes
from dpvi.records.sampling import PoissonSampler
from dpvi.records.sharding import AXIS, Shards
from dpvi.records.sources.base import RowSource
from dpvi.run.placement.hosts import ready_together

_PIECE_SLOTS = 2**13  # 64 kB of the longest integers; up to 100 kB are copied at once, by whoever asks


@contextmanager
def reading(feed: Feed | None) -> Iterator[None]:
    """End the thread; raise what went wrong while reading, and refuse a run whose files were changed on the way.

    Every process enters this, with a feed or without: where one of them refuses, none returns.
    """
    try:
        yield
        with ready_together():
            if feed is not None:
                feed.check()
                feed.source.check_unchanged()
    except Exception as error:
        if feed is not None:
            feed.check(error)
        raise
    finally:
        if feed is not None:
            feed.close()


class Feed:
    """Batches of one process's source for the shards of its devices.

    Parameters
    ----------
    source
        This process's records.
    structure
        One record, with the dtypes of the run.
    sampler
        Of all records.
    mesh, shards
        As the run is spread; ``None`` for one device.
    """

    def __init__(
        self, source: RowSource, structure: Any, sampler: PoissonSampler, mesh: Mesh | None, shards: Shards | None
    ) -> None:
        self.source = source
        self.structure = structure
        self._mesh = mesh
        self._shards = Shards((0, sampler.num_records), sampler.slots) if shards is None else shards
        devices = [None] if mesh is None else list(mesh.devices.flat)
        here = jax.process_index()
        self._own = [(n, device) for n, device in enumerate(devices) if device is None or device.process_index == here]
        self._most_devices = max(Counter(device.process_index if device else 0 for device in devices).values())
        self._first = self._shards.bounds[self._own[0][0]]  # the number of the source's first row among all records
        self._thread = ThreadPoolExecutor(1, "dpvi-read")
        self._failure: BaseException | None = None

    @property
    def bytes_per_step(self) -> int:
        """Of the batches that a process holds for one step: of the one with most devices, so that all say the same."""
        leaves = jax.tree.leaves(self.structure)
        record = sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
        return record * self._shards.slots * self._most_devices

    def start(self, positions: jax.Array) -> Future:
        """Read the first windows of a chunk's ``positions``, (steps, slots), on the thread."""
        return self._thread.submit(self._batches, positions)

    def finish(self, reading: Future) -> Any:
        """The batches on their devices, (steps, slots of all devices, …); every process calls this for every chunk."""
        with ready_together():
            self.check()
            parts = reading.result()
        if self._mesh is None:
            return jax.tree.map(jax.device_put, parts[0])
        devices = [device for _, device in self._own]
        sharding = NamedSharding(self._mesh, P(None, AXIS))

        def assemble(*leaves: np.ndarray) -> jax.Array:
            placed = [jax.device_put(leaf, device) for leaf, device in zip(leaves, devices, strict=True)]
            steps, slots, *rest = leaves[0].shape
            shape = (steps, slots * (len(self._shards.bounds) - 1), *rest)
            return jax.make_array_from_single_device_arrays(shape, sharding, placed)

        return jax.tree.map(assemble, *parts)

    def rows(self, numbers: jax.Array, included: jax.Array) -> Any:
        """Inside the program: the rows with these numbers among all records, for passes that nobody could foresee.

        JAX puts what a callback is given on the device again. Large arrays are copied by the threads that run programs,
        and on a single core the copy would wait forever for the program that waits for it. So they go in small pieces.
        """
        slots = numbers.shape[0]

        def cut(array: jax.Array) -> list[jax.Array]:
            return [array[start : start + _PIECE_SLOTS] for start in range(0, slots, _PIECE_SLOTS)]

        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((slots, *leaf.shape), leaf.dtype), self.structure)
        return jax.pure_callback(self._on_demand, shapes, cut(numbers), cut(included))

    def check(self, error: BaseException | None = None) -> None:
        """Raise what went wrong while rows were read on demand, in place of an ``error`` that may have come of it."""
        if self._failure is not None and self._failure is not error:
            raise self._failure from error

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _on_demand(self, numbers: list[Any], included: list[Any]) -> Any:
        """What :meth:`rows` asks for, or zeros where it cannot be read.

        A device that left the program here would leave the others waiting for it. The run goes on over zeros until
        somebody calls :meth:`check`, at the next chunk or its end, and nothing of it is returned.
        """
        try:
            if self._failure is None:
                rows = np.concatenate(numbers)[None] - self._first
                return self._filled(rows, np.concatenate(included)[None], squeeze=True)
        except BaseException as error:
            self._failure = error
        slots = sum(map(len, numbers))
        return jax.tree.map(lambda leaf: np.zeros((slots, *leaf.shape), leaf.dtype), self.structure)

    def _batches(self, positions: jax.Array) -> list[Any]:
        """One pytree per device of this process, leaves (steps, slots, …)."""
        drawn, slots = np.asarray(positions), self._shards.slots
        parts = []
        for shard, _ in self._own:
            start, stop = self._shards.bounds[shard : shard + 2]
            begin = (drawn < start).sum(axis=1)[:, None]
            index = begin + np.arange(slots)
            numbers = np.take_along_axis(drawn, np.minimum(index, drawn.shape[1] - 1), axis=1)
            included = (index < drawn.shape[1]) & (numbers >= start) & (numbers < stop)
            parts.append(self._filled(numbers - self._first, included))
        return parts

    def _filled(self, rows: np.ndarray, included: np.ndarray, squeeze: bool = False) -> Any:
        """Batches of the included ``rows``, (steps, slots), each row read once; the other slots are filled up."""
        wanted = np.unique(rows[included])
        index = np.where(included, np.searchsorted(wanted, rows), 0)
        index = index[0] if squeeze else index

        def fill(leaf: np.ndarray, target: Any) -> np.ndarray:
            return leaf[index] if len(wanted) else np.zeros((*index.shape, *target.shape), target.dtype)

        return jax.tree.map(fill, with_dtypes(self.source.take(wanted), self.structure), self.structure)
