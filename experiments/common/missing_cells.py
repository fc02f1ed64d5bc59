"""The loop of a study made of cells: what an earlier call did is not done again, and every cell is kept at once.

Where a cell takes hours, its runs can be kept, too, part after part, until the cell has its row.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Content = dict[str, Any]
Cell = TypeVar("Cell", bound=NamedTuple)
Value = TypeVar("Value")


def run_missing(
    cells: Iterable[Cell],
    content: Content,
    keep: Callable[[Content], None],
    row_of: Callable[[Cell], dict[str, Any]],
    runs: Path | None = None,
) -> None:
    """Run the cells that ``content["cells"]`` has no row for, and call ``keep`` after each.

    Parameters
    ----------
    cells
        Named tuples, of which no two are equal; their entries are the first of their rows, and tell rows apart.
    content
        The results so far, as JSON reads them back; rows are added to it.
    keep
        Writes the content.
    row_of
        What a cell finds: the other entries of its row.
    runs
        Where ``row_of`` keeps the runs of a cell under way, in its :func:`folder_of`, which is removed once its row
        is kept.
    """
    for cell in cells:
        names = cell._asdict()
        if any(all(row[name] == value for name, value in names.items()) for row in content["cells"]):
            continue
        content["cells"].append(names | row_of(cell))
        keep(content)
        if (folder := folder_of(runs, cell)) is not None:
            shutil.rmtree(folder, ignore_errors=True)


def folder_of(runs: Path | None, cell: Cell) -> Path | None:
    """The folder of a cell's runs below ``runs``, where they are kept."""
    return None if runs is None else runs / "_".join(map(str, cell))


def fit_in_parts(
    fit: Callable[[Sequence[int], Path | None], list[Value]], numbers: Sequence[int], size: int, folder: Path | None
) -> tuple[list[Value], float]:
    """Runs ``numbers``, ``size`` side by side, and the seconds they took; with a ``folder``, parts in it are not run.

    Parameters
    ----------
    fit
        (numbers of runs, directory) to their results; it is :func:`dpvi.fit_many` that keeps them in the directory.
    folder
        Where each part has a directory, and a file with its seconds.
    """
    results, total = [], 0.0
    for begin in range(0, len(numbers), size):
        part = numbers[begin : begin + size]
        directory = None if folder is None else folder / f"runs-{part[0]}"
        fitted, seconds = timed(fit, part, directory)
        if directory is not None:
            spent = directory.with_suffix(".seconds.json")
            if spent.exists():
                seconds = json.loads(spent.read_text(encoding="utf-8"))
            spent.write_text(json.dumps(seconds), encoding="utf-8")
        results += fitted
        total += seconds
    return results, total


def timed(work: Callable[..., Value], *arguments: Any) -> tuple[Value, float]:
    """What ``work(*arguments)`` gives, and how many seconds it took."""
    started = time.perf_counter()
    value = work(*arguments)
    return value, time.perf_counter() - started


@contextmanager
def ignoring(*kinds: type[Warning]) -> Iterator[None]:
    """Silence warnings of what a published study did on purpose, and of what its results say themselves."""
    with warnings.catch_warnings():
        for kind in kinds:
            warnings.simplefilter("ignore", kind)
        yield
