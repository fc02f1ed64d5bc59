"""Parquet and Arrow files: groups, matrices of columns, and what is wrong with a file."""

from __future__ import annotations

import io
import os
import traceback

import numpy as np
import pytest

from dpvi.records.sources import SourceError, open_arrow, open_parquet, tables

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


@pytest.fixture
def folder(kind, tmp_path):
    """Two files that belong together, in two folders."""
    _, ending = kind
    write(tmp_path / "2020" / f"part-0{ending}", table(slice(0, 11)))
    write(tmp_path / "2021" / f"part-0{ending}", table(slice(11, 20)))
    return tmp_path


@pytest.mark.parametrize(
    "link",
    [
        lambda folder, end: (folder / f"latest{end}").symlink_to(folder / "2021" / f"part-0{end}"),
        lambda folder, end: (folder / f"backup{end}").hardlink_to(folder / "2021" / f"part-0{end}"),
        lambda folder, _: (folder / "latest").symlink_to(folder / "2021"),
        lambda folder, _: (folder / "2021" / "above").symlink_to(folder),
    ],
    ids=["link to a file", "hard link", "link to a folder", "link to a folder above"],
)
def test_no_file_counts_twice(kind, folder, link):
    open_table, ending = kind
    assert open_table(folder, COLUMNS).num_records == 20
    link(folder, ending)
    with pytest.raises(
        SourceError, match=r"\S+ and \S+/2021\S* are the same on disk|2021\S* and \S+ are the same"
    ) as caught:
        open_table(folder, COLUMNS)
    assert "count twice" in str(caught.value)


def test_links_to_elsewhere_are_followed(kind, folder, tmp_path_factory):
    open_table, ending = kind
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere / f"part-0{ending}", table(slice(0, 3)))
    (folder / "2022").symlink_to(elsewhere)
    assert open_table(folder, COLUMNS).num_records == 23
    (folder / f"gone{ending}").symlink_to(elsewhere / "nothing")
    with pytest.raises(SourceError, match=rf"gone\{ending} cannot be read: No such file"):
        open_table(folder, COLUMNS)


def test_the_function_and_not_the_name_decides_the_format(kind, tmp_path):
    open_table, ending = kind
    path = write(tmp_path / f"a{ending}", table()).rename(tmp_path / "people.pq")
    assert open_table(path, COLUMNS).num_records == 20


def test_endings_in_upper_case_and_folders_with_an_ending(kind, tmp_path):
    open_table, ending = kind
    write(tmp_path / f"a{ending}", table(slice(0, 11)))
    write(tmp_path / f"2021{ending}" / f"b{ending}", table(slice(11, 15)))
    write(tmp_path / f"c{ending}", table(slice(15, 20))).rename(tmp_path / f"c{ending.upper()}")
    np.testing.assert_array_equal(
        open_table(tmp_path, {"b": "b"}).take(np.arange(20))["b"], [*B[11:15], *B[:11], *B[15:]]
    )


@pytest.mark.parametrize("hidden", ["_temporary", ".ipynb_checkpoints"])
def test_unfinished_and_hidden_files_are_passed_over(kind, folder, hidden):
    open_table, ending = kind
    write(folder / hidden / f"part-0{ending}", table())
    write(folder / "2021" / f"{hidden}{ending}", table())
    assert open_table(folder, COLUMNS).num_records == 20
    assert open_table(folder / hidden, COLUMNS).num_records == 20, "a folder that is given itself is read"


def test_whole_numbers_that_do_not_fit_are_named(kind, tmp_path):
    open_table, ending = kind
    path = write(tmp_path / f"a{ending}", table(b=B.astype(np.int64) * 10**9))
    source = open_table(path, {"b": "b"})
    np.testing.assert_array_equal(source.take(np.array([0, 2]))["b"], [0, 2 * 10**9])
    with pytest.raises(SourceError, match=rf"a\{ending}, column 'b', holds whole numbers that do not fit") as caught:
        source.take(np.array([3]))
    assert "3000000000" not in str(caught.value)
    np.testing.assert_array_equal(open_table(path, COLUMNS).take(np.array([3]))["x"], [[3.5, 3e9]])


def test_columns_of_one_name_are_refused(kind, tmp_path):
    open_table, ending = kind
    twice = arrow.table([A, B, B], names=["a", "b", "b"])
    path = write(tmp_path / f"a{ending}", twice)
    assert open_table(path, {"a": "a"}).num_records == 20
    for columns in (None, {"b": "b"}, {"x": ["a", "b"]}):
        with pytest.raises(SourceError, match=rf"a\{ending} has two columns 'b'"):
            open_table(path, columns)


@pytest.mark.parametrize(
    "other",
    [table(b=None), table(b=["secret"] * 20), table(slice(0, 5)), table(b=B + 1)],
    ids=["without a column", "with text", "with fewer rows", "with other values"],
)
def test_a_file_that_is_exchanged_while_it_is_opened_is_named(kind, tmp_path, monkeypatch, other):
    open_table, ending = kind
    path = write(tmp_path / f"a{ending}", table())
    source = open_table(path, COLUMNS)
    opened = tables.open_file

    def exchanged(*arguments):
        os.replace(write(tmp_path / "other" / f"a{ending}", other), path)
        return opened(*arguments)

    monkeypatch.setattr(tables, "open_file", exchanged)
    with pytest.raises(SourceError, match=rf"a\{ending} was changed") as caught:
        source.take(np.array([1, 18]))
    assert "secret" not in "".join(traceback.format_exception(caught.value))


class Counted(io.FileIO):
    """A file that counts the bytes that were read from it."""

    total = 0

    def read(self, size=-1):
        found = super().read(size)
        Counted.total += len(found)
        return found


@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
def test_columns_that_nobody_wants_are_not_read(tmp_path, monkeypatch, compression):
    monkeypatch.setattr(arrow, "OSFile", lambda path: arrow.PythonFile(Counted(path), mode="r"))
    wide = {f"a{index}": np.random.default_rng(index).normal(size=3000) for index in range(20)}
    feather.write_feather(
        arrow.table({**wide, "y": np.arange(3000) % 2 == 0}),
        tmp_path / "a.arrow",
        compression=compression,
        chunksize=1000,
    )
    size = (tmp_path / "a.arrow").stat().st_size
    monkeypatch.setattr(Counted, "total", 0)
    source = open_arrow(tmp_path / "a.arrow", {"x": ["a3", "a1"], "y": "y"})
    assert source.num_records == 3000
    assert 0 < Counted.total < size / 10, "batches have their lengths from one column of bits"
    rows = np.array([0, 999, 1000, 2999])
    found = source.take(rows)
    np.testing.assert_array_equal(found["x"], np.stack([wide["a3"][rows], wide["a1"][rows]], axis=1))
    np.testing.assert_array_equal(found["y"], [True, False, True, False])
    assert size / 20 < Counted.total < size / 5, "two columns and a bit of twenty"
