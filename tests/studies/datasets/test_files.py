from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from studies.datasets.files import DataFile, cache_folder, fetch, locate, read_bytes

CONTENT = b"1,2,3\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def served(tmp_path: Path) -> str:
    """An address that serves CONTENT, without a network."""
    source = tmp_path / "served" / "numbers.data"
    source.parent.mkdir()
    source.write_bytes(CONTENT)
    return source.as_uri()


def numbers(url: str | None = None, sha256: str | None = DIGEST) -> DataFile:
    return DataFile("numbers", ("numbers.data", "numbers.csv"), "a friend", url, sha256)


def put(folder: Path, name: str, content: bytes = CONTENT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


def test_nothing_is_downloaded_unless_asked(no_data: Path, served: str):
    with pytest.raises(FileNotFoundError, match="download=True"):
        locate(numbers(served))
    assert not no_data.exists()


def test_download_lands_in_the_cache_and_is_found_there(no_data: Path, served: str):
    found = locate(numbers(served), download=True)
    assert found == no_data / "numbers" / "numbers.data"
    assert found.read_bytes() == CONTENT
    assert locate(numbers("file:///nowhere/numbers.data")) == found  # not fetched again


def test_another_file_is_refused_and_leaves_nothing_behind(no_data: Path, served: str):
    with pytest.raises(ValueError, match="not the file this loader knows"):
        locate(numbers(served, "0" * 64), download=True)
    assert list((no_data / "numbers").iterdir()) == []


def test_a_broken_connection_leaves_nothing_behind(tmp_path: Path):
    with pytest.raises(OSError):
        fetch((tmp_path / "absent").as_uri(), DIGEST, tmp_path / "cache" / "numbers.data")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_cache_is_refused(no_data: Path, served: str):
    put(no_data / "numbers", "numbers.data", CONTENT + b"4\n")
    with pytest.raises(ValueError, match="remove it from the cache"):
        locate(numbers(served))


def test_without_a_checksum_there_is_no_download(no_data: Path, served: str):
    with pytest.raises(FileNotFoundError, match="get them from a friend"):
        locate(numbers(served, None), download=True)


def test_path_may_be_the_file_or_its_folder_and_nothing_else_is_tried(
    no_data: Path, tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch
):
    file = put(tmp_path / "mine", "numbers.csv")
    assert locate(numbers(), file) == file
    assert locate(numbers(), str(tmp_path / "mine")) == file
    monkeypatch.setenv("DPVI_DATA", str(tmp_path / "shared"))
    put(tmp_path / "shared" / "numbers", "numbers.data")
    with pytest.raises(FileNotFoundError, match="neither a file nor a folder that holds one of"):
        locate(numbers(served), tmp_path / "empty", download=True)


def test_the_data_folder_comes_before_the_cache(
    no_data: Path, tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch
):
    cached = locate(numbers(served), download=True)
    monkeypatch.setenv("DPVI_DATA", str(tmp_path / "shared"))
    assert locate(numbers(served)) == cached  # the folder does not hold it
    shared = put(tmp_path / "shared" / "numbers", "numbers.csv")
    assert locate(numbers(served)) == shared
    first = put(tmp_path / "shared" / "numbers", "numbers.data")
    assert locate(numbers(served)) == first  # names are tried in their order


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DPVI_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/dpvi")
    monkeypatch.setenv("DPVI_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path):
    assert read_bytes(put(tmp_path, "plain.gz")) == CONTENT
    assert read_bytes(put(tmp_path, "packed", gzip.compress(CONTENT))) == CONTENT
