"""What the commands of the DPVIm experiments share: sizes, noise, folders, and results that grow cell by cell.

A study has settings for each size and a ``results.json`` that is written after every cell, so that a call that was cut
short is gone on with by the next one with the same size, noise and folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax

QUICK = "quick"
_LISTS = re.compile(r"\[[^\[\]{}\"]*\]")  # of numbers and truth values: one line each
# "exact": what ε needs when one record is added or removed. "published": when one is replaced by another, as in the
# published programs of Adult and the full-rank study; about twice the noise.
ADJACENCIES: Mapping[str, str] = {"exact": "add_remove", "published": "substitute"}


class Settings(Protocol):
    """What a study fixes."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values as JSON reads them back."""
        ...


def sized_parser(
    module: str, description: str | None, sizes: Mapping[str, Any], *, noise: bool = False, data: str | None = None
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
    """
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    chosen = [name for name in sizes if name != QUICK]
    made.add_argument("--size", choices=chosen, default="small", help="full: as published; gpu and small are shorter")
    made.add_argument("--quick", action="store_true", help="a few steps on simulated records, to see that it runs")
    if noise:
        made.add_argument("--noise", choices=tuple(ADJACENCIES), default="exact", help="published: ε for replacing one")
    if data is not None:
        made.add_argument("--data", type=Path, help=f"folder with {data} (default: DPVI_DATA, then the cache)")
    made.add_argument("--output", type=Path, help="folder of the results (default: beside the experiment)")
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
            "machine": f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}",
            "cells": [],
            **more,
        }
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["settings"] != settings.to_dict():
        raise ValueError(f"{path} holds a study with other settings; choose another --output or remove it.")
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


def finish(content: dict[str, Any], folder: Path, table: Callable[[dict[str, Any]], str]) -> None:
    """Write the content and its table, and print the table."""
    write_json(content, folder)
    text = table(content)
    (folder / "table.md").write_text(text, encoding="utf-8")
    print(text)


def noise_options(noise: str) -> dict[str, str]:
    """The option that names a noise other than the exact one."""
    return {} if noise == "exact" else {"noise": noise}
