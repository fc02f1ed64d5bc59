"""Arrays in files: ``numpy.memmap`` leaves, read row by row with positioned reads.

Rows are not read through the mapping itself: pages that were touched would stay in the memory of the process, and a
file cut short by someone else would end it without a message.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpvi.records.arrays import check_fits, structure_of
from dpvi.records.sources.base import RowSource, SourceError, Stamp
from dpvi.records.sources.extents import Extent, Held

_MAX_READ = 2**30  # bytes


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
        taken = np.frombuffer(content, self.dtype).reshape(len(rows), *self.shape[1:])
        check_fits(taken, str(self.stamp.path), SourceError)
        return taken

    def _read(self, runs: list[tuple[int, int]]) -> bytes:
        """Bytes of all (length, offset) in turn."""
        path = self.stamp.path
        try:
            file = os.open(path, os.O_RDONLY)
            try:
                self.stamp.check(file)  # the file that is open, which may be another than the path led to before
                if hasattr(os, "posix_fadvise"):  # the disk fetches all of them at once, and nothing around them
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
                    for length, offset in runs:
                        os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)
                content = b"".join(piece for length, offset in runs for piece in _pieces(file, length, offset))
                self.stamp.check(file)
            finally:
                os.close(file)
        except OSError as error:
            raise SourceError(f"{path} has rows that cannot be read: {error.strerror}. Nothing is released.") from None
        if len(content) != sum(length for length, _ in runs):
            raise SourceError(f"{path} ends before its last row; nothing is released.")
        return content


def _pieces(file: int, length: int, offset: int) -> Iterator[bytes]:
    """Bytes of one run: systems read at most 2 GiB at a time, and over a network less than asked for may come."""
    while length > 0:
        piece = os.pread(file, min(length, _MAX_READ), offset)
        if not piece:  # the end of the file, which whoever asked finds by the length
            return
        yield piece
        length, offset = length - len(piece), offset + len(piece)


def raw_array(array: np.memmap) -> RawArray:
    """Where in its file the rows of a mapped array are; views by slicing are welcome.

    Rows are those of the file that is at its path now, which must have the size and the header of the one that was
    mapped. That it is the same in all else is not known before now; from now on the stamp watches over it.

    Raises
    ------
    SourceError
        For mappings without a file name, copies on write, rows that are not contiguous, and a file that was replaced
        by one of another size or header.
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
    _check_mapped_file(stamp, owner, int(getattr(root, "offset", 0)))
    if stamp.size < first + (len(array) - 1) * stride + row.nbytes:
        raise SourceError(f"{path} ends before its last row; write it again.")
    return RawArray(stamp, first, stride, array.dtype, array.shape)


def _check_mapped_file(stamp: Stamp, mapped: mmap.mmap, offset: int) -> None:
    """Refuse another file than the mapped one, as far as sizes and the bytes before the array tell."""
    start = offset - offset % mmap.ALLOCATIONGRANULARITY  # where NumPy began to map
    same = mapped.size() == stamp.size  # before a byte is touched: past the end of a file the process would end
    if same and offset > start:
        try:
            with stamp.path.open("rb") as file:
                file.seek(start)
                same = file.read(offset - start) == mapped[: offset - start]
        except OSError as error:
            raise SourceError(f"{stamp.path} cannot be read: {error.strerror}.") from None
    if not same:
        raise SourceError(
            f"{stamp.path} is another file than the one that was mapped, with another size or header; open it again."
        )


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


def as_source(data: Any) -> Any:
    """A source as it is, arrays mapped from files as a source, and anything else as it is."""
    if isinstance(data, RowSource) or not any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(data)):
        return data
    structure_of(data)  # its sentences about leaves come first
    return MappedSource(data)
