"""``python -m experiments.generative_model``: run the study, or parts of it, and write numbers, table and figures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from experiments.common import sized_command as shared
from experiments.common.programs import shared_programs
from experiments.generative_model.cells import Cell, DownstreamCell, cells_of, downstream_cells
from experiments.generative_model.coverage import coverage_settings, run_coverage
from experiments.generative_model.downstream import run_downstream
from experiments.generative_model.figures import figures
from experiments.generative_model.problem import CENSUS, COHORT, census_problem, cohort_problem
from experiments.generative_model.report import table
from experiments.generative_model.settings import CENSUSES, PARTS, SIZES
from experiments.generative_model.study import run_cells

_MODULE = "experiments.generative_model"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = shared.sized_parser(_MODULE, __doc__, SIZES, data="the census")
    made.add_argument("--part", nargs="+", choices=PARTS, default=None, metavar="PART", help=f"of {', '.join(PARTS)}")
    made.add_argument("--census", choices=CENSUSES, default="income", help="poverty: the paper's US Census 1990")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; cells of earlier calls with the same size and folder are kept and gone on with."""
    given = parser().parse_args(arguments)
    size = shared.size_of(given)
    settings = replace(SIZES[size], census=given.census)
    parts = given.part or [part for part in PARTS if not (given.quick and part == "census")]
    options = {} if given.census == "income" else {"census": given.census}
    output = given.output or shared.results_folder(_MODULE, size, *options.values())
    if given.join is not None:
        rows = {"cells": Cell._fields, "downstream": (*DownstreamCell._fields, "repeat")}
        shared.finish(shared.join_results(output / "results.json", given.join, settings, rows), output, table, figures)
        return
    content = shared.open_results(output / "results.json", _MODULE, settings, size, options, downstream=[])

    def keep(content: dict[str, Any], what: str) -> None:
        shared.write_json(content, output)
        print(what, flush=True)

    problems = {
        COHORT: cache(lambda: cohort_problem(settings)),
        CENSUS: cache(lambda: census_problem(settings, given.data)),
    }
    with shared_programs():
        run_cells(settings, problems, cells_of(parts, settings), content, keep, given.keep_runs)
        run_downstream(settings, downstream_cells(parts, settings), content, keep)
        if "coverage" in parts:
            run_coverage(coverage_settings(size), content, keep)
    shared.finish(content, output, table, figures)


if __name__ == "__main__":
    main()
