"""The command line of an experiment made of cells: sizes, results that can be gone on with, table and figures."""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax

from experiments.common.command import shared_programs

Content = dict[str, Any]
Keep = Callable[[Content], None]


class Sized(Protocol):
    """Settings of one size of a study."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold them."""
        ...


class CellStudy(NamedTuple):
    """What one experiment is made of."""

    name: str  # of the package below ``experiments``
    description: str | None
    sizes: Mapping[str, Any]  # settings by size; "quick" and "small" among them
    empty: Mapping[str, Any]  # content before the first cell, "cells": [] among it
    run: Callable[[Any, Content, Keep], None]  # runs what is missing, hands the content over after each cell
    table: Callable[[Content], str]
    figures: Mapping[str, Callable[[Content, Path], None]]  # by file name


def run_command(study: CellStudy, arguments: Sequence[str] | None = None) -> Path:
    """Parse ``arguments``, run what is missing and write results; returns the folder written to."""
    given = _parser(study).parse_args(arguments)
    size = "quick" if given.quick else given.size
    settings = study.sizes[size]
    usual = Path(__file__).parent.parent / study.name / ("results" if size == "small" else f"results_{size}")
    output = given.output or usual
    content = open_results(study, output / "results.json", settings, size)
    started = time.perf_counter()

    def keep(content: Content) -> None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "results.json").write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        print(f"{time.perf_counter() - started:.0f} s: {len(content['cells'])} cells", flush=True)

    with shared_programs():  # cells of one shape check the same model
        study.run(settings, content, keep)
    text = study.table(content)
    (output / "table.md").write_text(text, encoding="utf-8")
    print(text)
    for name, figure in study.figures.items():
        try:
            figure(content, output / name)
        except ImportError as error:  # numbers are written; a machine for computing need not plot
            print(error)
    return output


def open_results(study: CellStudy, path: Path, settings: Sized, size: str) -> Content:
    """The content of an earlier call, or a new one; refused where the settings differ."""
    if path.exists():
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["settings"] != settings.to_dict():
            raise ValueError(f"{path} holds a study with other settings; choose another --output or remove it.")
        return content
    return {
        "command": f"python -m experiments.{study.name} {'--quick' if size == 'quick' else f'--size {size}'}",
        "size": size,
        "settings": settings.to_dict(),
        "machine": f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}",
        **copy.deepcopy(dict(study.empty)),
    }


def _parser(study: CellStudy) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m experiments.{study.name}", description=study.description)
    sizes = [name for name in study.sizes if name != "quick"]
    made.add_argument("--size", choices=sizes, default="small", help="full: as published; small is shorter")
    made.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    made.add_argument("--output", type=Path, default=None, help="folder of the results (default: beside the program)")
    return made
