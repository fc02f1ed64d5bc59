"""Mapped arrays: which bytes are a row, and files that are not what they were."""

from __future__ import annotations

import os

import numpy as np
import pytest

from dpvi.records.sources.base import RowSource, SourceError
from dpvi.records.sources.mapped import MappedSource, raw_array

ROWS = np.arange(60, dtype=np.float32).reshape(20, 3)


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    return tmp_path / "x.npy"


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x[5:],
        lambda x: x[3:17][2:],
        lambda x: x[::2],
        lambda x: x[1::3],
        lambda x: x[:, 1],
        lambda x: x[4:5],
    ],
    ids=["whole", "tail", "slice of a slice", "every second", "every third", "one column", "one row"],
)
def test_rows_of_any_view_are_its_own(path, view):
    array = view(np.load(path, mmap_mode="r"))
    rows = np.array([0, 1, 2, 5])[: len(array)]
    np.testing.assert_array_equal(raw_array(array).take(rows), np.asarray(array)[rows])


def test_raw_files_with_an_offset(tmp_path):
    (tmp_path / "raw.bin").write_bytes(b"head" * 3 + ROWS.tobytes())
    array = np.memmap(tmp_path / "raw.bin", np.float32, "r", offset=12, shape=(20, 3))
    np.testing.assert_array_equal(raw_array(array[7:]).take(np.array([0, 4])), ROWS[[7, 11]])


def test_leaves_in_memory_stay_there(path):
    source = MappedSource((np.load(path, mmap_mode="r"), np.arange(20)))
    assert isinstance(source, RowSource)
    x, y = source.take(np.array([3, 4, 19]))
    np.testing.assert_array_equal(x, ROWS[[3, 4, 19]])
    np.testing.assert_array_equal(y, [3, 4, 19])


def test_reads_that_return_less_are_taken_up_again(path, monkeypatch):
    """Linux reads at most 2 GiB at a time, and file systems over a network may return less than asked for."""
    array, pread = raw_array(np.load(path, mmap_mode="r")), os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, offset: pread(file, min(length, 7), offset))
    rows = np.array([0, 1, 2, 9, 18, 19])
    np.testing.assert_array_equal(array.take(rows), ROWS[rows])
    monkeypatch.setattr(os, "pread", lambda file, length, offset: pread(file, length, offset) if offset < 200 else b"")
    with pytest.raises(SourceError, match=r"x\.npy ends before its last row"):
        array.take(rows)


@pytest.mark.parametrize("size", [200, 500], ids=["shorter", "longer"])
def test_a_file_that_changes_length_is_named(path, size):
    array = raw_array(np.load(path, mmap_mode="r"))
    array.take(np.array([19]))
    os.truncate(path, size)
    with pytest.raises(SourceError, match=r"x\.npy was changed after it was opened"):
        array.take(np.array([0]))


def test_a_file_that_is_replaced_is_named(path):
    source = MappedSource(np.load(path, mmap_mode="r"))
    source.check_unchanged()
    np.save(path.with_name("other.npy"), ROWS + 1)
    os.replace(path.with_name("other.npy"), path)
    with pytest.raises(SourceError, match=r"x\.npy was changed"):
        source.check_unchanged()


@pytest.mark.parametrize(
    "other",
    [ROWS[:10], ROWS.view(np.int32), np.asfortranarray(ROWS), ROWS.reshape(10, 6)],
    ids=["other length", "other dtype", "other order", "other shape"],
)
def test_a_file_replaced_between_mapping_and_fit_is_not_read_as_the_old_one(path, other):
    array = np.load(path, mmap_mode="r")[4:]
    np.save(path.with_name("other.npy"), other)
    os.replace(path.with_name("other.npy"), path)
    with pytest.raises(SourceError, match=r"x\.npy is another file than the one that was mapped"):
        raw_array(array)


def test_a_file_that_grew_after_it_was_mapped_keeps_its_rows(tmp_path):
    path = tmp_path / "raw.bin"
    path.write_bytes(b"head" * 3 + ROWS.tobytes())
    array = np.memmap(path, np.float32, "r", offset=12, shape=(20, 3))
    with path.open("ab") as file:
        file.write(b"more")
    np.testing.assert_array_equal(raw_array(array).take(np.array([19])), ROWS[[19]])


def test_a_file_that_is_exchanged_while_it_is_opened_is_named(path, monkeypatch):
    array, opened = raw_array(np.load(path, mmap_mode="r")), os.open

    def exchanged(*arguments):
        np.save(path.with_name("other.npy"), ROWS + 1)
        os.replace(path.with_name("other.npy"), path)
        return opened(*arguments)

    monkeypatch.setattr(os, "open", exchanged)
    with pytest.raises(SourceError, match=r"x\.npy was changed"):
        array.take(np.array([0]))


def test_a_file_written_to_while_it_is_read_is_named(path, monkeypatch):
    array, pread = raw_array(np.load(path, mmap_mode="r")), os.pread

    def written(file, length, offset):
        with path.open("r+b") as other:
            other.truncate(path.stat().st_size - 1)
        return pread(file, length, offset)

    monkeypatch.setattr(os, "pread", written)
    with pytest.raises(SourceError, match=r"x\.npy was changed"):
        array.take(np.array([0]))


def test_a_file_whose_time_is_set_back_is_named(path):
    """As tools that copy times with contents do."""
    array, before = raw_array(np.load(path, mmap_mode="r")), path.stat()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # until the next tick of the file system's clock
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(SourceError, match=r"x\.npy was changed"):
        array.take(np.array([0]))


def test_a_file_that_vanishes_is_named(path):
    array = raw_array(np.load(path, mmap_mode="r"))
    path.unlink()
    with pytest.raises(SourceError, match=r"x\.npy cannot be read: No such file"):
        array.take(np.array([0]))


def test_what_cannot_be_read_row_by_row_is_refused(path, tmp_path):
    np.save(tmp_path / "fortran.npy", np.asfortranarray(ROWS))
    with pytest.raises(SourceError, match=r"fortran\.npy must hold one record after the other"):
        raw_array(np.load(tmp_path / "fortran.npy", mmap_mode="r"))
    with pytest.raises(SourceError, match=r"x\.npy is mapped copy-on-write"):
        raw_array(np.load(path, mmap_mode="c"))
    with pytest.raises(SourceError, match=r"x\.npy must hold one record after the other"):
        raw_array(np.load(path, mmap_mode="r")[::-1])


def test_whole_numbers_that_do_not_fit_are_refused_where_they_are_read(tmp_path):
    np.save(tmp_path / "y.npy", np.array([1, 2, 3_000_000_000]))
    array = raw_array(np.load(tmp_path / "y.npy", mmap_mode="r"))
    np.testing.assert_array_equal(array.take(np.array([0, 1])), [1, 2])
    with pytest.raises(SourceError, match=r"y\.npy holds whole numbers that do not fit into 32 bits") as caught:
        array.take(np.array([1, 2]))
    assert "3000000000" not in str(caught.value)
