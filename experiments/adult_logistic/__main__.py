"""``python -m experiments.adult_logistic``: run the study, or a part of it, and write numbers, table and figures."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from experiments.adult_logistic.problem import make_problem
from experiments.adult_logistic.report import figures, table
from experiments.adult_logistic.settings import ADJACENCIES, CLIPPINGS, SIZES, VARIANTS, Settings
from experiments.adult_logistic.study import cells_of, clip_norms, load_plans, make_plans, run_study, save_plans

_FOLDER = Path(__file__).parent


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m experiments.adult_logistic", description=__doc__)
    sizes = [name for name in SIZES if name != "quick"]
    made.add_argument("--size", choices=sizes, default="small", help="full: as published; gpu and small are shorter")
    made.add_argument("--quick", action="store_true", help="a few steps on simulated records, to see that it runs")
    made.add_argument(
        "--noise", choices=tuple(ADJACENCIES), default="exact", help="published: ε for replacing a record"
    )
    made.add_argument("--variants", nargs="+", choices=tuple(VARIANTS), default=list(VARIANTS), metavar="VARIANT")
    made.add_argument("--clipping", nargs="+", choices=CLIPPINGS, default=list(CLIPPINGS), metavar="RULE")
    made.add_argument("--epsilons", nargs="+", type=float, default=None, help="of those of the size")
    made.add_argument("--data", type=Path, default=None, help="folder with Adult (default: DPVI_DATA, then the cache)")
    made.add_argument("--download", action="store_true", help="fetch Adult from the UCI repository where it is missing")
    made.add_argument("--plans", type=Path, default=None, help="take plans from this file")
    made.add_argument("--write-plans", type=Path, default=None, help="make the plans, write this file and stop")
    made.add_argument("--output", type=Path, default=None, help="folder of the results (default: beside this file)")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; cells of earlier calls with the same size, noise and folder are kept and gone on with."""
    given = parser().parse_args(arguments)
    size = "quick" if given.quick else given.size
    settings = replace(SIZES[size], noise=given.noise)
    epsilons = settings.epsilons if given.epsilons is None else tuple(given.epsilons)
    if unknown := set(epsilons) - set(settings.epsilons):
        raise ValueError(f"Size {size!r} has epsilon {settings.epsilons}, not {sorted(unknown)}; choose among these.")
    problem = make_problem(settings.simulated_records, given.data, given.download)
    make = make_plans if given.plans is None else lambda settings, _: load_plans(given.plans, settings)
    plans = make(settings, len(problem.labels))
    if given.write_plans is not None:
        save_plans(plans, given.write_plans)
        return
    output = given.output or _FOLDER / _folder_name(size, given.noise)
    content = open_results(output / "results.json", settings, size)
    if "clip_norms" not in content:
        content |= {"data": problem.name, "clip_norms": clip_norms(problem)}

    def keep(content: dict[str, Any]) -> None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "results.json").write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        row = content["cells"][-1]
        print(f"C {row['clipping']}, ε = {row['epsilon']:g}, {row['variant']}: {row['seconds']:.0f} s", flush=True)

    run_study(settings, problem, plans, cells_of(given.clipping, given.variants, epsilons), content, keep)
    text = table(content)
    (output / "table.md").write_text(text, encoding="utf-8")
    figures(content, output)
    print(text)


def open_results(path: Path, settings: Settings, size: str) -> dict[str, Any]:
    """The content of an earlier call, or a new one; refused where the settings differ."""
    if not path.exists():
        command = f"python -m experiments.adult_logistic {'--quick' if size == 'quick' else f'--size {size}'}"
        return {
            "command": command + (f" --noise {settings.noise}" if settings.noise != "exact" else ""),
            "size": size,
            "settings": settings.to_dict(),
            "machine": f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}",
            "cells": [],
        }
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["settings"] != settings.to_dict():
        raise ValueError(f"{path} holds a study with other settings; choose another --output or remove it.")
    return content


def _folder_name(size: str, noise: str) -> str:
    """Each size and noise has a folder of its own, so that none overwrites another."""
    return "results" + ("" if size == "small" else f"_{size}") + ("" if noise == "exact" else f"_{noise}_noise")


if __name__ == "__main__":
    main()
