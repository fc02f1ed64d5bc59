"""``python -m experiments.adult_calibration``: run the study, or a part of it, and write table, numbers and plots."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.adult_calibration.methods import METHODS
from experiments.adult_calibration.plans import load_plans, make_plans, save_plans
from experiments.adult_calibration.problem import make_problem
from experiments.adult_calibration.report import to_markdown, to_plots
from experiments.adult_calibration.settings import EPSILONS, QUICK, Settings
from experiments.adult_calibration.study import Results, open_results, run_study
from experiments.common.sized_command import positive_number

_FOLDER = Path(__file__).parent


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m experiments.adult_calibration", description=__doc__)
    made.add_argument("--quick", action="store_true", help="a small simulated table, to see that everything runs")
    made.add_argument(
        "--repeats", type=positive_number, default=None, help="runs of each method (default: 20, quick: 2)"
    )
    made.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS), metavar="METHOD")
    made.add_argument("--epsilons", nargs="+", type=float, default=None, help="default: 0.1 0.3 1, quick: 1")
    made.add_argument("--noise", choices=("published", "calibrated"), default=None, help="default: published")
    made.add_argument("--scaling", choices=("published", "declared"), default=None, help="default: published")
    made.add_argument(
        "--lanes", type=positive_number, default=None, help="repeats fitted at once (default: 1, quick: all)"
    )
    made.add_argument("--data", type=Path, default=None, help="folder with Adult (default: DPVI_DATA, then the cache)")
    made.add_argument("--download", action="store_true", help="fetch Adult from the UCI repository where it is missing")
    made.add_argument("--plans", type=Path, default=None, help="take plans from this file")
    made.add_argument("--write-plans", type=Path, default=None, help="make the plans, write this file and stop")
    made.add_argument("--output", type=Path, default=None, help="folder of the results (default: beside this file)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; results of earlier calls with the same settings and folder are kept and gone on with."""
    given = parser().parse_args(arguments)
    settings = _settings(given)
    epsilons = given.epsilons or ((1.0,) if given.quick else EPSILONS)
    repeats = given.repeats or (2 if given.quick else 20)
    runs = list(dict.fromkeys(METHODS[method].run for method in given.methods))
    if given.write_plans is not None:
        save_plans(make_plans(settings, runs, epsilons), given.write_plans)
        print(f"Wrote plans to {given.write_plans}.")
        return 0
    output = given.output or _FOLDER / ("results_quick" if given.quick else "results")
    results = open_results(output / "results.json", settings)
    plans = (
        make_plans(settings, runs, epsilons)
        if given.plans is None
        else load_plans(given.plans, settings, runs, epsilons)
    )
    problem = make_problem(settings, given.data, given.download)

    def keep(so_far: Results) -> None:
        so_far.save(output / "results.json")
        print(", ".join(f"{m} ε={e:g}: {len(cell)}" for (m, e), cell in so_far.cells.items()), flush=True)

    lanes = given.lanes or (repeats if given.quick else 1)
    run_study(settings, problem, plans, given.methods, epsilons, repeats, results, lanes=lanes, keep=keep)
    write_report(results, output)
    return 0


def write_report(results: Results, output: Path) -> None:
    """``results.json``, ``table.md`` and a plot per ε."""
    results.save(output / "results.json")
    table = to_markdown(results)
    (output / "table.md").write_text(table, encoding="utf-8")
    to_plots(results, output)
    print(table)


def _settings(given: argparse.Namespace) -> Settings:
    changes = {name: value for name in ("noise", "scaling") if (value := getattr(given, name)) is not None}
    return replace(QUICK if given.quick else Settings(), **changes)


if __name__ == "__main__":
    raise SystemExit(main())
