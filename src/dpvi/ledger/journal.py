"""A file of lines that only grows: each line is JSON with a checksum of itself and of all lines before it.

========================================  ==========================================================================
what happens                              what follows
========================================  ==========================================================================
several processes write                   one after the other: the file is locked from reading it to the line's being
                                          on the disk
a write ends half-way (power, full disk)  half a line is not believed, and removed by the next write
a line is changed, taken out or put in    its checksum, or that of the next one, does not fit, and the file is refused
lines at the end are taken away           cannot be seen in the file; whoever keeps the last checksum can see it
the clock is set back                     nothing: times are notes, the order is that of lines
========================================  ==========================================================================

The checksums find accidents and careless edits. Whoever wants to deceive can compute them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CHECK = "check"


class LedgerError(ValueError):
    """A ledger refuses: the budget would not hold, or its file cannot be relied on; the message says why."""


class Journal:
    """The lines of an open, locked file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        data = _read_all(descriptor)
        self.lines, self._end = _believed(path, data)
        # a last line that is whole but for its end: it counts, and the next one begins after it
        self._unended = self._end > 0 and data[self._end - 1 : self._end] != b"\n"

    @property
    def last_check(self) -> str:
        """The checksum of the last line, which covers all."""
        return self.lines[-1][_CHECK]

    def append(self, content: dict[str, Any]) -> None:
        """Bring one line to the disk, whole, or leave the file as it was.

        Raises
        ------
        LedgerError
            Where it cannot be written; then no half line of it is ever believed.
        """
        line = _checked_line(content, self.last_check)
        data = (b"\n" if self._unended else b"") + line
        try:
            os.ftruncate(self._descriptor, self._end)
            _write_all(self._descriptor, data, self._end)
            os.fsync(self._descriptor)
        except OSError as error:
            self._take_back()
            raise LedgerError(
                f"The ledger {self.path} could not be written ({error.strerror or error}); nothing was added to it. "
                "Make room, or make the file writable, and call again."
            ) from None
        if not _is_still(self.path, self._descriptor):
            raise LedgerError(
                f"The ledger {self.path} was replaced by another file while it was written, so the line went to the "
                "old one. Find out who put it there, and call again."
            )
        self.lines.append(json.loads(line))
        self._end, self._unended = self._end + len(data), False

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._end)
            os.fsync(self._descriptor)
        except OSError:
            pass  # half a line will not be believed; a whole one counts against the budget, which errs safely


@contextmanager
def opened(path: Path, *, to_write: bool) -> Iterator[Journal]:
    """The journal at ``path``, locked against all others who write, and against readers where it is to be written."""
    try:
        if to_write and not stat.S_IMODE(path.stat().st_mode) & 0o222:
            raise PermissionError  # said here because some users may write to what is marked as read-only
        descriptor = os.open(path, os.O_RDWR if to_write else os.O_RDONLY)
    except PermissionError:
        raise LedgerError(
            f"The ledger {path} may not be {'written' if to_write else 'read'}, so nothing can be reserved in it, and "
            "no record was read. Ask whoever keeps it, or change its permissions."
        ) from None
    except FileNotFoundError:
        raise LedgerError(
            f"There is no ledger at {path}. If there was one, find it: a new one would forget what was spent. Begin "
            "one with dpvi ledger create, or with dpvi.Ledger(path, epsilon=, delta=)."
        ) from None
    try:
        _lock(path, descriptor, exclusive=to_write)
        if not _is_still(path, descriptor):  # what was locked is not what others open now
            raise LedgerError(f"The ledger {path} was replaced by another file while it was opened; call again.")
        yield Journal(path, descriptor)
    finally:
        os.close(descriptor)  # which gives the lock back


def create(path: Path, content: dict[str, Any]) -> bool:
    """Begin a journal with one line; False where there is a file already, which is left alone."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with open(temporary, "xb", buffering=0) as file:
            _write_all(file.fileno(), _checked_line(content, ""), 0)
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename it leaves alone what another process has put there meanwhile
        _folder_to_disk(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise LedgerError(f"The ledger {path} could not be begun ({error.strerror or error}).") from None
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _believed(path: Path, data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The lines of the file, and where the last one ends; half a line at the end is left out."""
    lines, end, check = [], 0, ""
    for number, text in enumerate(io.BytesIO(data), 1):
        line = _checked(text.removesuffix(b"\n"), check)
        if line is None:
            if not text.endswith(b"\n") and lines:
                break
            raise LedgerError(_damage(path, number))
        lines.append(line)
        end, check = end + len(text), line[_CHECK]
    if not lines:
        raise LedgerError(_damage(path, 1))
    return lines, end


def _damage(path: Path, number: int) -> str:
    if number == 1:
        return f"{path} is not a ledger of dpvi, or its first line was changed."
    return (
        f"Line {number} of the ledger {path} was changed, or a line before it is missing: its checksum does not fit. "
        "What was spent cannot be known from this file. Put back the last good copy, and find out who changed it."
    )


def _checked(text: bytes, before: str) -> dict[str, Any] | None:
    """The content of a line, or None where it is not one that follows ``before``."""
    try:
        line = json.loads(text)
        content = {name: value for name, value in line.items() if name != _CHECK}
    except (ValueError, AttributeError, RecursionError):
        return None
    return line if _checked_line(content, before).removesuffix(b"\n") == text else None


def _checked_line(content: dict[str, Any], before: str) -> bytes:
    text = json.dumps(content, sort_keys=True)
    check = hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()
    return json.dumps({**content, _CHECK: check}, sort_keys=True).encode() + b"\n"


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _write_all(descriptor: int, data: bytes, begin: int) -> None:
    os.lseek(descriptor, begin, os.SEEK_SET)
    while data:
        data = data[os.write(descriptor, data) :]


def _lock(path: Path, descriptor: int, *, exclusive: bool) -> None:
    try:
        import fcntl
    except ImportError:
        raise LedgerError("A ledger needs the file locks of Linux or macOS, which this system does not have.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
    except OSError as error:
        raise LedgerError(
            f"The ledger {path} could not be locked ({error.strerror}), so others could spend the same budget. Keep it "
            "on a disk whose file system has locks."
        ) from None


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the open file is the one at ``path``: a copy put in its place has a lock of its own."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _folder_to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
