"""``python -m experiments.rivals``: run the study, or go on with it, and write numbers and table."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.common import sized_command as shared
from experiments.common.programs import shared_programs
from experiments.rivals.ours import PLANS
from experiments.rivals.report import table
from experiments.rivals.settings import SIZES
from experiments.rivals.study import Options, run_study

_MODULE = "experiments.rivals"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description=__doc__)
    made.add_argument("--quick", action="store_true", help="a few small data sets, to see that it runs")
    made.add_argument("--seeds", type=shared.positive_number, help="data sets of dpvi (default: 40, quick: 1)")
    made.add_argument("--plan", choices=PLANS, default=PLANS[0], help="dpvi's: budget and columns alone, or more")
    made.add_argument("--who", choices=("all", "rivals", "ours"), default="all", help="run only some; all are reported")
    made.add_argument("--binagg", type=Path, metavar="FOLDER", help="a clone of Shuronglin/BinAgg")
    made.add_argument("--diffprivlib", type=Path, metavar="PYTHON", help="a Python that has diffprivlib")
    made.add_argument("--output", type=Path, help="folder of the results (default: beside the experiment)")
    return made


def main(arguments: Sequence[str] | None = None) -> Path:
    """Run the command; cells of earlier calls with the same settings and folder are kept."""
    given = parser().parse_args(arguments)
    size = shared.QUICK if given.quick else "small"
    settings = SIZES[size]
    output = given.output or shared.results_folder(_MODULE, size)
    content = shared.open_results(output / "results.json", _MODULE, settings, size, {})
    content["command"] = f"python -m {_MODULE}" + (" --quick" if given.quick else "")
    seeds = given.seeds or (1 if given.quick else 40)
    options = Options(seeds, given.plan, given.who, given.binagg, given.diffprivlib)
    started = time.perf_counter()

    def keep(content: dict[str, Any]) -> None:
        shared.write_json(content, output)
        last = content["cells"][-1]
        print(f"{time.perf_counter() - started:.0f} s: {last['setting']}, {last['method']}, {last['last']}", flush=True)

    with shared_programs():
        run_study(settings, content, keep, options)
    shared.finish(content, output, table, lambda content, folder: None)
    return output


if __name__ == "__main__":
    main()
