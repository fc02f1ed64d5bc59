"""Many steps in one compiled loop, and how steps are laid out over chunks and blocks.

A chunk is what runs between two looks at the host: its randomness is drawn ahead, its rows stay on the device. A
block is what the trace sums over. Sums are made window by window: chunks tile windows, and windows tile blocks or
blocks tile windows, so sums over blocks are plain reshapes.

Of most models every step has a row. Of networks one step in several has: iterates next to each other are nearly the
same, and writing down and adding up all of them would take longer than the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from dpvi.mechanism.rng import Streams
from dpvi.records.sharding import Records
from dpvi.run.program.draws import Draws, later_pass
from dpvi.run.program.lanes import in_parts, on_host
from dpvi.run.program.room import make_room, put_together
from dpvi.run.program.step import Algorithm, Noise, Row, State, private_step, sizes_of

USUAL_BLOCKS = 100  # at least, where there are that many steps; networks have fewer
_CHUNK_BYTES = 2**26
_DRAWN_BYTES = 2**23  # randomness that outgrows a processor's cache takes several times as long to draw
_BATCH_BYTES = 2**18  # of lanes side by side, for one that no cache holds is read from memory at every operation
_ACCELERATOR_CHUNK_BYTES = 2**31  # where starting a program costs more than the memory it may use
_FEWEST_BLOCKS, _BLOCK_BYTES = 4, 2**27
_BYTES_PER_PARAMETER = 8 * 6  # of a block: the float64 sums of BlockSums that have an entry per parameter
_MAX_CHUNK = 1024
KEPT_PARAMETERS = 2**14  # how many, on average, a step writes down: of networks, one step in several
_FEWEST_KEPT = 8  # steps of a run, however many parameters there are


class Layout(NamedTuple):
    """How ``num_steps`` steps are cut.

    One step in ``stride`` is kept, the first one of every so many. A chunk has a row for each of its groups of
    ``group_length`` steps, which holds their first. Sums are made over whole windows, whose length depends on the plan
    and the model alone: how many steps fit into a chunk may depend on the number of records, and must not show, not
    even in the order in which numbers are added.
    """

    num_steps: int
    chunk_length: int
    window_length: int
    block_length: int
    stride: int = 1

    @property
    def num_chunks(self) -> int:
        return -(-self.num_steps // self.chunk_length)

    @property
    def num_blocks(self) -> int:
        return -(-self.num_steps // self.block_length)

    @property
    def chunks_per_window(self) -> int:
        return self.window_length // self.chunk_length

    @property
    def blocks_per_window(self) -> int:
        """Blocks that a window covers whole, or 1 when it lies inside one."""
        return max(1, self.window_length // self.block_length)

    @property
    def group_length(self) -> int:
        return min(self.stride, self.chunk_length)

    @property
    def rows_per_chunk(self) -> int:
        return self.chunk_length // self.group_length

    @property
    def row_length(self) -> int:
        """Steps between two rows of a window."""
        return min(self.stride, self.window_length)

    @property
    def num_kept(self) -> int:
        """Steps of the run that are kept."""
        return -(-self.num_steps // self.stride)

    def keeps(self, chunk: int) -> bool:
        """Whether rows of ``chunk`` are kept: of several chunks within a stride, those of the first one are."""
        return chunk * self.chunk_length % self.stride == 0


class _Carry(NamedTuple):
    """What goes from step to step within a group."""

    state: State
    released: tuple[jax.Array, ...]  # query, noisy sum and gradient of the group's first step
    clip_norms: jax.Array | None  # of all steps of the chunk, where they adapt
    room: Any  # where a step's batch is put together


class Ran(NamedTuple):
    """What a chunk gives back: the state after it and its rows."""

    state: State
    rows: Row


def longest_chunk(bytes_per_step: int, drawn_bytes: int = 0) -> int:
    """Most steps of a chunk, within a bound on its memory and, on the host, on the randomness that is drawn for it.

    ``bytes_per_step`` counts what is read from disk and all lanes, ``drawn_bytes`` the randomness of one lane alone.
    """
    if not on_host():
        return max(1, min(_MAX_CHUNK, _ACCELERATOR_CHUNK_BYTES // max(bytes_per_step, 1)))
    return max(1, min(_MAX_CHUNK, _CHUNK_BYTES // max(bytes_per_step, 1), _DRAWN_BYTES // max(drawn_bytes, 1)))


class StepBytes(NamedTuple):
    """Memory of one step: what everybody may know, and with what follows from the number of records."""

    public: int  # noise
    drawn: int  # noise, positions, and batches that are read from disk
    public_randomness: int  # of one lane, while it is made
    randomness: int
    row: int  # of a step that is kept


def make_layout(num_steps: int, size: StepBytes, num_parameters: int = 1, keep_all: bool = False) -> Layout:
    """At least 100 blocks where there are that many steps, and chunks that stay within a memory bound.

    Models with very many parameters have fewer blocks, so that their sums stay within a bound, too. Windows, blocks and
    stride depend on the plan and the model alone. Chunks are whole windows, or parts of them where the number of
    records asks for it. Blocks of 2·2ʲ or 3·2ʲ steps can be halved into windows and chunks, and as often into groups of
    a stride.
    """
    blocks = min(USUAL_BLOCKS, max(_FEWEST_BLOCKS, _BLOCK_BYTES // (_BYTES_PER_PARAMETER * num_parameters)))
    block = _round_down(max(1, num_steps // blocks))
    longest = 1 if keep_all else min(num_parameters // KEPT_PARAMETERS, num_steps // _FEWEST_KEPT)
    stride = halved if (halved := _halved(block, longest)) <= longest else 1
    kept = size.row // stride
    window = _window(num_steps, block, longest_chunk(size.public + kept, size.public_randomness))
    return Layout(
        num_steps, _part_of(window, block, longest_chunk(size.drawn + kept, size.randomness)), window, block, stride
    )


def _window(num_steps: int, block: int, most: int) -> int:
    """Whole blocks, or a part of one, of at most ``most`` steps."""
    if block > most:
        return _halved(block, most)
    # windows of equal length, so that little of what the last one draws goes unused
    num_windows = -(-num_steps // (most // block * block))
    return -(-num_steps // (num_windows * block)) * block


def _part_of(window: int, block: int, most: int) -> int:
    """``window``, or an equal part of it, of at most ``most`` steps."""
    if window <= most:
        return window
    if window > block and block <= most:
        return max(n * block for n in range(1, window // block + 1) if window // block % n == 0 and n * block <= most)
    return _halved(min(window, block), most)


def _halved(length: int, most: int) -> int:
    """``length``, halved until it is at most ``most``, or odd."""
    while length > most and length % 2 == 0:
        length //= 2
    return length


def _round_down(length: int) -> int:
    """The largest number of the form 2·2ʲ or 3·2ʲ that is at most ``length``."""
    power = 1 << (length.bit_length() - 1)
    return power + power // 2 if length >= power + power // 2 else power


def make_chunk(algorithm: Algorithm, layout: Layout, careful: bool, alone: bool = True) -> Callable[..., Ran]:
    """A function that runs steps ``start`` to ``stop`` of a chunk whose first step is ``base``.

    ``start`` is the first step of a group, and ``stop`` the end of one if it is known while compiling. Only with
    ``careful`` does the function have code for draws that outgrow the physical batch. Nearly no chunk has one, and
    without that code chunks run faster and compile in half the time. Not ``alone``, it is one of several lanes, whose
    batches are put together for all of them.
    """
    length = layout.group_length

    def run(
        state: State,
        records: Records,
        streams: Streams,
        draws: Draws,
        noise: Noise,
        base: jax.Array,
        query: jax.Array | None,
        start: jax.Array | int,
        stop: jax.Array | int,
    ) -> Ran:
        def one(first: jax.Array, j: jax.Array | int, carry: _Carry) -> _Carry:
            """Step j of the group that begins with ``first``."""
            i = first + j
            drawn = jax.tree.map(partial(jax.lax.dynamic_index_in_dim, index=i, keepdims=False), draws)
            room = carry.room
            if room is not None:
                room, batch = put_together(room, records.rows, drawn.positions, i)
                drawn = drawn._replace(batch=batch)
            more = partial(later_pass, algorithm.sampler, streams.sampling, (base + i).astype(jnp.uint32))
            state, row = private_step(algorithm, records, carry.state, drawn, noise, more if careful else None, query)
            clip_norms = carry.clip_norms
            if clip_norms is not None:
                clip_norms = _put(clip_norms, jnp.asarray(row.clip_norm), i)
            released = row[1:4]
            if length > 1:
                released = tuple(map(partial(jnp.where, j == 0), released, carry.released))
            return _Carry(state, released, clip_norms, room)

        def group(number: jax.Array, before: tuple[Ran, Any]) -> tuple[Ran, Any]:
            ran, room = before
            steps = partial(one, number * length)
            count = length if isinstance(stop, int) else jnp.minimum(length, stop - number * length)
            begun = _Carry(ran.state, _empty_rows(algorithm, (), dtype)[1:4], ran.rows.clip_norm, room)
            after = steps(0, begun) if length == 1 else jax.lax.fori_loop(0, count, steps, begun)
            rows = map(partial(_put, index=number), ran.rows[:4], (ran.state.xi, *after.released))
            return Ran(after.state, Row(*rows, clip_norm=after.clip_norms)), after.room

        dtype = state.xi.dtype
        rows = _empty_rows(algorithm, (layout.rows_per_chunk,), dtype)
        if algorithm.adaptive is not None:
            rows = rows._replace(clip_norm=jnp.zeros(layout.chunk_length, dtype))
        begun = Ran(state, rows), make_room(algorithm, records.rows) if alone else None
        return jax.lax.fori_loop(start // length, -(-stop // length), group, begun)[0]

    return run


def _put(rows: jax.Array, row: jax.Array, index: jax.Array) -> jax.Array:
    """``rows`` with ``row`` at ``index``, which is inside: the checks of ``rows.at[index]`` cost a tenth of a step."""
    return jax.lax.dynamic_update_index_in_dim(rows, row, index, axis=0)


def side_by_side(chunk: Callable[..., Ran], algorithm: Algorithm, same_records: bool = False) -> Callable[..., Ran]:
    """The chunk of :func:`make_chunk` for several runs; ``base``, ``start`` and ``stop`` are the same for all lanes.

    With ``same_records`` so are records, which then have no axis of lanes: all lanes read one copy.
    """
    own_records: Any = Records(None if same_records else 0, cast(Any, None))
    abreast = jax.vmap(chunk, (0, own_records, 0, 0, None, None, 0, None, None))

    def run(
        state: State, records: Records, streams: Streams, draws: Draws, noise: Noise, base: Any, query: Any, *ends: Any
    ) -> Ran:
        def part(state: State, streams: Streams, draws: Draws, query: Any, own: Any) -> Ran:
            held = records if same_records else records._replace(rows=own)
            return abreast(state, held, streams, draws, noise, base, query, *ends)

        axes = 1 if same_records else 2  # of lanes and records
        of_record = sum(leaf.dtype.itemsize * math.prod(leaf.shape[axes:]) for leaf in jax.tree.leaves(records.rows))
        of_release = 4 * state.xi.dtype.itemsize * sizes_of(algorithm).release  # formed, squared, scaled and added
        bytes_per_lane = algorithm.slots * (of_record + of_release)
        lanes = (state, streams, draws, query, None if same_records else records.rows)
        return in_parts(part, lanes, bytes_per_lane, _BATCH_BYTES)

    return run


def _empty_rows(algorithm: Algorithm, shape: tuple[int, ...], dtype: jnp.dtype) -> Row:
    sizes = sizes_of(algorithm)
    widths = (sizes.parameters, sizes.queries, sizes.release, sizes.parameters)
    return Row(*(jnp.zeros((*shape, width), dtype) for width in widths))
