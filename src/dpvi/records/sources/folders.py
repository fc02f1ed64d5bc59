"""Which files of a folder are records: a rule that counts no row twice.

Links are followed. Names that begin with ``_`` or ``.`` are passed over, and so is what lies below them: Spark keeps
unfinished parts in ``_temporary``, notebooks keep copies in ``.ipynb_checkpoints``, and pyarrow has the same rule. It
holds below the folder that is given, whose own name may be any.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from dpvi.records.sources.base import SourceError


def files_below(folder: Path, endings: Sequence[str]) -> list[Path]:
    """The files below ``folder`` whose names end in one of ``endings``, in any case, in the order of their paths.

    Raises
    ------
    SourceError
        For a file or folder that two paths lead to, and for a folder that cannot be looked into.
    """
    files: list[Path] = []
    seen: dict[tuple[int, int], Path] = {}
    for here, below, names in os.walk(folder, onerror=_refuse, followlinks=True):
        refuse_twice([Path(here)], seen)  # before going on, since a link to a folder above would never end
        below[:] = sorted(name for name in below if not is_passed_over(name))
        files += [Path(here, name) for name in names if is_wanted(name, endings)]
    files.sort()
    refuse_twice(files, seen)
    return files


def is_passed_over(name: str) -> bool:
    """Whether a file or folder of this name holds no records."""
    return name.startswith(("_", "."))


def is_wanted(name: str, endings: Sequence[str]) -> bool:
    """Whether a file of this name holds records."""
    return not is_passed_over(name) and Path(name).suffix.lower() in endings


def refuse_twice(paths: Iterable[Path], seen: dict[tuple[int, int], Path]) -> None:
    """Refuse a path to what ``seen`` knows by another path, and remember the others in it.

    A record that counts twice moves a sum by twice the clip norm: the guarantee would not be that of the plan.
    """
    for path in paths:
        try:
            found = path.stat()
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
        other = seen.setdefault((found.st_dev, found.st_ino), path)
        if other != path:
            raise SourceError(
                f"{other} and {path} are the same on disk (one is a link), so its records would count twice, which the "
                "plan does not pay for. Remove the link, or open one of the two."
            )


def _refuse(error: OSError) -> NoReturn:
    raise SourceError(f"{error.filename} cannot be looked into: {error.strerror}.") from None
