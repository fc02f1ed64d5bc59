"""``python -m experiments.misfit``: run the study, or a part of it, and write numbers, table and picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.common import sized_command as shared
from experiments.common.programs import shared_programs
from experiments.misfit.methods import METHODS
from experiments.misfit.problems import kinds
from experiments.misfit.report import figure, table
from experiments.misfit.settings import EPSILONS, NUM_SEEDS, SIZES
from experiments.misfit.study import collect, run_study


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m experiments.misfit", description=__doc__)
    made.add_argument("--size", choices=tuple(SIZES), default="full", help="quick: few records and steps")
    made.add_argument("--seeds", type=shared.positive_number, default=None, help=f"default: {NUM_SEEDS}, quick: 2")
    made.add_argument("--problems", nargs="+", choices=tuple(kinds()), default=list(kinds()), metavar="PROBLEM")
    made.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    made.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=["default"], metavar="METHOD")
    made.add_argument("--output", type=Path, default=None, help="folder of the results (default: beside this file)")
    made.add_argument("--report", action="store_true", help="run nothing: write table and picture anew")
    return made


def main(arguments: Sequence[str] | None = None) -> Path:
    """Run the command; returns the folder written to."""
    given = parser().parse_args(arguments)
    settings = SIZES[given.size]
    folder = given.output or Path(__file__).parent / ("results" if given.size == "full" else f"results_{given.size}")
    seeds = given.seeds or (NUM_SEEDS if given.size == "full" else 2)
    if not given.report:
        with shared_programs():  # runs of one problem compile to the same programs
            run_study(settings, given.problems, given.epsilons, given.methods, seeds, folder, _say)
    content = collect(settings, folder)
    shared.finish(content, folder, table, lambda content, folder: figure(content, folder / "inside.png"))
    return folder


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
