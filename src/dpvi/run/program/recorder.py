"""Turning what a loop released into a :class:`~dpvi.release.trace.Trace`, in bounded memory.

Sums over the kept steps run on the device in float64 and reach the host once per block; rows reach it thinned when all
of them would not fit. Several runs side by side (lanes) are recorded at once; a single run is one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.release.trace import MAX_CURVATURE_DIMENSION, BlockSums, CurvatureSums, Segments, Trace
from dpvi.run.program.chunk import KEPT_PARAMETERS, Layout
from dpvi.run.program.step import Row, Sizes

_MAX_ROW_BYTES, _NETWORK_ROW_BYTES = 2**28, 2**26  # rows of a network show how it moved; no method reads them
_MAX_CURVATURE_BYTES = 2**27


class Sums(NamedTuple):
    """Sums over all rows that ran; a leading axis of lanes where there are any."""

    iterate: jax.Array
    query: jax.Array
    noisy_sum: jax.Array


class Totals(NamedTuple):
    """Sums over the rows of a chunk that ran; leading axes (lane, block of the chunk) where blocks are kept."""

    blocks: BlockSums
    curvature: CurvatureSums | None
    everything: Sums | None  # for drivers


def _added(values: jax.Array) -> jax.Array:
    """Sum over axis 1, by halves: (a, n, …) to (a, …).

    On a CPU, XLA's own sum over an axis that is not the last one goes scalar by scalar, and with a few rows of a
    network's parameters took longer than the gradient.
    """
    while values.shape[1] > 1:
        half, odd = divmod(values.shape[1], 2)
        pairs = values[:, :half] + values[:, half : 2 * half]
        values = jnp.concatenate([pairs, values[:, 2 * half :]], axis=1) if odd else pairs
    return values[:, 0]


def _joined(parts: Sequence[Row]) -> Row:
    """Rows of chunks after each other."""
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-2), *parts)


class Wanted(NamedTuple):
    """Which sums are made; the others cost nothing."""

    blocks_per_window: int
    curvature: bool
    everything: bool
    lanes: bool
    row_length: int


def _totals(rows: Row, base: int, start: int, stop: int, wanted: Wanted) -> Totals:
    """Float64 sums over one lane's rows of steps ``start`` to ``stop`` of a window."""
    num_blocks, length = wanted.blocks_per_window, wanted.row_length
    first = length * jnp.arange(rows.iterate.shape[0])
    mask = ((first >= start) & (first < stop)).astype(jnp.float64)
    phi, query, noisy, gradient = (mask[:, None] * part.astype(jnp.float64) for part in rows[:4])
    time = mask * (base + first).astype(jnp.float64)

    def by_block(values: jax.Array) -> jax.Array:
        return _added(values.reshape(num_blocks, -1, *values.shape[1:]))

    blocks = BlockSums(
        count=by_block(mask),
        time=by_block(time),
        time_squared=by_block(time**2),
        phi=by_block(phi),
        phi_squared=by_block(phi**2),
        time_phi=by_block(time[:, None] * phi),
        gradient=by_block(gradient),
        gradient_phi=by_block(gradient * phi),
        gradient_squared=by_block(gradient**2),
    )

    def products(left: jax.Array, right: jax.Array) -> jax.Array:
        left, right = (part.reshape(num_blocks, -1, part.shape[1]) for part in (left, right))
        return jnp.einsum("bti,btj->bij", left, right)

    curvature = None
    if wanted.curvature:
        first_order = (blocks.count, blocks.phi, blocks.gradient, blocks.gradient_squared)
        curvature = CurvatureSums(*first_order, products(phi, phi), products(gradient, phi))
    everything = Sums(*(_added(part[None])[0] for part in (phi, query, noisy))) if wanted.everything else None
    return Totals(blocks, curvature, everything)


@partial(jax.jit, static_argnames="wanted")
def _all_totals(rows: Row, base: int, start: int, stop: int, wanted: Wanted) -> Totals:
    def totals(rows: Row) -> Totals:
        return _totals(rows, base, start, stop, wanted)

    return jax.vmap(totals)(rows) if wanted.lanes else totals(rows)


@partial(jax.jit, static_argnames="wanted")
def _no_totals(rows: Row, wanted: Wanted) -> Totals:
    """Zeros in the shape of the totals of ``rows``."""
    shapes = jax.eval_shape(partial(_all_totals, wanted=wanted), rows, 0, 0, 0)
    return jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), shapes)


_add = jax.jit(partial(jax.tree.map, jnp.add))


@partial(jax.jit, static_argnames="wanted", donate_argnums=0)
def _added_to(before: Totals, rows: Row, base: int, start: int, stop: int, wanted: Wanted) -> Totals:
    """``before`` with the totals of more rows, in its own memory: fresh memory for a network's sums takes longer."""
    return jax.tree.map(jnp.add, before, _all_totals(rows, base, start, stop, wanted))


@partial(jax.jit, static_argnames="thinning")
def _thin(rows: jax.Array, first: int, thinning: int) -> jax.Array:
    """Every ``thinning``-th row from ``first`` on; one program for every ``first``, so the last ones may be void."""
    index = first + thinning * jnp.arange(-(-rows.shape[-2] // thinning))
    return jnp.take(rows, index, axis=-2, mode="clip")


def _sent(tree: Any) -> Any:
    """The same arrays, on their way to the host."""
    for leaf in jax.tree.leaves(tree):
        leaf.copy_to_host_async()
    return tree


def _motionless(totals: Totals) -> Totals:
    """The same sums without what is about iterates that move."""
    blocks, curvature = jax.tree.map(jnp.zeros_like, (totals.blocks, totals.curvature))
    return totals._replace(blocks=blocks, curvature=curvature)


class _Groups:
    """Curvature sums on the host, over as many blocks at a time as it takes to stay within a memory bound."""

    def __init__(self, num_blocks: int, num_lanes: int, numbers_per_block: int) -> None:
        self.sums: Any = None
        self._num_lanes = num_lanes
        num_bytes = 8 * numbers_per_block * num_blocks * num_lanes
        self._blocks_per_group = max(1, -(-num_bytes // _MAX_CURVATURE_BYTES))
        self.num_groups = -(-num_blocks // self._blocks_per_group)

    def add(self, part: Any, first_block: int, size: int) -> None:
        """Add ``size`` blocks of ``part``, the first of which is ``first_block`` of the run."""
        if self.sums is None:
            shapes = [(self._num_lanes, self.num_groups, *leaf.shape[2:]) for leaf in part]
            self.sums = type(part)(*map(np.zeros, shapes))
        for offset in range(size):
            group = (first_block + offset) // self._blocks_per_group
            for store, leaf in zip(self.sums, part, strict=True):
                store[:, group] += leaf[:, offset]


def _shaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``array``, once it is known to have that shape: one that only fits by repetition would be taken, too."""
    if array.shape != shape or array.dtype.kind != "f":
        raise ValueError(f"an array has shape {array.shape} instead of {shape}")
    return np.array(array)


class Recorder:
    """Collects chunks in order; :meth:`traces` gives one trace per lane."""

    def __init__(self, layout: Layout, sizes: Sizes, dtype: Any, lanes: int | None, for_driver: bool = True) -> None:
        """``lanes`` is None for a single run, whose arrays have no lane axis; a driver is given the totals of rows."""
        self.layout = layout
        self.lanes = lanes
        self._sizes = sizes
        self.num_lanes = num_lanes = lanes or 1
        stored = sum(sizes.rows) * np.dtype(dtype).itemsize * layout.num_kept * num_lanes
        most = _MAX_ROW_BYTES if sizes.parameters < 4 * KEPT_PARAMETERS else _NETWORK_ROW_BYTES
        self._thinning = max(1, -(-stored // most))  # one row in so many is stored
        num_rows = -(-layout.num_kept // self._thinning)
        names = ("iterates", "queries", "noisy_sums")
        self._rows = {
            name: np.zeros((num_lanes, num_rows, size), dtype) for name, size in zip(names, sizes.rows, strict=True)
        }
        self._clip_norms = np.zeros((num_lanes, layout.num_steps), dtype) if sizes.counts else None
        self._wanted = Wanted(
            blocks_per_window=layout.blocks_per_window,
            curvature=sizes.release == sizes.parameters <= MAX_CURVATURE_DIMENSION,
            everything=for_driver,
            lanes=lanes is not None,
            row_length=layout.row_length,
        )
        self._curvature = _Groups(layout.num_blocks, num_lanes, 2 * sizes.parameters**2)
        self._blocks: BlockSums | None = None
        self._open: Totals | None = None  # sums of blocks that still grow
        self._open_block = 0
        self._waiting: dict[int, Row] = {}  # rows of a window's chunks that are not added up yet
        self._began: int | None = None  # the first step of these
        # what reaches the host is put away by a thread of its own, so that the device is given work meanwhile
        self._thread = ThreadPoolExecutor(1, "dpvi-record")
        self._storing: list[Future[None]] = []

    def record(self, rows: Row, chunk: int, start: int, stop: int, moving: bool, ends: bool) -> Sums | None:
        """Take the rows of steps ``start`` to ``stop`` of ``chunk``; leaves are ([lane,] row, size) on the device.

        Sums are made where a window ends, or a stretch, which ``ends`` says: both are public. Returns those for a
        driver.
        """
        base = chunk * self.layout.chunk_length
        step = base + stop
        if self._clip_norms is not None:  # of every step: a number each, without which noise has no scale
            self._clip_norms[:, base + start : step] = np.asarray(rows.clip_norm)[..., start:stop]
        self._began = base + start if self._began is None else self._began
        if self.layout.keeps(chunk):
            self._send_rows(rows, base, start, stop)
            self._waiting[chunk] = rows._replace(clip_norm=None)
        sums = None
        if ends or step % self.layout.window_length == 0 or step == self.layout.num_steps:
            sums = self._sum_window(step, moving)
        block_ends = step % max(self.layout.block_length, self.layout.window_length) == 0
        if block_ends or step == self.layout.num_steps:
            assert self._open is not None, "a block without a step that is added up"
            self._aside(self._store_sums, _sent(self._open), self._open_block)
            self._open, self._open_block = None, self._open_block + self.layout.blocks_per_window
        return sums

    def settled(self, step: int) -> dict[str, np.ndarray]:
        """All that was recorded of the first ``step`` steps, on the host; sums of every window up to there are made."""
        assert not self._waiting, "a run stands still only where a window or a stretch ends"
        self._wait()
        num_rows = self._num_rows(step)
        arrays = {name: store[:, :num_rows] for name, store in self._rows.items()}
        if self._clip_norms is not None:
            arrays["clip_norms"] = self._clip_norms[:, :step]
        parts = {"blocks": self._blocks, "curvature": self._curvature.sums}
        if self._open is not None:
            # copies: the next window is added in the memory of these
            parts |= {f"open_{name}": part for name, part in self._open._asdict().items()}
        arrays["open_block"] = np.array(self._open_block)
        for name, part in parts.items():
            arrays |= {} if part is None else {f"{name}.{key}": np.array(leaf) for key, leaf in part._asdict().items()}
        return arrays

    def restore(self, step: int, arrays: dict[str, np.ndarray]) -> None:
        """Stand where a recorder of the same run stood when it gave ``arrays``.

        Raises
        ------
        ValueError, KeyError
            Where these are not the arrays of such a run.
        """
        num_rows = self._num_rows(step)
        for name, store in self._rows.items():
            store[:, :num_rows] = _shaped(arrays[name], store[:, :num_rows].shape)
        if self._clip_norms is not None:
            self._clip_norms[:, :step] = _shaped(arrays["clip_norms"], self._clip_norms[:, :step].shape)

        def part(name: str, kind: Any, *leading: int) -> Any:
            if f"{name}.{kind._fields[0]}" not in arrays:
                return None
            tails = ((*leading, *self._tail(kind, key)) for key in kind._fields)
            return kind(
                *(_shaped(arrays[f"{name}.{key}"], tail) for key, tail in zip(kind._fields, tails, strict=True))
            )

        self._blocks = part("blocks", BlockSums, self.num_lanes, self.layout.num_blocks)
        self._curvature.sums = part("curvature", CurvatureSums, self.num_lanes, self._curvature.num_groups)
        self._open_block = int(arrays["open_block"])
        if "open_blocks.count" in arrays:
            blocks = self.layout.blocks_per_window
            found = Totals(
                part("open_blocks", BlockSums, blocks),
                part("open_curvature", CurvatureSums, blocks),
                part("open_everything", Sums),
            )
            with jax.enable_x64(True):
                self._open = jax.tree.map(jnp.array, found)
        lost = step > 0 and self._blocks is None and self._open is None
        if lost or not 0 <= self._open_block <= self.layout.num_blocks + self.layout.blocks_per_window:
            raise ValueError("its sums are not those of such a run")

    def _num_rows(self, step: int) -> int:
        """How many rows of the first ``step`` steps are stored."""
        return -(-step // (self.layout.stride * self._thinning))

    def _tail(self, kind: type, key: str) -> tuple[int, ...]:
        """The shape of one entry of sums of that ``kind`` and name."""
        if key in ("count", "time", "time_squared"):
            return ()
        if kind is Sums:
            return (self._sizes.rows[Sums._fields.index(key)],)
        matrix = kind is CurvatureSums and key in ("phi_phi", "gradient_phi")
        return (self._sizes.parameters,) * (2 if matrix else 1)

    def _wait(self) -> None:
        for storing in self._storing:
            storing.result()
        self._storing.clear()

    def _sum_window(self, step: int, moving: bool) -> Sums | None:
        """Add up what waits of a window, up to ``step``: rows of all its chunks, zeros where one has none here."""
        waiting, began = self._waiting, self._began
        self._waiting, self._began = {}, None
        if not waiting:
            return None
        assert began is not None
        layout = self.layout
        base = (step - 1) // layout.window_length * layout.window_length
        first = base // layout.chunk_length
        empty: Row = jax.tree.map(jnp.zeros_like, next(iter(waiting.values())))
        kept = [chunk for chunk in range(first, first + layout.chunks_per_window) if layout.keeps(chunk)]
        rows = _joined([waiting.get(chunk, empty) for chunk in kept])
        return self._sum(rows, base, began - base, step - base, moving)

    def _aside(self, store: Callable[..., None], *arguments: Any) -> None:
        self._storing.append(self._thread.submit(store, *arguments))

    def _sum(self, rows: Row, base: int, start: int, stop: int, moving: bool) -> Sums | None:
        arguments = (rows, base, start, stop, self._wanted)
        with jax.enable_x64(True):
            if not self._wanted.everything:
                self._open = _added_to(self._open or _no_totals(rows, self._wanted), *arguments)
                return None
            totals = _all_totals(*arguments)
            kept = totals if moving else _motionless(totals)
            self._open = kept if self._open is None else _add(self._open, kept)
        return totals.everything

    def _send_rows(self, rows: Row, base: int, start: int, stop: int) -> None:
        """Start moving rows to the host, thinned so that a large model's do not all cross."""
        before, length = base // self.layout.stride, self.layout.group_length  # rows kept before this chunk
        first, last = start // length, -(-stop // length)
        first += -(before + first) % self._thinning
        if first >= last:
            return
        target, count = (before + first) // self._thinning, len(range(first, last, self._thinning))
        parts = [rows.iterate, rows.query, rows.noisy_sum]
        if self._thinning > 1:
            parts, first = [_thin(part, first, self._thinning) for part in parts], 0
        self._aside(self._store_rows, slice(target, target + count), slice(first, first + count), _sent(parts))

    def _store_rows(self, target: slice, source: slice, parts: Sequence[jax.Array]) -> None:
        """Put rows ``source`` of each of ``parts`` to rows ``target`` of all that are kept."""
        for store, part in zip(self._rows.values(), parts, strict=True):
            store[:, target] = np.asarray(part)[..., source, :]

    def _store_sums(self, totals: Totals, first_block: int) -> None:
        """Keep the sums of finished blocks, the first of which is ``first_block`` of the run."""
        num_blocks = self.layout.num_blocks
        blocks = self._on_host(totals.blocks)
        if self._blocks is None:
            self._blocks = BlockSums(*(np.zeros((self.num_lanes, num_blocks, *part.shape[2:])) for part in blocks))
        size = min(self.layout.blocks_per_window, num_blocks - first_block)
        for store, part in zip(self._blocks, blocks, strict=True):
            store[:, first_block : first_block + size] = part[:, :size]
        if totals.curvature is not None:
            self._curvature.add(self._on_host(totals.curvature), first_block, size)

    def _on_host(self, sums: Any) -> Any:
        """Device sums as NumPy arrays with a lane axis."""
        return jax.tree.map(lambda part: np.asarray(part) if self.lanes else np.asarray(part)[None], sums)

    def traces(self, final: np.ndarray, segments: Sequence[Segments | None] | None = None) -> list[Trace]:
        """One trace per lane; ``final`` is (lane, p), ``segments`` one per lane."""
        assert self._open is None, "the run is not complete"
        self._wait()
        assert self._blocks is not None, "nothing was recorded"
        thinning = self._thinning * self.layout.stride
        steps = np.arange(self._rows["iterates"].shape[1], dtype=np.int64) * thinning

        def lane(part: Any, index: int) -> Any:
            return None if part is None else type(part)(*(leaf[index] for leaf in part))

        return [
            Trace(
                steps=steps,
                **{name: store[index] for name, store in self._rows.items()},
                final=final[index],
                thinning=thinning,
                block_length=self.layout.block_length,
                blocks=lane(self._blocks, index),
                segments=None if segments is None else segments[index],
                curvature=lane(self._curvature.sums, index),
                clip_norms=None if self._clip_norms is None else self._clip_norms[index],
            )
            for index in range(self.num_lanes)
        ]
