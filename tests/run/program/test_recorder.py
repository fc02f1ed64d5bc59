"""The recorder against plain NumPy sums over all rows, with and without thinning, in any pieces."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.small_models import block_sums

from dpvi.release.trace import CurvatureSums, Trace
from dpvi.run.program import chunk, recorder
from dpvi.run.program.chunk import Layout, StepBytes, make_layout
from dpvi.run.program.loop import _pieces
from dpvi.run.program.recorder import Recorder
from dpvi.run.program.step import Row, Sizes

SIZES = Row(iterate=4, query=2, noisy_sum=3, gradient=4)
ROW_BYTES = 4 * (SIZES.iterate + SIZES.query + SIZES.noisy_sum)
NUM_STEPS = (1, 7, 99, 100, 257, 1003)
WINDOW, CHUNK = 64, 16


def layout_of(num_steps: int, chunk_length: int, window_length: int, parameters: int = 1, **options) -> Layout:
    """Chunks and windows of at most so many steps."""
    public, drawn = 2**26 // window_length, 2**26 // chunk_length
    return make_layout(num_steps, StepBytes(public, drawn, 0, 0, 0), parameters, **options)


def small_chunks(num_steps: int) -> Layout:
    return layout_of(num_steps, CHUNK, WINDOW)


def random_rows(num_steps: int, lanes: int = 1) -> Row:
    random = np.random.default_rng(num_steps)
    return Row(*(random.normal(1.0, 2.0, (lanes, num_steps, size)).astype(np.float32) for size in SIZES[:4]))


def record(
    rows: Row,
    layout: Layout,
    stops: tuple[int, ...] = (),
    frozen: frozenset[int] = frozenset(),
    for_driver: bool = True,
) -> list[Trace]:
    """Feed ``rows`` as a run would: stretches end at ``stops``; those numbered in ``frozen`` do not move."""
    lanes = rows.iterate.shape[0]
    release = rows.noisy_sum.shape[2]
    sizes = Sizes(parameters=SIZES.iterate, queries=SIZES.query, release=release, base=SIZES.query)
    sizes = sizes._replace(counts=int(rows.clip_norm is not None))
    target = Recorder(layout, sizes, np.float32, lanes, for_driver)
    edges = [0, *stops, layout.num_steps]
    for stretch, (start, stop) in enumerate(itertools.pairwise(edges)):
        for number, first, last in _pieces(layout, start, stop):
            base, length = number * layout.chunk_length, layout.group_length
            begins = np.arange(first // length, -(-last // length)) * length

            def kept(part: np.ndarray, base=base, first=first, begins=begins, length=length) -> jax.Array:
                out = np.full((lanes, layout.rows_per_chunk, *part.shape[2:]), np.float32(7))
                out[:, first // length :][:, : len(begins)] = part[:, base + begins]
                return jnp.asarray(out)

            piece = jax.tree.map(kept, rows._replace(clip_norm=None))
            if rows.clip_norm is not None:
                norms = np.zeros((lanes, layout.chunk_length), np.float32)
                norms[:, first:last] = rows.clip_norm[:, base + first : base + last]
                piece = piece._replace(clip_norm=jnp.asarray(norms))
            target.record(piece, number, first, last, moving=stretch not in frozen, ends=base + last == stop)
    return target.traces(np.zeros((lanes, SIZES.iterate), np.float32))


def released_per_parameter(num_steps: int) -> Row:
    """Rows of a run that releases one number per variational parameter."""
    rows = random_rows(num_steps)
    return rows._replace(noisy_sum=rows.gradient + 1)


def assert_sums_equal(actual, expected):
    for name, one, other in zip(expected._fields, actual, expected, strict=True):
        assert one.dtype == np.float64
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.max(np.abs(other)), err_msg=name)


@pytest.mark.parametrize("num_steps", NUM_STEPS)
def test_block_sums_are_the_float64_sums_of_the_rows(num_steps):
    rows, layout = random_rows(num_steps), small_chunks(num_steps)
    (trace,) = record(rows, layout)
    expected = block_sums(rows.iterate[0], rows.gradient[0], layout.block_length, np.ones(num_steps, bool))
    assert_sums_equal(trace.blocks, expected)
    assert trace.blocks.count.sum() == num_steps
    np.testing.assert_array_equal(trace.iterates, rows.iterate[0])
    np.testing.assert_array_equal(trace.queries, rows.query[0])
    np.testing.assert_array_equal(trace.noisy_sums, rows.noisy_sum[0])
    np.testing.assert_array_equal(trace.steps, np.arange(num_steps))


@pytest.mark.parametrize("kept_rows", [10, 10_000])
def test_clip_norms_are_kept_of_every_step_thinned_or_not(monkeypatch, kept_rows):
    rows = random_rows(257, lanes=2)
    rows = rows._replace(clip_norm=np.random.default_rng(0).random((2, 257)).astype(np.float32))
    monkeypatch.setattr(recorder, "_MAX_ROW_BYTES", kept_rows * ROW_BYTES)
    for lane, trace in enumerate(record(rows, small_chunks(257), stops=(40, 100))):
        np.testing.assert_array_equal(trace.clip_norms, rows.clip_norm[lane])
    assert record(random_rows(7), small_chunks(7))[0].clip_norms is None


@pytest.mark.parametrize("num_steps", [7, 257, 1003])
def test_a_chunk_inside_a_block_gives_the_same_sums(num_steps):
    rows = random_rows(num_steps)
    block_length = small_chunks(num_steps).block_length * 4
    half = max(1, block_length // 2)
    (trace,) = record(rows, Layout(num_steps, half, half, block_length))
    assert_sums_equal(
        trace.blocks, block_sums(rows.iterate[0], rows.gradient[0], block_length, np.ones(num_steps, bool))
    )


@pytest.mark.parametrize("kept_rows", [1, 10, 50])
@pytest.mark.parametrize("num_steps", [7, 257, 1003])
def test_thinning_keeps_every_kth_row_and_all_sums(monkeypatch, num_steps, kept_rows):
    rows, layout = random_rows(num_steps), small_chunks(num_steps)
    (whole,) = record(rows, layout)
    monkeypatch.setattr(recorder, "_MAX_ROW_BYTES", kept_rows * ROW_BYTES)
    (thinned,) = record(rows, layout)
    assert thinned.thinning == -(-num_steps // kept_rows)
    assert len(thinned.steps) <= kept_rows
    assert thinned.iterates.nbytes + thinned.queries.nbytes + thinned.noisy_sums.nbytes <= kept_rows * ROW_BYTES
    np.testing.assert_array_equal(thinned.steps, np.arange(0, num_steps, thinned.thinning))
    for name in ("iterates", "queries", "noisy_sums"):
        np.testing.assert_array_equal(getattr(thinned, name), getattr(whole, name)[:: thinned.thinning], err_msg=name)
    assert_sums_equal(thinned.blocks, whole.blocks)


@pytest.mark.parametrize("thinned", [False, True])
@pytest.mark.parametrize("num_steps", [7, 257])
def test_curvature_sums_are_the_products_of_moving_rows(monkeypatch, num_steps, thinned):
    rows, layout = released_per_parameter(num_steps), small_chunks(num_steps)
    if thinned:
        monkeypatch.setattr(recorder, "_MAX_ROW_BYTES", 5 * ROW_BYTES)
    stops = (2, 5)
    (trace,) = record(rows, layout, stops, frozen=frozenset({1}))
    moving = np.ones(num_steps, bool)
    moving[2:5] = False
    phi, gradient = (moving[:, None] * part[0].astype(np.float64) for part in (rows.iterate, rows.gradient))

    def by_block(values):
        return np.stack([values[i : i + layout.block_length].sum(0) for i in range(0, num_steps, layout.block_length)])

    expected = CurvatureSums(
        count=by_block(moving.astype(np.float64)),
        phi=by_block(phi),
        gradient=by_block(gradient),
        gradient_squared=by_block(gradient**2),
        phi_phi=by_block(phi[:, :, None] * phi[:, None, :]),
        gradient_phi=by_block(gradient[:, :, None] * phi[:, None, :]),
    )
    assert_sums_equal(trace.curvature, expected)


def test_curvature_sums_are_kept_only_where_a_method_can_use_them(monkeypatch):
    """Not of releases that are not one number per parameter, and not of very many parameters."""
    assert record(random_rows(7), small_chunks(7))[0].curvature is None
    assert record(released_per_parameter(7), small_chunks(7))[0].curvature is not None
    monkeypatch.setattr(recorder, "MAX_CURVATURE_DIMENSION", 3)
    assert record(released_per_parameter(7), small_chunks(7))[0].curvature is None


def test_curvature_sums_are_grouped_when_blocks_would_not_fit(monkeypatch):
    rows, layout = released_per_parameter(257), small_chunks(257)
    fine = record(rows, layout)[0].curvature
    monkeypatch.setattr(recorder, "_MAX_CURVATURE_BYTES", 8 * 2 * 16 * 20)
    coarse = record(rows, layout)[0].curvature
    assert len(coarse.count) <= 20 < len(fine.count)
    for one, other in zip(coarse, fine, strict=True):
        np.testing.assert_allclose(one.sum(0), other.sum(0), rtol=1e-12)


@pytest.mark.parametrize("stops", [(1, 2), (15, 16, 17), (5, 48, 200, 201)])
def test_pieces_of_any_length_give_the_same_trace(stops):
    num_steps = 257
    rows, layout = random_rows(num_steps), small_chunks(num_steps)
    (whole,), (pieces,) = record(rows, layout), record(rows, layout, stops)
    assert_sums_equal(pieces.blocks, whole.blocks)
    np.testing.assert_array_equal(pieces.iterates, whole.iterates)


@pytest.mark.parametrize(("num_steps", "parameters"), [(257, 1), (1003, 1), (1203, SIZES.iterate)])
@pytest.mark.parametrize("stops", [(), (5, 48, 200, 201)])
def test_the_length_of_chunks_does_not_show_in_the_last_digit(monkeypatch, num_steps, parameters, stops):
    """It may follow from the private number of records, and sums are released as they are."""
    if parameters > 1:
        monkeypatch.setattr(chunk, "KEPT_PARAMETERS", 1)
        stops = ()
    rows = random_rows(num_steps)
    layouts = [layout_of(num_steps, length, 300, parameters) for length in (1000, 50, 12, 2)]
    assert len({layout.chunk_length for layout in layouts}) > 2
    whole, *others = (record(rows, layout, stops, for_driver=parameters == 1)[0] for layout in layouts)
    for other in others:
        for name, one, two in zip(whole.blocks._fields, other.blocks, whole.blocks, strict=True):
            np.testing.assert_array_equal(one, two, err_msg=name)
    by_chunks = layouts[-1]._replace(window_length=layouts[-1].chunk_length)  # the wrong answer: sums chunk by chunk
    wrong = record(rows, by_chunks, stops, for_driver=parameters == 1)[0]
    if by_chunks.chunk_length < by_chunks.block_length:
        assert any(np.any(one != two) for one, two in zip(wrong.blocks, whole.blocks, strict=True))


def test_frozen_steps_are_in_the_rows_but_not_in_the_blocks():
    num_steps, stops = 257, (30, 75)
    rows, layout = random_rows(num_steps), small_chunks(num_steps)
    (trace,) = record(rows, layout, stops, frozen=frozenset({1}))
    counted = np.ones(num_steps, bool)
    counted[30:75] = False
    assert_sums_equal(trace.blocks, block_sums(rows.iterate[0], rows.gradient[0], layout.block_length, counted))
    np.testing.assert_array_equal(trace.iterates, rows.iterate[0])


def test_lanes_are_recorded_side_by_side():
    num_steps = 99
    rows, layout = random_rows(num_steps, lanes=3), small_chunks(num_steps)
    for lane, trace in enumerate(record(rows, layout)):
        np.testing.assert_array_equal(trace.noisy_sums, rows.noisy_sum[lane])
        expected = block_sums(rows.iterate[lane], rows.gradient[lane], layout.block_length, np.ones(num_steps, bool))
        assert_sums_equal(trace.blocks, expected)


@pytest.mark.parametrize(
    ("num_steps", "kept", "stride"),
    [(1024, 1, 4), (1024, 2, 2), (1103, 1, 4), (1101, 1, 4), (1103, 2, 2), (1203, 1, 3)],
)
@pytest.mark.parametrize("length", [2, 3, 6, 16, 600])
def test_traces_of_large_models_leave_steps_out(monkeypatch, num_steps, kept, stride, length):
    """Whatever a chunk's length, which follows from the private number of records: the same steps are kept."""
    monkeypatch.setattr(chunk, "KEPT_PARAMETERS", kept)
    rows, layout = random_rows(num_steps), layout_of(num_steps, length, 600, SIZES.iterate)
    assert layout.stride == stride
    (trace,) = record(rows, layout, for_driver=False)
    steps = np.arange(0, num_steps, stride)
    expected = block_sums(rows.iterate[0], rows.gradient[0], layout.block_length, np.arange(num_steps) % stride == 0)
    assert_sums_equal(trace.blocks, expected)
    assert np.all(trace.blocks.count > 0)
    np.testing.assert_array_equal(trace.steps, steps)
    np.testing.assert_array_equal(trace.noisy_sums, rows.noisy_sum[0][steps])


@pytest.mark.parametrize("kept_rows", [1, 10, 50])
@pytest.mark.parametrize("length", [2, 600])
def test_kept_steps_are_thinned_like_others(monkeypatch, kept_rows, length):
    monkeypatch.setattr(chunk, "KEPT_PARAMETERS", 1)
    num_steps = 1203
    rows, layout = random_rows(num_steps), layout_of(num_steps, length, 600, SIZES.iterate)
    monkeypatch.setattr(recorder, "_MAX_ROW_BYTES", kept_rows * ROW_BYTES)
    (trace,) = record(rows, layout, for_driver=False)
    assert len(trace.steps) <= kept_rows
    np.testing.assert_array_equal(trace.steps, np.arange(0, num_steps, trace.thinning))
    np.testing.assert_array_equal(trace.iterates, rows.iterate[0][trace.steps])


@pytest.mark.parametrize(("num_steps", "stride"), [(7, 1), (30, 3), (63, 6), (5000, 32), (6200, 24)])
@pytest.mark.parametrize("bytes_per_step", [1, 2**20, 2**26])
def test_a_short_run_of_a_network_keeps_several_steps(num_steps, stride, bytes_per_step):
    size = StepBytes(1, bytes_per_step, 0, 0, 0)
    layout = make_layout(num_steps, size, 40 * chunk.KEPT_PARAMETERS)
    assert layout.stride == stride
    assert layout.num_kept >= min(num_steps, chunk._FEWEST_KEPT)
    assert layout.num_blocks >= chunk._FEWEST_BLOCKS
    assert make_layout(num_steps, size, 40 * chunk.KEPT_PARAMETERS, keep_all=True).stride == 1
