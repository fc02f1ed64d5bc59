"""``python -m experiments.full_rank``: run the study, or a part of it, and write numbers, table and figure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpvi.declared.plan import Plan
from experiments.common import sized_command as shared
from experiments.common.programs import shared_programs
from experiments.full_rank.report import figure, table
from experiments.full_rank.settings import METHODS, SIZES
from experiments.full_rank.study import Cell, check_plan, make_plan, run_study

_MODULE = "experiments.full_rank"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = shared.sized_parser(_MODULE, __doc__, SIZES, noise=True)
    made.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS), metavar="METHOD")
    made.add_argument("--plan", type=Path, default=None, help="take the plan from this file")
    made.add_argument("--write-plan", type=Path, default=None, help="make the plan, write this file and stop")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; cells of earlier calls with the same size, noise and folder are kept and gone on with."""
    given = parser().parse_args(arguments)
    size = shared.size_of(given)
    settings = replace(SIZES[size], noise=given.noise)
    output = given.output or shared.results_folder(_MODULE, size, *shared.noise_marks(given.noise))
    if given.join is not None:
        rows = {"cells": Cell._fields}
        shared.finish(shared.join_results(output / "results.json", given.join, settings, rows), output, table, _figures)
        return
    plan = make_plan(settings) if given.plan is None else check_plan(Plan.load(given.plan), settings)
    if given.write_plan is not None:
        plan.save(given.write_plan)
        return
    spent = {"delta": plan.delta, "noise_multiplier": plan.noise_multiplier}
    options = shared.noise_options(given.noise)
    content = shared.open_results(output / "results.json", _MODULE, settings, size, options, **spent)
    with shared_programs():
        run_study(settings, plan, given.methods, content, shared.keeper(output, _said), given.keep_runs)
    shared.finish(content, output, table, _figures)


def _figures(content: dict[str, Any], folder: Path) -> None:
    figure(content, folder / "predictive.png")


def _said(row: dict[str, Any]) -> str:
    where = f"d = {row['dimension']}, density {row['density']:g}, C = {row['clip_norm']:g}"
    return f"{where}, {row['method']}: {row['seconds']:.0f} s"


if __name__ == "__main__":
    main()
