"""MNIST digits and Fashion-MNIST garments: 70,000 images of 28 × 28 pixels each, in IDX files.

Y. LeCun, L. Bottou, Y. Bengio and P. Haffner (1998), Proceedings of the IEEE 86(11); H. Xiao, K. Rasul and R. Vollgraf
(2017), arXiv:1708.07747, MIT licence.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from studies.datasets.files import DataFile, locate, read_bytes

_UNSIGNED_BYTES = 0x08

_FILES = {
    "mnist": (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        {
            "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    "fashion_mnist": (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
}


class Images(NamedTuple):
    """Grey images and their classes."""

    images: np.ndarray  # (n, 28, 28), uint8
    labels: np.ndarray  # (n,), uint8


class ImageSplit(NamedTuple):
    """The published parts."""

    train: Images
    test: Images


def mnist(path: str | Path | None = None, *, download: bool = False) -> ImageSplit:
    """Handwritten digits, 60,000 for training and 10,000 for testing.

    Parameters
    ----------
    path
        A folder with the four IDX files, gzipped or not. Without it see :func:`~studies.datasets.files.locate`.
    download
        Whether to fetch what is not found into the cache.
    """
    return _load("mnist", path, download)


def fashion_mnist(path: str | Path | None = None, *, download: bool = False) -> ImageSplit:
    """Garments of ten kinds, 60,000 for training and 10,000 for testing; parameters as for :func:`mnist`."""
    return _load("fashion_mnist", path, download)


def read_idx(content: bytes) -> np.ndarray:
    """An array of unsigned bytes from an IDX file: magic number, big-endian sizes, values.

    Examples
    --------
    >>> read_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 9])).tolist()
    [[7, 9]]
    """
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTES]):
        raise ValueError("This is not an IDX file of unsigned bytes: it does not start with 0x000008.")
    num_axes = content[3]
    start = 4 + 4 * num_axes
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    if len(content) - start != math.prod(shape):
        raise ValueError("The IDX file holds more or fewer values than its sizes say; it may have been cut short.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _load(name: str, path: str | Path | None, download: bool) -> ImageSplit:
    address, digests = _FILES[name]

    def read(stem: str) -> np.ndarray:
        packed = f"{stem}.gz"
        file = DataFile(name, (packed, stem), address, address + packed, digests[stem])
        return read_idx(read_bytes(locate(file, path, download)))

    parts = (Images(read(f"{part}-images-idx3-ubyte"), read(f"{part}-labels-idx1-ubyte")) for part in ("train", "t10k"))
    return ImageSplit(*map(_checked, parts))


def _checked(part: Images) -> Images:
    if part.images.ndim != 3 or part.labels.shape != part.images.shape[:1]:
        raise ValueError(
            f"Expected as many labels as images, got arrays of shape {part.images.shape} and {part.labels.shape}."
        )
    return part
