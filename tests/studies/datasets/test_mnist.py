from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from studies.datasets import fashion_mnist, mnist
from studies.datasets.mnist import read_idx


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    for part, size in (("train", 5), ("t10k", 2)):
        images, labels = rng.integers(0, 256, (size, 4, 3)), np.arange(size)
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path


def test_packed_and_plain_files_are_read(folder: Path):
    for load in (mnist, fashion_mnist):
        train, test = load(folder)
        assert (train.images.shape, test.images.shape) == ((5, 4, 3), (2, 4, 3))
        assert train.labels.tolist() == [0, 1, 2, 3, 4]
        assert train.images.dtype == np.uint8


def test_round_trip_keeps_every_pixel():
    array = np.random.default_rng(4).integers(0, 256, (3, 5, 7))
    np.testing.assert_array_equal(read_idx(idx(array)), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8b\x08\x00", "does not start with 0x000008"),
        (b"", "does not start with 0x000008"),
        (idx(np.arange(6).reshape(2, 3))[:-1], "more or fewer values"),
        (idx(np.arange(6).reshape(2, 3)) + b"\x00", "more or fewer values"),
        (bytes([0, 0, 8, 3, 0, 0]), "more or fewer values"),
    ],
)
def test_other_and_damaged_files_are_refused(content: bytes, message: str):
    with pytest.raises(ValueError, match=message):
        read_idx(content)


def test_labels_of_another_part_are_refused(folder: Path):
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(4)))
    with pytest.raises(ValueError, match="as many labels as images"):
        mnist(folder)


def test_real_digits_and_garments(real_data: Callable[[str], Path]):
    digits, garments = mnist(real_data("mnist")), fashion_mnist(real_data("fashion_mnist"))
    for train, test in (digits, garments):
        assert (train.images.shape, test.images.shape) == ((60000, 28, 28), (10000, 28, 28))
    counts = np.bincount(digits.train.labels)
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(garments.test.labels).tolist() == [1000] * 10
