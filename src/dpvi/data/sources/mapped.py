"""Arrays in files: ``numpy.memmap`` leaves, read row by row with positioned reads.

Rows are not read through the mapping itself: pages that were touched would stay in the memory of the process, and a
file cut short by someone else would end it without a message.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpvi.data.sources.base import SourceError, Stamp
from dpvi.data.sources.extents import Extent, Held


@dataclass(frozen=True)
class RawArray:
    """Rows of equal length in a file, ``stride`` bytes from one to the next."""

    stamp: Stamp
    offset: int
    stride: int
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape[1:])

    @property
    def extent(self) -> Extent:
        return Extent(self.offset, max(self.stride, 1), self.row_bytes, self.shape[0])

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows with these numbers, increasing; neighbours are read in one go."""
        self.stamp.check()
        row_bytes = self.row_bytes
        if len(rows) == 0 or row_bytes == 0:
            return np.zeros((len(rows), *self.shape[1:]), self.dtype)
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1 if self.stride == row_bytes else np.arange(1, len(rows))
        starts = np.concatenate([[0], breaks])
        lengths = np.diff(np.append(starts, len(rows))) * row_bytes
        offsets = self.offset + rows[starts].astype(np.int64) * self.stride
        content = self._read(list(zip(lengths.tolist(), offsets.tolist(), strict=True)))
        return np.frombuffer(content, self.dtype).reshape(len(rows), *self.shape[1:])

    def _read(self, runs: list[tuple[int, int]]) -> bytes:
        """Bytes of all (length, offset) in turn."""
        path = self.stamp.path
        try:
            file = os.open(path, os.O_RDONLY)
            try:
                if hasattr(os, "posix_fadvise"):  # the disk fetches all of them at once, and nothing around them
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
                    for length, offset in runs:
                        os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)
                content = b"".join([os.pread(file, length, offset) for length, offset in runs])
            finally:
                os.close(file)
        except OSError as error:
            raise SourceError(f"{path} has rows that cannot be read: {error.strerror}. Nothing is released.") from None
        if len(content) != sum(length for length, _ in runs):
            self.stamp.check()
            raise SourceError(f"{path} ends before its last row; nothing is released.")
        return content


def raw_array(array: np.memmap) -> RawArray:
    """Where in its file the rows of a mapped array are; views by slicing are welcome.

    Raises
    ------
    SourceError
        For mappings without a file name, copies on write, and rows that are not contiguous.
    """
    if array.filename is None:
        raise SourceError(
            "A memory-mapped array must have been opened by file name; open it with numpy.load or memmap."
        )
    path = Path(array.filename)
    if array.mode == "c":
        raise SourceError(f"{path} is mapped copy-on-write; map it with mode 'r', so that its file holds the records.")
    row = array[:1]
    if array.ndim == 0 or not row.flags.c_contiguous or (len(array) > 1 and array.strides[0] < 0):
        raise SourceError(
            f"{path} must hold one record after the other (C order); save it with numpy.ascontiguousarray."
        )
    root, owner = array, array.base
    while not isinstance(owner, mmap.mmap):
        if not isinstance(owner, np.ndarray):
            raise SourceError(f"{path} is not mapped any more; open it again.")
        root, owner = owner, owner.base
    # a view keeps its parent's `offset`, so the distance is taken from the addresses
    inside = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    first = int(getattr(root, "offset", 0)) + inside
    stride = array.strides[0] if len(array) > 1 else row.nbytes
    stamp = Stamp.of(path)
    if stamp.size < first + (len(array) - 1) * stride + row.nbytes:
        raise SourceError(f"{path} ends before its last row; write it again.")
    return RawArray(stamp, first, stride, array.dtype, array.shape)


class MappedSource:
    """A pytree of arrays some of which are mapped from files; the others stay in memory."""

    def __init__(self, data: Any) -> None:
        leaves, self._tree = jax.tree.flatten(data)
        self._leaves = [raw_array(leaf) if isinstance(leaf, np.memmap) else np.asarray(leaf) for leaf in leaves]
        self.shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), data)
        self.num_records = int(leaves[0].shape[0])

    def take(self, rows: np.ndarray) -> Any:
        taken = [leaf.take(rows) if isinstance(leaf, RawArray) else leaf[rows] for leaf in self._leaves]
        return jax.tree.unflatten(self._tree, taken)

    def extents(self) -> list[Held]:
        """Which rows of which files these are."""
        mapped = [leaf for leaf in self._leaves if isinstance(leaf, RawArray)]
        return [Held(tuple(leaf.stamp for leaf in mapped), mapped[0].extent)]

    def check_unchanged(self) -> None:
        for leaf in self._leaves:
            if isinstance(leaf, RawArray):
                leaf.stamp.check()
