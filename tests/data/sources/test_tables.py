"""Parquet and Arrow files: groups, matrices of columns, and what is wrong with a file."""

from __future__ import annotations

import numpy as np
import pytest

from dpvi.data.sources import SourceError, open_arrow, open_parquet

arrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

A, B, Y = np.arange(20) + 0.5, np.arange(20, dtype=np.int32), np.arange(20) % 2 == 0
COLUMNS = {"x": ["a", "b"], "y": "y"}


def table(rows=slice(None), **changes):
    columns = {"a": A[rows], "b": B[rows], "y": Y[rows], "note": ["text"] * len(A[rows])}
    return arrow.table({name: column for name, column in {**columns, **changes}.items() if column is not None})


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(content, path, row_group_size=3)
    else:
        feather.write_feather(content, path, chunksize=3)
    return path


@pytest.fixture(params=[(open_parquet, ".parquet"), (open_arrow, ".arrow")], ids=["parquet", "arrow"])
def kind(request):
    return request.param


def test_files_are_one_table(kind, tmp_path):
    open_table, ending = kind
    write(tmp_path / f"a{ending}", table(slice(0, 11)))
    write(tmp_path / f"b{ending}", table(slice(11, 20)))
    source = open_table(tmp_path, COLUMNS)
    assert source.num_records == 20
    assert source.shapes["x"].shape == (20, 2)
    assert source.shapes["y"].dtype == bool
    for rows in (np.array([0, 2, 3, 10, 11, 19]), np.array([12]), np.arange(20), np.array([], np.int64)):
        taken = source.take(rows)
        np.testing.assert_array_equal(taken["x"], np.stack([A[rows], B[rows]], axis=1))
        np.testing.assert_array_equal(taken["y"], Y[rows])


def test_lists_of_fixed_length_are_matrices(kind, tmp_path):
    open_table, ending = kind
    matrix = arrow.FixedSizeListArray.from_arrays(arrow.array(np.arange(40.0)), 2)
    path = write(tmp_path / f"a{ending}", arrow.table({"x": matrix}))
    np.testing.assert_array_equal(open_table(path).take(np.array([1, 7]))["x"], [[2, 3], [14, 15]])


def test_what_is_wrong_is_named(kind, tmp_path):
    open_table, ending = kind
    path = write(tmp_path / f"a{ending}", table())
    with pytest.raises(SourceError, match=rf"a\{ending} holds column 'note' as string"):
        open_table(tmp_path)
    with pytest.raises(SourceError, match=rf"a\{ending} has no column 'age'"):
        open_table(tmp_path, {"x": "age"})
    write(tmp_path / f"b{ending}", table(b=None))
    with pytest.raises(SourceError, match=rf"b\{ending} has no column 'b'"):
        open_table(tmp_path, COLUMNS)
    write(tmp_path / f"b{ending}", table(y=B.astype(np.int64)))
    with pytest.raises(SourceError, match=rf"b\{ending} holds column 'y' as int64"):
        open_table(tmp_path, COLUMNS)
    path.write_bytes(b"not a table")
    with pytest.raises(SourceError, match=rf"a\{ending} has rows that cannot be read"):
        open_table(tmp_path, COLUMNS)
    with pytest.raises(SourceError, match=r"holds no"):
        open_table(_empty(tmp_path), COLUMNS)


def _empty(folder):
    (folder / "empty").mkdir()
    return folder / "empty"


def test_missing_values_are_nan_or_named(kind, tmp_path):
    open_table, ending = kind
    holes = arrow.array([None if value == 4.5 else value for value in A.tolist()])
    source = open_table(write(tmp_path / f"a{ending}", table(a=holes)), {"a": "a"})
    assert np.isnan(source.take(np.array([4]))["a"]).all()
    whole = arrow.array([None if value == 4 else value for value in B.tolist()], arrow.int32())
    source = open_table(write(tmp_path / f"b{ending}", table(b=whole)), {"b": "b"})
    source.take(np.array([3]))
    with pytest.raises(SourceError, match=rf"b\{ending} has missing values in column 'b'"):
        source.take(np.array([4]))


def test_a_file_that_changes_or_breaks_is_named(kind, tmp_path):
    open_table, ending = kind
    path = write(tmp_path / f"a{ending}", table())
    source = open_table(path, COLUMNS)
    write(path, table(slice(0, 10)))
    with pytest.raises(SourceError, match=rf"a\{ending} was changed"):
        source.take(np.array([0]))
    with pytest.raises(SourceError, match=rf"a\{ending} was changed"):
        source.check_unchanged()
