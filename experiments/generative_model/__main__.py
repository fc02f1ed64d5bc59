"""``python -m experiments.generative_model``: run the study, or parts of it, and write numbers, table and figures."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax

from experiments.generative_model.cells import cells_of, downstream_cells
from experiments.generative_model.downstream import run_downstream
from experiments.generative_model.figures import figures
from experiments.generative_model.problem import CENSUS, COHORT, census_problem, cohort_problem
from experiments.generative_model.report import table
from experiments.generative_model.settings import CENSUSES, PARTS, SIZES, Settings
from experiments.generative_model.study import run_cells, shared_programs

_FOLDER = Path(__file__).parent


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m experiments.generative_model", description=__doc__)
    sizes = [name for name in SIZES if name != "quick"]
    made.add_argument("--size", choices=sizes, default="small", help="full: as published; gpu and small are shorter")
    made.add_argument("--quick", action="store_true", help="a few steps, to see that it runs; no census file needed")
    made.add_argument("--part", nargs="+", choices=PARTS, default=None, metavar="PART", help=f"of {', '.join(PARTS)}")
    made.add_argument("--census", choices=CENSUSES, default="income", help="poverty: the paper's US Census 1990")
    made.add_argument(
        "--data", type=Path, default=None, help="folder with the census (default: DPVI_DATA, then the cache)"
    )
    made.add_argument("--output", type=Path, default=None, help="folder of the results (default: beside this file)")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; cells of earlier calls with the same size and folder are kept and gone on with."""
    given = parser().parse_args(arguments)
    size = "quick" if given.quick else given.size
    settings = replace(SIZES[size], census=given.census)
    parts = given.part or [part for part in PARTS if not (given.quick and part == "census")]
    output = given.output or _FOLDER / _folder_name(size, settings)
    content = open_results(output / "results.json", settings, size)

    def keep(content: dict[str, Any], what: str) -> None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "results.json").write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        print(what, flush=True)

    problems = {
        COHORT: cache(lambda: cohort_problem(settings)),
        CENSUS: cache(lambda: census_problem(settings, given.data)),
    }
    with shared_programs():
        run_cells(settings, problems, cells_of(parts, settings), content, keep)
        run_downstream(settings, downstream_cells(parts, settings), content, keep)
    text = table(content)
    (output / "table.md").write_text(text, encoding="utf-8")
    figures(content, output)
    print(text)


def open_results(path: Path, settings: Settings, size: str) -> dict[str, Any]:
    """The content of an earlier call, or a new one; refused where the settings differ."""
    if not path.exists():
        command = f"python -m experiments.generative_model {'--quick' if size == 'quick' else f'--size {size}'}"
        return {
            "command": command + (f" --census {settings.census}" if settings.census != "income" else ""),
            "size": size,
            "settings": settings.to_dict(),
            "machine": f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}",
            "cells": [],
            "downstream": [],
        }
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["settings"] != settings.to_dict():
        raise ValueError(f"{path} holds a study with other settings; choose another --output or remove it.")
    return content


def _folder_name(size: str, settings: Settings) -> str:
    """Each size and census has a folder of its own, so that none overwrites another."""
    return "results" + ("" if size == "small" else f"_{size}") + ("" if settings.census == "income" else "_poverty")


if __name__ == "__main__":
    main()
