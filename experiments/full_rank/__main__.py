"""``python -m experiments.full_rank``: run the study, or a part of it, and write numbers, table and figure."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from dpvi.core.plan import Plan
from experiments.full_rank.report import figure, table
from experiments.full_rank.settings import ADJACENCIES, METHODS, SIZES, Settings
from experiments.full_rank.study import check_plan, make_plan, run_study

_FOLDER = Path(__file__).parent


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m experiments.full_rank", description=__doc__)
    sizes = [name for name in SIZES if name != "quick"]
    made.add_argument("--size", choices=sizes, default="small", help="full: as published; gpu and small are shorter")
    made.add_argument("--quick", action="store_true", help="a few steps on few records, to see that it runs")
    made.add_argument(
        "--noise", choices=tuple(ADJACENCIES), default="exact", help="published: ε for replacing a record"
    )
    made.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS), metavar="METHOD")
    made.add_argument("--plan", type=Path, default=None, help="take the plan from this file")
    made.add_argument("--write-plan", type=Path, default=None, help="make the plan, write this file and stop")
    made.add_argument("--output", type=Path, default=None, help="folder of the results (default: beside this file)")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; cells of earlier calls with the same size, noise and folder are kept and gone on with."""
    given = parser().parse_args(arguments)
    size = "quick" if given.quick else given.size
    settings = replace(SIZES[size], noise=given.noise)
    plan = make_plan(settings) if given.plan is None else check_plan(Plan.load(given.plan), settings)
    if given.write_plan is not None:
        plan.save(given.write_plan)
        return
    output = given.output or _FOLDER / _folder_name(size, given.noise)
    content = open_results(output / "results.json", settings, size, plan)

    def keep(content: dict[str, Any]) -> None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "results.json").write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        row = content["cells"][-1]
        where = f"d = {row['dimension']}, density {row['density']:g}, C = {row['clip_norm']:g}"
        print(f"{where}, {row['method']}: {row['seconds']:.0f} s", flush=True)

    run_study(settings, plan, given.methods, content, keep)
    text = table(content)
    (output / "table.md").write_text(text, encoding="utf-8")
    figure(content, output / "predictive.png")
    print(text)


def open_results(path: Path, settings: Settings, size: str, plan: Plan) -> dict[str, Any]:
    """The content of an earlier call, or a new one; refused where the settings differ."""
    if not path.exists():
        command = f"python -m experiments.full_rank {'--quick' if size == 'quick' else f'--size {size}'}"
        return {
            "command": command + (f" --noise {settings.noise}" if settings.noise != "exact" else ""),
            "size": size,
            "settings": settings.to_dict(),
            "delta": plan.delta,
            "noise_multiplier": plan.noise_multiplier,
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
