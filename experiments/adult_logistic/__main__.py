"""``python -m experiments.adult_logistic``: run the study, or a part of it, and write numbers, table and figures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.adult_logistic.problem import make_problem
from experiments.adult_logistic.report import figures, table
from experiments.adult_logistic.settings import CLIPPINGS, SIZES, VARIANTS
from experiments.adult_logistic.study import (
    Cell,
    cells_of,
    facts_of,
    load_facts,
    load_plans,
    make_plans,
    run_study,
    save_plans,
)
from experiments.common import sized_command as shared
from experiments.common.programs import shared_programs

_MODULE = "experiments.adult_logistic"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = shared.sized_parser(_MODULE, __doc__, SIZES, noise=True, data="Adult")
    made.add_argument("--variants", nargs="+", choices=tuple(VARIANTS), default=list(VARIANTS), metavar="VARIANT")
    made.add_argument("--clipping", nargs="+", choices=CLIPPINGS, default=list(CLIPPINGS), metavar="RULE")
    made.add_argument("--epsilons", nargs="+", type=float, default=None, help="of those of the size")
    made.add_argument("--download", action="store_true", help="fetch Adult from the UCI repository where it is missing")
    made.add_argument("--plans", type=Path, default=None, help="take plans from this file")
    made.add_argument("--facts", type=Path, default=None, help="take clip norms from this results.json, not anew")
    made.add_argument("--write-plans", type=Path, default=None, help="make the plans, write this file and stop")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; cells of earlier calls with the same size, noise and folder are kept and gone on with."""
    given = parser().parse_args(arguments)
    size = shared.size_of(given)
    settings = replace(SIZES[size], noise=given.noise)
    output = given.output or shared.results_folder(_MODULE, size, *shared.noise_marks(given.noise))
    if given.join is not None:
        content = shared.join_results(output / "results.json", given.join, settings, {"cells": Cell._fields})
        if given.facts is not None:
            content |= load_facts(given.facts, content["data"])
        shared.finish(content, output, table, figures)
        return
    epsilons = settings.epsilons if given.epsilons is None else tuple(given.epsilons)
    if unknown := set(epsilons) - set(settings.epsilons):
        raise ValueError(f"Size {size!r} has epsilon {settings.epsilons}, not {sorted(unknown)}; choose among these.")
    problem = make_problem(settings.simulated_records, given.data, given.download)
    make = make_plans if given.plans is None else lambda settings, _: load_plans(given.plans, settings)
    plans = make(settings, len(problem.labels))
    if given.write_plans is not None:
        save_plans(plans, given.write_plans)
        return
    options = shared.noise_options(given.noise)
    content = shared.open_results(output / "results.json", _MODULE, settings, size, options)
    if "clip_norms" not in content:
        content |= facts_of(problem) if given.facts is None else load_facts(given.facts, problem.name)
    cells = cells_of(given.clipping, given.variants, epsilons)
    with shared_programs():
        run_study(settings, problem, plans, cells, content, shared.keeper(output, _said), given.keep_runs)
    shared.finish(content, output, table, figures)


def _said(row: dict[str, Any]) -> str:
    return f"C {row['clipping']}, ε = {row['epsilon']:g}, {row['variant']}: {row['seconds']:.0f} s"


if __name__ == "__main__":
    main()
