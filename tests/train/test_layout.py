"""How steps are cut into chunks and blocks: a public matter, whatever the records."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpvi.train import chunk
from dpvi.train.chunk import USUAL_BLOCKS, make_layout
from dpvi.train.loop import _pieces

STEPS = st.integers(1, 10**7)
BYTES = st.integers(0, 2**40)


@given(num_steps=STEPS, some_bytes=BYTES, other_bytes=BYTES, drawn_bytes=BYTES)
def test_block_length_depends_on_the_number_of_steps_only(num_steps, some_bytes, other_bytes, drawn_bytes):
    drawn = make_layout(num_steps, other_bytes, drawn_bytes=drawn_bytes)
    assert make_layout(num_steps, some_bytes).block_length == drawn.block_length


@given(num_steps=STEPS, bytes_per_step=BYTES)
@example(num_steps=1, bytes_per_step=1)
@example(num_steps=99, bytes_per_step=1)
@example(num_steps=100, bytes_per_step=2**30)
@example(num_steps=10**7, bytes_per_step=1)
def test_there_are_at_least_a_hundred_blocks_where_there_are_that_many_steps(num_steps, bytes_per_step):
    layout = make_layout(num_steps, bytes_per_step)
    assert layout.num_blocks >= min(num_steps, USUAL_BLOCKS)
    assert layout.num_blocks <= 4 * USUAL_BLOCKS
    assert (layout.num_blocks - 1) * layout.block_length < num_steps <= layout.num_blocks * layout.block_length


@given(num_steps=STEPS, bytes_per_step=BYTES)
def test_chunks_tile_blocks_or_blocks_tile_chunks(num_steps, bytes_per_step):
    layout = make_layout(num_steps, bytes_per_step)
    longer, shorter = sorted((layout.chunk_length, layout.block_length), reverse=True)
    assert longer % shorter == 0
    assert layout.blocks_per_chunk == max(1, layout.chunk_length // layout.block_length)


@given(num_steps=STEPS, bytes_per_step=BYTES, drawn_bytes=BYTES)
def test_a_chunk_stays_within_its_memory_and_its_randomness_within_a_cache(num_steps, bytes_per_step, drawn_bytes):
    layout = make_layout(num_steps, bytes_per_step, drawn_bytes=drawn_bytes)
    # an odd block of three steps is not cut further
    assert layout.chunk_length <= 3 or layout.chunk_length * bytes_per_step <= chunk._CHUNK_BYTES
    assert layout.chunk_length <= 3 or layout.chunk_length * drawn_bytes <= chunk._DRAWN_BYTES
    assert layout.chunk_length <= chunk._MAX_CHUNK


@given(num_steps=st.integers(1, 5000), bytes_per_step=st.integers(2**12, 2**26), cuts=st.lists(st.integers(1, 900)))
def test_pieces_cover_every_stretch_once(num_steps, bytes_per_step, cuts):
    layout = make_layout(num_steps, bytes_per_step)
    covered, start = [], 0
    for length in [*cuts, num_steps]:
        stop = min(start + length, num_steps)
        for index, first, last in _pieces(layout, start, stop):
            assert 0 <= first < last <= layout.chunk_length
            covered.extend(range(index * layout.chunk_length + first, index * layout.chunk_length + last))
        start = stop
    assert covered == list(range(num_steps))


@pytest.mark.parametrize(
    ("length", "expected"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 4), (6, 6), (7, 6), (11, 8), (12, 12)]
)
def test_block_lengths_can_be_halved(length, expected):
    assert chunk._round_down(length) == expected
