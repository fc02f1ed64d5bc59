"""The command line of an experiment made of cells: sizes, results that can be gone on with, table and figures."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common import sized_command as shared
from experiments.common.programs import shared_programs

Content = dict[str, Any]
Keep = Callable[[Content], None]


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
    module = f"experiments.{study.name}"
    given = shared.sized_parser(module, study.description, study.sizes, cells=False).parse_args(arguments)
    size = shared.size_of(given)
    settings = study.sizes[size]
    output = given.output or shared.results_folder(module, size)
    empty = copy.deepcopy(dict(study.empty))
    content = shared.open_results(output / "results.json", module, settings, size, {}, **empty)
    started = time.perf_counter()

    def keep(content: Content) -> None:
        shared.write_json(content, output)
        print(f"{time.perf_counter() - started:.0f} s: {len(content['cells'])} cells", flush=True)

    def figures(content: Content, folder: Path) -> None:
        for name, figure in study.figures.items():
            figure(content, folder / name)

    with shared_programs():  # cells of one shape check the same model
        study.run(settings, content, keep)
    shared.finish(content, output, study.table, figures)
    return output
