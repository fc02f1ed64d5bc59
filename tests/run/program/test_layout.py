"""How steps are cut into chunks and blocks: a public matter, whatever the records."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpvi.run.program import chunk
from dpvi.run.program.chunk import USUAL_BLOCKS, Layout, StepBytes
from dpvi.run.program.loop import _pieces

STEPS = st.integers(1, 10**7)
BYTES = st.integers(0, 2**40)


def make_layout(num_steps: int, bytes_per_step: int, drawn_bytes: int = 0, public: int = 0) -> Layout:
    """With rows and noise of ``public`` bytes, and ``bytes_per_step`` that follow from the number of records."""
    return chunk.make_layout(num_steps, StepBytes(public, public + bytes_per_step, 0, drawn_bytes, 0))


@given(num_steps=STEPS, public=BYTES, bytes_per_step=BYTES, drawn_bytes=BYTES)
def test_only_the_length_of_chunks_depends_on_the_number_of_records(num_steps, public, bytes_per_step, drawn_bytes):
    """Blocks, windows and what is kept must not: sums of windows are released, to the last bit."""
    few, many = make_layout(num_steps, 0, 0, public), make_layout(num_steps, bytes_per_step, drawn_bytes, public)
    assert few._replace(chunk_length=0) == many._replace(chunk_length=0)
    assert many.chunk_length <= few.chunk_length == few.window_length


@given(num_steps=STEPS, bytes_per_step=BYTES, public=BYTES)
@example(num_steps=1, bytes_per_step=1, public=0)
@example(num_steps=99, bytes_per_step=1, public=0)
@example(num_steps=100, bytes_per_step=2**30, public=0)
@example(num_steps=10**7, bytes_per_step=1, public=0)
def test_there_are_at_least_a_hundred_blocks_where_there_are_that_many_steps(num_steps, bytes_per_step, public):
    layout = make_layout(num_steps, bytes_per_step, public=public)
    assert layout.num_blocks >= min(num_steps, USUAL_BLOCKS)
    assert layout.num_blocks <= 4 * USUAL_BLOCKS
    assert (layout.num_blocks - 1) * layout.block_length < num_steps <= layout.num_blocks * layout.block_length


@given(num_steps=STEPS, bytes_per_step=BYTES, public=BYTES)
def test_chunks_tile_windows_and_windows_and_blocks_tile_each_other(num_steps, bytes_per_step, public):
    layout = make_layout(num_steps, bytes_per_step, public=public)
    assert layout.window_length % layout.chunk_length == 0
    assert layout.chunks_per_window == layout.window_length // layout.chunk_length
    for length in (layout.window_length, layout.chunk_length):
        longer, shorter = sorted((length, layout.block_length), reverse=True)
        assert longer % shorter == 0
    assert layout.blocks_per_window == max(1, layout.window_length // layout.block_length)


@given(num_steps=STEPS, bytes_per_step=BYTES, drawn_bytes=BYTES)
def test_a_chunk_stays_within_its_memory_and_its_randomness_within_a_cache(num_steps, bytes_per_step, drawn_bytes):
    layout = make_layout(num_steps, bytes_per_step, drawn_bytes=drawn_bytes)
    # an odd block of three steps is not cut further
    assert layout.chunk_length <= 3 or layout.chunk_length * bytes_per_step <= chunk._CHUNK_BYTES
    assert layout.chunk_length <= 3 or layout.chunk_length * drawn_bytes <= chunk._DRAWN_BYTES
    assert layout.chunk_length <= layout.window_length <= chunk._MAX_CHUNK


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
