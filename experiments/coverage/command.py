"""The command line of a coverage experiment."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.common.programs import shared_programs
from experiments.common.sized_command import positive_number
from experiments.coverage.case import Case
from experiments.coverage.methods import METHODS
from experiments.coverage.runs import Study
from experiments.coverage.study import run_case
from experiments.coverage.tables import with_earlier, write_results

QUICK = Study(num_data_sets=3, num_slow_data_sets=1, num_records=300, num_steps=200, num_draws=200, num_repeats=2)


def run_experiment(
    module: str,
    title: str,
    cases: Sequence[Case],
    arguments: Sequence[str] | None = None,
    quick_cases: Sequence[str] | None = None,
) -> Path:
    """Parse ``arguments``, run the cases and write results; returns the folder written to.

    Parameters
    ----------
    module
        Name of the experiment's package, for the command that tables show.
    title, cases
        Heading and columns of the table.
    arguments
        Of the command line; those of the process if absent.
    quick_cases
        What ``--quick`` runs of the cases; all if absent.
    """
    options = _parser(module, title, cases).parse_args(arguments)
    study = QUICK if options.quick else Study()
    changes = {
        name: getattr(options, name)
        for name in ("num_data_sets", "num_slow_data_sets", "num_steps", "seed", "group_size")
    }
    study = study._replace(**{name: value for name, value in changes.items() if value is not None})
    default = quick_cases if options.quick and quick_cases is not None else [case.name for case in cases]
    chosen = options.cases or default
    methods = options.methods or [name for name in METHODS if not (options.quick and METHODS[name].slow)]
    folder = options.output or _results_folder(module, options.quick)
    start = time.perf_counter()
    with shared_programs():
        for case in (case for case in cases if case.name in chosen):  # written one by one: a study may be cut short
            outcome = run_case(case, study, methods, options.workers)
            joined = with_earlier([outcome], cases, study, folder)
            write_results(joined, study, title, _command(module, arguments), folder)
    print(f"{title}: {time.perf_counter() - start:.0f} s, written to {folder}", file=sys.stderr)
    return folder


def _parser(module: str, title: str, cases: Sequence[Case]) -> argparse.ArgumentParser:
    names = [case.name for case in cases]
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=title)
    parser.add_argument("--quick", action="store_true", help="a smoke test: few small data sets, short runs")
    parser.add_argument("--num-datasets", type=positive_number, dest="num_data_sets", help="K (default: 500)")
    parser.add_argument(
        "--num-slow-datasets", type=positive_number, dest="num_slow_data_sets", help="K of slow methods (default: 50)"
    )
    parser.add_argument("--num-steps", type=positive_number, help="T (default: 10000)")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), metavar="METHOD",
                        help=f"of {', '.join(METHODS)} (default: all; with --quick the quick ones)")  # fmt: skip
    parser.add_argument("--cases", nargs="+", choices=names, metavar="CASE", help=f"of {', '.join(names)}")
    parser.add_argument("--group-size", type=positive_number, help="data sets that run side by side (a GPU likes many)")
    parser.add_argument("--seed", type=int, help="of the study (default: 1)")
    parser.add_argument(
        "--workers", type=positive_number, default=os.cpu_count() or 1, help="processes (default: all cores)"
    )
    parser.add_argument("--output", type=Path, help="folder for results (default: results/ beside the experiment)")
    return parser


def _results_folder(module: str, quick: bool) -> Path:
    """Beside the experiment; a smoke test has a folder of its own, so that it overwrites no real result."""
    root = Path(__file__).parents[1] / module.rpartition(".")[2]
    return root / ("results_quick" if quick else "results")


def _command(module: str, arguments: Sequence[str] | None) -> str:
    """The command without the output folder, which is nobody's business."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--output" in words:
        at = words.index("--output")
        del words[at : at + 2]
    return " ".join(["python -m", module, *words])
