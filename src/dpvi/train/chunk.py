"""Many steps in one compiled loop, and how steps are laid out over chunks and blocks.

A chunk is what runs between two looks at the host: its randomness is drawn ahead, its rows stay on the device. A
block is what the trace sums over. Chunks tile blocks or blocks tile chunks, so block sums are plain reshapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpvi.mechanism.rng import Streams
from dpvi.train.draws import Draws, later_pass
from dpvi.train.lanes import in_parts, on_host
from dpvi.train.step import Algorithm, Row, State, private_step, sizes_of

USUAL_BLOCKS = 100  # at least, where there are that many steps; networks have fewer
_CHUNK_BYTES = 2**26
_DRAWN_BYTES = 2**23  # randomness that outgrows a processor's cache takes several times as long to draw
_BATCH_BYTES = 2**18  # of lanes side by side, for one that no cache holds is read from memory at every operation
_ACCELERATOR_CHUNK_BYTES = 2**31  # where starting a program costs more than the memory it may use
_FEWEST_BLOCKS, _BLOCK_BYTES = 4, 2**27
_BYTES_PER_PARAMETER = 8 * 6  # of a block: the float64 sums of BlockSums that have an entry per parameter
_MAX_CHUNK = 1024
SUMMED_PARAMETERS = 2**14  # how many, on average, a trace adds up at a step: of networks, one step in several


class Layout(NamedTuple):
    """How ``num_steps`` steps are cut."""

    num_steps: int
    chunk_length: int
    block_length: int

    @property
    def num_chunks(self) -> int:
        return -(-self.num_steps // self.chunk_length)

    @property
    def num_blocks(self) -> int:
        return -(-self.num_steps // self.block_length)

    @property
    def blocks_per_chunk(self) -> int:
        """Blocks that a chunk covers whole, or 1 when it lies inside one."""
        return max(1, self.chunk_length // self.block_length)


class Ran(NamedTuple):
    """What a chunk gives back: the state after it, its rows, and whether all that it released is finite."""

    state: State
    rows: Row
    finite: jax.Array


def longest_chunk(bytes_per_step: int, drawn_bytes: int = 0) -> int:
    """Most steps of a chunk, within a bound on its memory and, on the host, on the randomness that is drawn for it.

    ``bytes_per_step`` counts what is read from disk and all lanes, ``drawn_bytes`` the randomness of one lane alone.
    """
    if not on_host():
        return max(1, min(_MAX_CHUNK, _ACCELERATOR_CHUNK_BYTES // max(bytes_per_step, 1)))
    return max(1, min(_MAX_CHUNK, _CHUNK_BYTES // max(bytes_per_step, 1), _DRAWN_BYTES // max(drawn_bytes, 1)))


def make_layout(num_steps: int, bytes_per_step: int, num_parameters: int = 1, drawn_bytes: int = 0) -> Layout:
    """At least 100 blocks where there are that many steps, and chunks that stay within a memory bound.

    Models with very many parameters have fewer blocks, so that their sums stay within a bound, too, and long ones, so
    that each holds a step that is added up.

    The block length is part of the trace and therefore depends on the plan and the model alone; how many steps fit into
    a chunk may depend on the number of records, which must not show. Blocks of 2·2ʲ or 3·2ʲ steps can be halved into
    chunks.
    """
    target = longest_chunk(bytes_per_step, drawn_bytes)
    blocks = min(USUAL_BLOCKS, max(_FEWEST_BLOCKS, _BLOCK_BYTES // (_BYTES_PER_PARAMETER * num_parameters)))
    block = _round_down(max(1, num_steps // blocks, num_parameters // SUMMED_PARAMETERS))
    if block <= target:
        # chunks of equal length, so that little of what the last one draws goes unused
        num_chunks = -(-num_steps // (target // block * block))
        blocks_per_chunk = -(-num_steps // (num_chunks * block))
        return Layout(num_steps, blocks_per_chunk * block, block)
    chunk = block
    while chunk > target and chunk % 2 == 0:
        chunk //= 2
    return Layout(num_steps, chunk, block)


def _round_down(length: int) -> int:
    """The largest number of the form 2·2ʲ or 3·2ʲ that is at most ``length``."""
    power = 1 << (length.bit_length() - 1)
    return power + power // 2 if length >= power + power // 2 else power


def make_chunk(algorithm: Algorithm, layout: Layout, careful: bool) -> Callable[..., Ran]:
    """A function that runs rows ``start`` to ``stop`` of a chunk whose first step is ``base``.

    Only with ``careful`` does it have code for draws that outgrow the physical batch and for non-finite releases.
    Nearly all chunks have neither, and run faster and compile in half the time without.
    """

    def run(
        state: State,
        records: Any,
        streams: Streams,
        draws: Draws,
        base: jax.Array,
        query: jax.Array | None,
        start: jax.Array | int,
        stop: jax.Array | int,
    ) -> Ran:
        def one(i: jax.Array, carry: tuple[State, Row]) -> tuple[State, Row]:
            state, rows = carry
            # `i` is always inside, so no index is checked: the checks of `x[i]` and `x.at[i]` cost a tenth of a step
            drawn = jax.tree.map(partial(jax.lax.dynamic_index_in_dim, index=i, keepdims=False), draws)
            more = partial(later_pass, algorithm.sampler, streams.sampling, (base + i).astype(jnp.uint32))
            state, row = private_step(algorithm, records, state, drawn, more if careful else None, query)
            keep = partial(jax.lax.dynamic_update_index_in_dim, index=i, axis=0)
            return state, jax.tree.map(keep, rows, row)

        rows = _empty_rows(algorithm, layout.chunk_length, state.xi.dtype)
        state, rows = jax.lax.fori_loop(start, stop, one, (state, rows))
        return Ran(state, rows, jnp.all(jnp.isfinite(rows.noisy_sum)))

    return run


def side_by_side(chunk: Callable[..., Ran], algorithm: Algorithm) -> Callable[..., Ran]:
    """The chunk of :func:`make_chunk` for several runs; ``base``, ``start`` and ``stop`` are the same for all lanes."""
    abreast = jax.vmap(chunk, (0, 0, 0, 0, None, 0, None, None))

    def run(
        state: State, records: Any, streams: Streams, draws: Draws, base: Any, query: Any, start: Any, stop: Any
    ) -> Ran:
        def part(state: State, records: Any, streams: Streams, draws: Draws, query: Any) -> Ran:
            return abreast(state, records, streams, draws, base, query, start, stop)

        of_record = sum(leaf.dtype.itemsize * math.prod(leaf.shape[2:]) for leaf in jax.tree.leaves(records))
        of_release = 4 * state.xi.dtype.itemsize * sizes_of(algorithm).release  # formed, squared, scaled and added
        bytes_per_lane = algorithm.slots * (of_record + of_release)
        return in_parts(part, (state, records, streams, draws, query), bytes_per_lane, _BATCH_BYTES)

    return run


def _empty_rows(algorithm: Algorithm, length: int, dtype: jnp.dtype) -> Row:
    sizes = sizes_of(algorithm)
    widths = (sizes.parameters, sizes.queries, sizes.release, sizes.parameters)
    return Row(
        *(jnp.zeros((length, width), dtype) for width in widths),
        clip_norm=jnp.zeros(length, dtype) if sizes.counts else None,
    )
