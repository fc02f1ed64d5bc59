"""Records from disk: the iterates of records in memory, of no more rows than were drawn."""

from __future__ import annotations

import types

import jax
import numpy as np
import pytest
from support.small_models import histogram_plan, location_model, many_records, private_plan

import dpvi
from dpvi.models import from_functions
from dpvi.records.arrays import structure_of
from dpvi.records.sharding import Shards
from dpvi.records.sources import SourceError
from dpvi.records.sources.mapped import MappedSource
from dpvi.run import preparation
from dpvi.run.placement.feed import Feed

RECORDS = many_records(90).astype(np.float32)
PLAN = private_plan(30, 0.1)


class Counting:
    """A source that remembers what was read, and can fail or change on the way."""

    def __init__(self, rows: np.ndarray, fail_at: int | None = None, changed: bool = False) -> None:
        self.shapes = jax.ShapeDtypeStruct(rows.shape, rows.dtype)
        self.num_records = len(rows)
        self.read: list[np.ndarray] = []
        self._rows, self._fail_at, self._changed = rows, fail_at, changed

    def take(self, rows: np.ndarray) -> np.ndarray:
        if len(self.read) == self._fail_at:
            raise SourceError("records.bin has rows that cannot be read.")
        self.read.append(rows)
        return self._rows[rows]

    def check_unchanged(self) -> None:
        if self._changed:
            raise SourceError("records.bin was changed after it was opened.")


def fit(data, plan=PLAN, **options):
    return dpvi.fit(location_model(), data, plan, seed=1, progress=False, **options)


@pytest.fixture(scope="module")
def in_memory():
    return fit(RECORDS).trace


@pytest.fixture
def short_passes(monkeypatch):
    """Passes of four slots: nearly every step takes several."""
    monkeypatch.setattr(preparation, "_MAX_PASS_ELEMENTS", 8)


def assert_same(one, other):
    """Every bit of every sum; what other programs compute of these may round otherwise."""
    np.testing.assert_array_equal(one.noisy_sums, other.noisy_sums)
    np.testing.assert_allclose(one.iterates, other.iterates, rtol=1e-6, atol=1e-6)


def test_a_mapped_array_gives_the_iterates_of_one_in_memory(in_memory, tmp_path):
    np.save(tmp_path / "x.npy", RECORDS)
    assert_same(fit(np.load(tmp_path / "x.npy", mmap_mode="r")).trace, in_memory)


def test_only_rows_that_were_drawn_are_read(in_memory):
    source = Counting(RECORDS)
    result = fit(source, private_plan(2, 0.1))
    np.testing.assert_array_equal(result.trace.noisy_sums, in_memory.noisy_sums[:2])
    read = np.concatenate(source.read)
    assert 0 < len(read) < 45, "two steps at rate 0.1 draw about 18 of 90 records"
    assert len(np.unique(read)) == len(read), "a row that two steps draw is read once"


@pytest.mark.usefixtures("short_passes")
def test_further_passes_are_read_when_they_are_needed():
    source = Counting(RECORDS)
    assert_same(fit(source).trace, fit(RECORDS).trace)
    assert len(source.read) > 10


@pytest.mark.usefixtures("short_passes")
def test_windows_of_a_mesh_are_read_too():
    assert_same(fit(Counting(RECORDS), devices=jax.devices()[:1]).trace, fit(RECORDS).trace)


def test_every_process_counts_the_bytes_of_the_one_with_most_devices():
    here, there = (types.SimpleNamespace(process_index=process) for process in (0, 1))
    mesh = types.SimpleNamespace(devices=np.array([here, there, there]))
    feed = Feed(Counting(RECORDS), structure_of(RECORDS), None, mesh, Shards((0, 30, 60, 90), 5))
    assert feed.bytes_per_step == RECORDS[0].nbytes * 5 * 2


def test_a_source_that_fits_into_one_pass_is_loaded():
    source = Counting(RECORDS)
    plan = private_plan(4, 1.0)
    assert_same(fit(source, plan).trace, fit(RECORDS, plan).trace)
    assert len(source.read) == 1


def test_counting_records_reads_no_row():
    source = Counting(RECORDS)
    plan = histogram_plan((), num_steps=2)
    found = fit(source, plan).trace.histograms
    np.testing.assert_array_equal(found, fit(RECORDS, plan).trace.histograms)
    assert len(np.concatenate(source.read)) < 45, "two steps at rate 0.1 draw about 18 of 90 records"


def test_rows_that_cannot_be_read_end_the_run_with_the_source_s_sentence():
    with pytest.raises(SourceError, match=r"records\.bin has rows that cannot be read"):
        fit(Counting(RECORDS, fail_at=0))


@pytest.mark.parametrize("sampling_rate", [0.5, 1.0], ids=["drawn", "loaded"])
def test_whole_numbers_of_any_source_must_fit(sampling_rate):
    model = from_functions(lambda z: -0.5 * z @ z, lambda z, y: z[0] * y.astype(z.dtype), 1)
    with pytest.raises(ValueError, match="data holds whole numbers that do not fit into 32 bits"):
        dpvi.fit(model, Counting(np.full(90, 2**40)), private_plan(3, sampling_rate), progress=False)


@pytest.mark.usefixtures("short_passes")
def test_so_do_rows_of_further_passes():
    with pytest.raises(SourceError, match=r"records\.bin has rows that cannot be read"):
        fit(Counting(RECORDS, fail_at=5))


@pytest.mark.parametrize("sampling_rate", [0.1, 1.0], ids=["drawn", "loaded"])
def test_a_file_that_was_changed_during_the_run_leaves_no_result(sampling_rate):
    with pytest.raises(SourceError, match=r"records\.bin was changed"):
        fit(Counting(RECORDS, changed=True), private_plan(30, sampling_rate))


def test_histograms_walk_over_all_rows_once(tmp_path):
    np.save(tmp_path / "x.npy", RECORDS)
    source = MappedSource(np.load(tmp_path / "x.npy", mmap_mode="r"))
    from dpvi.records.sources.base import blocks

    np.testing.assert_array_equal(np.concatenate(list(blocks(source))), RECORDS)
