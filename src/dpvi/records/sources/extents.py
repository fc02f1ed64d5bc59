"""Which rows of which files a source holds, and whether two such sets of rows overlap.

Files are told apart by what is in them: paths and devices of a shared folder differ from host to host, and a copy of a
file holds the same records as the file.
"""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

from dpvi.records.sources.base import SourceError, Stamp

_WHOLE_BYTES = 2**20  # files up to this size are read whole; of larger ones as much, in blocks
_BLOCK_BYTES = 2**16


class Extent(NamedTuple):
    """``num_rows`` rows of ``width`` bytes, ``stride`` bytes from one to the next, the first at byte ``first``.

    Rows of a table cannot be told apart by their bytes: such a file is one row of one byte.
    """

    first: int = 0
    stride: int = 1
    width: int = 1
    num_rows: int = 1

    @property
    def end(self) -> int:
        return self.first + (self.num_rows - 1) * self.stride + self.width

    def overlaps(self, other: Extent) -> bool:
        """Whether the two can have a row in common: for sure where strides are equal or multiples of each other.

        Examples
        --------
        >>> even, odd = Extent(0, 16, 8, 5), Extent(8, 16, 8, 5)
        >>> even.overlaps(odd), even.overlaps(Extent(64, 16, 8, 5)), even.overlaps(Extent(80, 16, 8, 5))
        (False, True, False)
        >>> even.overlaps(Extent(8, 32, 8, 2)), even.overlaps(Extent(16, 32, 8, 2))
        (False, True)
        """
        if min(self.num_rows, other.num_rows) < 1 or self.end <= other.first or other.end <= self.first:
            return False
        strides = [extent.stride for extent in (self, other) if extent.num_rows > 1]  # one row goes with any
        if not strides:
            return True
        stride = math.gcd(*strides)
        shift = (other.first - self.first) % stride
        return shift < self.width or stride - shift < other.width


class Held(NamedTuple):
    """Rows of one file, or of files that together hold one set of records: ``x.npy`` and ``y.npy``."""

    files: tuple[Stamp, ...]
    extent: Extent = Extent()  # of the rows in the first file; those in the others go along with them


def content_digest(files: tuple[Stamp, ...]) -> bytes:
    """SHA-256 of the sizes of ``files`` and what is in them, or in blocks all over them where they are large."""
    digest = hashlib.sha256()
    for path, size, *_ in files:
        digest.update(size.to_bytes(8, "little"))
        try:
            with path.open("rb") as file:
                for start in _block_starts(size):
                    file.seek(start)
                    digest.update(file.read(_BLOCK_BYTES))
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.digest()


def _block_starts(size: int) -> list[int]:
    """All blocks of a small file; the first, the last and some in between of a larger one."""
    number = _WHOLE_BYTES // _BLOCK_BYTES
    if size <= _WHOLE_BYTES:
        return list(range(0, size, _BLOCK_BYTES))
    return [(size - _BLOCK_BYTES) * k // (number - 1) for k in range(number)]
