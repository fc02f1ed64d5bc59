"""Files that commands write: never over one that is there, never half, and tried before anything is spent."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from dpvi.table.writing import whole_or_nothing


def new_file(path: str | Path) -> Path:
    """``path``, refused where a file is there already or none can be made: asked before minutes of work.

    Raises
    ------
    FileExistsError, OSError
        With one sentence.
    """
    wanted = Path(path)
    if wanted.exists():
        raise FileExistsError(f"{wanted} is there already; give another name, or move it away.")
    check_writable(wanted)
    return wanted


def check_writable(path: Path) -> None:
    """Refuse a place where no file can be made."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder} for {path.name}; make it first.")
    trial = path.with_name(path.name + ".partial")
    try:
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error.strerror}); choose another place.") from None


def write_text(path: Path, text: str) -> None:
    """Write text, whole or not at all."""
    with whole_or_nothing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_paid(save: Callable[[Path], None], path: Path) -> Path:
    """Save what a budget was spent on: where the wanted place fails, in the folder for temporary files.

    Returns
    -------
    Where it is. An error tells where it is, too: it must not be lost, because to make it again would cost again.
    """
    try:
        save(path)
    except OSError as error:
        handle, other = tempfile.mkstemp(prefix=f"{path.stem}-", suffix=path.suffix)
        os.close(handle)
        save(Path(other))
        raise OSError(
            f"The run is made and its budget is spent, but {path} could not be written ({error.strerror}); the result "
            f"is {other}. Move it before this machine is restarted."
        ) from None
    return path
