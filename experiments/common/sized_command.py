"""What the commands of experiments with sizes share: sizes, noise, folders, and results that grow cell by cell.

A study has settings for each size and a ``results.json`` that is written after every cell, so that a call that was cut
short is gone on with by the next one with the same size, noise and folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax

QUICK = "quick"
KEPT_RUNS = 10  # side by side, where runs are kept
_LISTS = re.compile(r"\[[^\[\]{}\"]*\]")  # of numbers and truth values: one line each
# "exact": what ε needs when one record is added or removed. "published": when one is replaced by another, as in the
# published programs of Adult and the full-rank study; about twice the noise.
ADJACENCIES: Mapping[str, str] = {"exact": "add_remove", "published": "substitute"}


class Settings(Protocol):
    """What a study fixes."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values as JSON reads them back."""
        ...


def positive_number(text: str) -> int:
    """An argument that is a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return value


def sized_parser(
    module: str,
    description: str | None,
    sizes: Mapping[str, Any],
    *,
    noise: bool = False,
    data: str | None = None,
    cells: bool = True,
) -> argparse.ArgumentParser:
    """A parser with ``--size``, ``--quick`` and ``--output``.

    Parameters
    ----------
    module, description
        The package whose command it is, and what it does.
    sizes
        Its sizes; ``"quick"`` is reached by the option of that name alone.
    noise
        Whether the study can be run at the published noise: adds ``--noise``.
    data
        What ``--data`` finds a folder of, where the study reads a file.
    cells
        Whether results grow cell by cell, and cells may take hours: adds ``--join`` and ``--keep-runs``.
    """
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    chosen = [name for name in sizes if name != QUICK]
    made.add_argument("--size", choices=chosen, default="small", help="full: as published; gpu and small are shorter")
    made.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    if noise:
        made.add_argument("--noise", choices=tuple(ADJACENCIES), default="exact", help="published: ε for replacing one")
    if data is not None:
        made.add_argument("--data", type=Path, help=f"folder with {data} (default: DPVI_DATA, then the cache)")
    made.add_argument("--output", type=Path, help="folder of the results (default: beside the experiment)")
    if cells:
        made.add_argument(
            "--join",
            type=Path,
            nargs="*",
            metavar="FOLDER",
            help="run nothing: take the cells of these folders too, and write table and figures anew",
        )
        made.add_argument(
            "--keep-runs",
            type=Path,
            metavar="FOLDER",
            help=f"keep the runs of a cell under way here, {KEPT_RUNS} at a time, so that it goes on where it was "
            "killed; takes up to a quarter of a gigabyte for a run, until the cell is done",
        )
    return made


def size_of(given: argparse.Namespace) -> str:
    return QUICK if given.quick else given.size


def results_folder(module: str, size: str, *marks: str) -> Path:
    """Beside the experiment; each size and mark has a folder of its own, so that none overwrites another.

    Examples
    --------
    >>> results_folder("experiments.full_rank", "gpu", "published_noise").name
    'results_gpu_published_noise'
    """
    name = "_".join(["results", *([] if size == "small" else [size]), *marks])
    return Path(__file__).parents[1] / module.rpartition(".")[2] / name


def noise_marks(noise: str) -> list[str]:
    """What the folder's name says of the noise: nothing where it is the exact one."""
    return [] if noise == "exact" else [f"{noise}_noise"]


def open_results(
    path: Path, module: str, settings: Settings, size: str, options: Mapping[str, str], **more: Any
) -> dict[str, Any]:
    """The content of an earlier call, or a new one; refused where the settings differ.

    Parameters
    ----------
    path
        Where ``results.json`` is, or will be.
    module, size, options
        The command that the results name; ``options`` are those that are not at their default.
    settings
        What the study fixes.
    more
        Further entries of a new content.
    """
    if not path.exists():
        return {
            "command": command(module, size, options),
            "size": size,
            "settings": settings.to_dict(),
            "machine": machine(),
            "cells": [],
            **more,
        }
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["settings"] != settings.to_dict():
        raise ValueError(f"{path} holds a study with other settings; choose another --output or remove it.")
    return content


def machine() -> str:
    """Cores that this process may use, of those there are, and the device.

    Examples
    --------
    >>> machine().endswith(jax.devices()[0].device_kind)
    True
    """
    there = os.cpu_count() or 1
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    cores = f"{there} cores" if mine == there else f"{mine} of {there} cores"
    return f"{cores}, {jax.devices()[0].device_kind}"


def join_results(
    path: Path, folders: Sequence[Path], settings: Settings, names: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """What ``path`` and the ``results.json`` of other folders hold, each row once.

    Parts of a study can be computed side by side, each process with an ``--output`` of its own.

    Parameters
    ----------
    path
        Where the study's own ``results.json`` is, or will be.
    folders
        The parts.
    settings
        What the study fixes; refused where a part has others.
    names
        For every list of rows, the entries that tell one row from another.
    """
    paths = ([path] if path.exists() else []) + [folder / "results.json" for folder in folders]
    if not paths:
        raise ValueError(f"There is nothing to join: {path} does not exist, and no folder was given.")
    content: dict[str, Any] = {}
    for each in paths:
        part = json.loads(each.read_text(encoding="utf-8"))
        if part["settings"] != settings.to_dict():
            raise ValueError(f"{each} holds a study with other settings; join parts of one size and noise.")
        machines = content.get("machine", part["machine"]).split("; ")
        content["machine"] = "; ".join(dict.fromkeys([*machines, part["machine"]]))
        for rows, entries in names.items():
            both = [*content.get(rows, []), *part[rows]]
            content[rows] = list({tuple(row[entry] for entry in entries): row for row in reversed(both)}.values())[::-1]
        content = part | content
    return content


def command(module: str, size: str, options: Mapping[str, str] = {}) -> str:
    """How to make the results again, without folders, which are nobody's business.

    Examples
    --------
    >>> command("experiments.full_rank", "gpu", {"noise": "published"})
    'python -m experiments.full_rank --size gpu --noise published'
    """
    words = ["--quick"] if size == QUICK else ["--size", size]
    return " ".join(["python -m", module, *words, *(word for name in options for word in (f"--{name}", options[name]))])


def write_json(content: dict[str, Any], folder: Path) -> None:
    """``results.json`` in ``folder``, a list of numbers on one line.

    The text is made first, so that a NaN leaves the file as it was.
    """
    text = _LISTS.sub(lambda found: " ".join(found.group().split()), json.dumps(content, indent=1, allow_nan=False))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")


def keeper(folder: Path, say: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], None]:
    """A function that writes the content and prints what ``say`` makes of its last cell."""

    def keep(content: dict[str, Any]) -> None:
        write_json(content, folder)
        print(say(content["cells"][-1]), flush=True)

    return keep


def finish(
    content: dict[str, Any],
    folder: Path,
    table: Callable[[dict[str, Any]], str],
    figures: Callable[[dict[str, Any], Path], None],
) -> None:
    """Write the content, its table and its figures into ``folder``, and print the table.

    Where matplotlib is missing the figures are left out; ``--join`` draws them elsewhere.
    """
    write_json(content, folder)
    text = table(content)
    (folder / "table.md").write_text(text, encoding="utf-8")
    print(text)
    try:
        figures(content, folder)
    except ImportError as error:
        print(error)


def noise_options(noise: str) -> dict[str, str]:
    """The option that names a noise other than the exact one."""
    return {} if noise == "exact" else {"noise": noise}
