"""Records on disk: what a source is, and what all sources check of their files.

A source knows shapes and dtypes without reading a row, and reads rows by number. Its messages name files and columns,
never a value or a number of records.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

BLOCK_ROWS, BLOCK_BYTES = 65_536, 2**28  # of a walk over all rows: no block has more of either


class SourceError(ValueError):
    """A file cannot be read as records, or is not what it was when the run began."""


@runtime_checkable
class RowSource(Protocol):
    """Records that are read when they are drawn.

    A source may also have ``extents()``, the :class:`~dpvi.records.sources.extents.Held` rows of its files. Processes
    then compare these, to find records that two of them hold; of a source without it, 128 rows and their number.
    """

    @property
    def shapes(self) -> Any:
        """A pytree of ``jax.ShapeDtypeStruct`` as the data would have it in memory: all rows, dtypes as stored."""
        ...

    @property
    def num_records(self) -> int:
        """Private under add/remove adjacency."""
        ...

    def take(self, rows: np.ndarray) -> Any:
        """The rows with these numbers, increasing and without repetition, as a pytree of arrays."""
        ...

    def check_unchanged(self) -> None:
        """Raise :class:`SourceError` if a file is not what it was when the source was opened."""
        ...


def described(data: Any) -> Any:
    """Something with the shapes and dtypes of ``data``, of which no value is read."""
    return data.shapes if isinstance(data, RowSource) else data


class Stamp(NamedTuple):
    """What a file looked like when it was opened.

    ``changed`` is set by the system, also where whoever writes sets ``modified`` back; new names and permissions move
    it as well. A write within the tick of the file system's clock in which the file was opened is not seen, and one
    through a mapping may be seen late.
    """

    path: Path
    size: int
    modified: int
    changed: int
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path, file: int | None = None) -> Stamp:
        """Of what is at ``path`` now, or of the open ``file`` that was found there."""
        try:
            found = path.stat() if file is None else os.fstat(file)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
        return cls(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)

    def check(self, file: int | None = None) -> None:
        if Stamp.of(self.path, file) != self:
            raise SourceError(
                f"{self.path} was changed after it was opened, or its name, links or permissions were; whether its "
                "records are those that the run began with is not known. Nothing is released; open a copy that nobody "
                "touches, and start again."
            )


class Part(Protocol):
    """The rows of one file, or of one folder of files that belong together."""

    @property
    def num_rows(self) -> int: ...

    def take(self, rows: np.ndarray) -> dict[str, np.ndarray]: ...


def take_from_parts(parts: Sequence[Part], starts: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of consecutive parts; ``starts[k]`` is the number of the first row of part k, with the total at the end."""
    cuts = np.searchsorted(rows, starts)
    pieces = [
        part.take(rows[first:last] - start)
        for part, start, first, last in zip(parts, starts, cuts, cuts[1:], strict=False)
        if last > first
    ]
    pieces = pieces or [parts[0].take(rows[:0])]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def blocks(source: RowSource) -> Iterator[Any]:
    """All rows, a block at a time, so that wide rows fit too: for what is counted once over all records."""
    leaves = jax.tree.leaves(source.shapes)
    row_bytes = sum(math.prod(leaf.shape[1:]) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
    length = max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(row_bytes, 1)))
    for start in range(0, source.num_records, length):
        yield source.take(np.arange(start, min(start + length, source.num_records)))
