"""Folders of .npy files, whole and in shards."""

from __future__ import annotations

import os

import numpy as np
import pytest

from dpvi.records.sources import SourceError, open_npy

X, Y = np.arange(30.0).reshape(10, 3), np.arange(10)


def write(folder, **arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


@pytest.fixture
def shards(tmp_path):
    write(tmp_path / "part-0", x=X[:6], y=Y[:6])
    write(tmp_path / "part-1", x=X[6:6], y=Y[6:6])
    write(tmp_path / "part-2", x=X[6:], y=Y[6:])
    return tmp_path


def test_shards_are_one_table(shards):
    source = open_npy(shards)
    assert source.num_records == 10
    assert source.shapes["x"].shape == (10, 3)
    for rows in (np.array([0, 5, 6, 9]), np.array([7]), np.arange(10), np.array([], np.int64)):
        taken = source.take(rows)
        np.testing.assert_array_equal(taken["x"], X[rows])
        np.testing.assert_array_equal(taken["y"], Y[rows])


def test_a_folder_without_shards(tmp_path):
    write(tmp_path, x=X, y=Y)
    np.testing.assert_array_equal(open_npy(tmp_path).take(np.array([8, 9]))["y"], [8, 9])


def test_what_is_wrong_is_named(shards):
    os.remove(shards / "part-2" / "y.npy")
    with pytest.raises(SourceError, match=r"part-2/y\.npy is missing"):
        open_npy(shards)
    write(shards / "part-2", y=Y[:2])
    with pytest.raises(SourceError, match=r"part-2: x\.npy, y\.npy must have the same number of rows"):
        open_npy(shards)
    write(shards / "part-2", y=Y[6:].astype(np.float32))
    with pytest.raises(SourceError, match=r"part-2/y\.npy holds rows of float32"):
        open_npy(shards)
    (shards / "part-2" / "y.npy").write_bytes(b"not an array")
    with pytest.raises(SourceError, match=r"part-2/y\.npy cannot be read as a \.npy file"):
        open_npy(shards)
    with pytest.raises(SourceError, match=r"nowhere must be a folder"):
        open_npy(shards / "nowhere")


@pytest.mark.parametrize(
    "content",
    [np.array(["secret"] * 10), np.zeros(10, [("a", "f4"), ("b", "i4")]), np.zeros(10, "M8[D]"), np.zeros(10, complex)],
    ids=["text", "structure", "dates", "complex"],
)
def test_what_is_no_number_is_named(tmp_path, content):
    write(tmp_path, x=X, y=content)
    with pytest.raises(SourceError, match=r"y\.npy must hold numbers or booleans, got dtype"):
        open_npy(tmp_path)


def test_an_archive_is_named(tmp_path):
    with (tmp_path / "x.npy").open("wb") as file:
        np.savez(file, x=X)
    with pytest.raises(SourceError, match=r"x\.npy is an archive of arrays"):
        open_npy(tmp_path)


def test_a_truncated_file_is_named(shards):
    os.truncate(shards / "part-0" / "x.npy", 200)
    with pytest.raises(SourceError, match=r"part-0/x\.npy"):
        open_npy(shards)


@pytest.mark.parametrize(
    "link",
    [
        lambda shards: (shards / "latest").symlink_to(shards / "part-2"),
        lambda shards: _linked(shards / "part-3", shards / "part-2"),
    ],
    ids=["link to a shard", "links to its files"],
)
def test_no_file_counts_twice(shards, link):
    assert open_npy(shards).num_records == 10
    link(shards)
    with pytest.raises(SourceError, match=r"part-2.* and .* are the same on disk .* count twice|latest and .*part-2"):
        open_npy(shards)


def _linked(folder, original):
    folder.mkdir()
    for file in original.iterdir():
        (folder / file.name).hardlink_to(file)


def test_one_file_may_serve_two_arguments(tmp_path):
    write(tmp_path, x=X)
    (tmp_path / "target.npy").symlink_to(tmp_path / "x.npy")
    source = open_npy(tmp_path)
    assert source.num_records == 10
    np.testing.assert_array_equal(source.take(np.array([4]))["target"], X[[4]])


def test_hidden_names_are_passed_over(shards):
    write(shards / "_temporary", x=X, y=Y)
    write(shards / ".ipynb_checkpoints", x=X)
    write(shards / "part-2", **{"._x": X[6:], "_y": Y[6:]})
    source = open_npy(shards)
    assert source.num_records == 10
    assert set(source.shapes) == {"x", "y"}


def test_files_beside_folders_with_files_are_refused(shards):
    (shards / "plots").mkdir()
    write(shards, x=X, y=Y)
    with pytest.raises(SourceError, match=r"holds \.npy files, and so does .*part-0"):
        open_npy(shards)


def test_endings_may_be_in_upper_case(tmp_path):
    write(tmp_path, x=X, y=Y)
    (tmp_path / "y.npy").rename(tmp_path / "y.NPY")
    np.testing.assert_array_equal(open_npy(tmp_path).take(np.array([8]))["y"], [8])
    write(tmp_path, y=Y)
    with pytest.raises(SourceError, match="two files for one argument"):
        open_npy(tmp_path)
