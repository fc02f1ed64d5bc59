"""No record in two processes: the same rows are found whatever their file is called, and different ones are not."""

from __future__ import annotations

import shutil

import jax
import numpy as np
import pytest

from dpvi.records.sources import open_npy
from dpvi.records.sources.extents import Extent
from dpvi.records.sources.mapped import MappedSource
from dpvi.run.placement.shared_rows import claims_of, shared_claims

X = np.random.default_rng(1).normal(size=(60_000, 5))  # 2.4 MB, of which a file's digest reads blocks


def shared(*held):
    """Which processes share rows, if process k holds ``held[k]``."""
    parts = [[(part.digest, part.extent) for part in claims_of(each)] for each in held]
    return [(one[0], other[0]) for one, other in shared_claims(parts)]


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def folder_of(path, rows):
    path.mkdir(parents=True)
    np.save(path / "x.npy", X[rows])
    np.save(path / "year.npy", np.full(len(X[rows]), 2020))
    return path


def test_the_same_arrays_are_found_and_a_column_in_common_is_no_record_in_common():
    same_label = np.zeros(100)
    assert shared((X[:100], same_label), (X[100:200], same_label), (X[:100].copy(), same_label)) == [(0, 2)]
    last_differs = X[:100].copy()
    last_differs[-1, -1] += 1
    assert shared(X[:100], last_differs) == []
    assert shared(X[:100], X[:200:2]) == []


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (slice(None), slice(None), [(0, 1)]),
        (slice(0, 30_000), slice(30_000, None), []),
        (slice(0, 30_001), slice(30_000, None), [(0, 1)]),
        (slice(0, None, 2), slice(1, None, 2), []),
        (slice(0, None, 2), slice(0, None, 2), [(0, 1)]),
        (slice(0, None, 2), slice(0, None, 3), [(0, 1)]),
        (slice(0, None, 2), slice(5, 6), []),
        (slice(0, None, 2), slice(6, 7), [(0, 1)]),
    ],
)
def test_rows_of_one_file_may_be_divided_but_not_shared(mapped, first, second, expected):
    assert shared(MappedSource(mapped[first]), MappedSource(mapped[second])) == expected
    columns = [MappedSource((mapped[rows, :4], mapped[rows, 4])) for rows in (first, second)]
    assert shared(*columns) == expected


def test_a_copy_of_a_file_holds_its_records(mapped, tmp_path):
    shutil.copyfile(mapped.filename, tmp_path / "copy.npy")
    copy = np.load(tmp_path / "copy.npy", mmap_mode="r")
    assert shared(MappedSource(mapped), MappedSource(copy)) == [(0, 1)]
    np.save(tmp_path / "other.npy", X[::-1])
    other = np.load(tmp_path / "other.npy", mmap_mode="r")
    assert shared(MappedSource(mapped), MappedSource(other)) == []


def test_one_folder_of_several_in_common_is_found(tmp_path):
    sets = {
        "first": [slice(0, 40), slice(40, 80)],
        "second": [slice(40, 80), slice(80, 120)],
        "third": [slice(120, 160)],
    }
    for name, parts in sets.items():
        for number, rows in enumerate(parts):
            folder_of(tmp_path / name / str(number), rows)
    held = [open_npy(tmp_path / name) for name in sets]
    assert shared(*held) == [(0, 1)]
    assert shared(held[0], held[2]) == [], "a column that is the same in all of them says nothing"


def test_tables_are_told_apart_by_their_files(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    from dpvi.records.sources import open_parquet

    for name, rows in {"a": X[:50], "b": X[50:100]}.items():
        parquet.write_table(arrow.table({"x": rows[:, 0]}), tmp_path / f"{name}.parquet")
    both, one = open_parquet(tmp_path), open_parquet(tmp_path / "b.parquet")
    assert shared(both, one) == [(0, 1)]
    assert shared(open_parquet(tmp_path / "a.parquet"), one) == []


class Plain:
    """A source that cannot say which files it reads."""

    def __init__(self, rows):
        self.shapes = jax.ShapeDtypeStruct(rows.shape, rows.dtype)
        self.num_records = len(rows)
        self._rows = rows

    def take(self, rows):
        return self._rows[rows]

    def check_unchanged(self):
        pass


def test_of_other_sources_a_few_rows_are_compared():
    assert shared(Plain(X), Plain(X[:-1]), Plain(X.copy())) == [(0, 2)]


def test_what_holds_no_rows_shares_none():
    nothing, all_rows = Extent(0, 0, 0, 0), Extent(0, 8, 8, 10)
    assert list(shared_claims([[(b"same", nothing)], [(b"same", nothing)], [(b"same", all_rows)]])) == []
