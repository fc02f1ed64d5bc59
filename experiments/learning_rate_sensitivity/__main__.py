"""``python -m experiments.learning_rate_sensitivity [--quick] [--output DIR]``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.common import sized_command as shared
from experiments.learning_rate_sensitivity.report import figure, table
from experiments.learning_rate_sensitivity.study import Settings, study

QUICK = Settings(num_sets=20, num_steps=500, lambda_c=(0.25, 1.0, 16.0))
_MODULE = "experiments.learning_rate_sensitivity"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How NA-DPVI's learning rate decides what its posterior is worth.")
    parser.add_argument("--quick", action="store_true", help="fewer data sets, steps and rates")
    parser.add_argument("--output", type=Path, help="folder of the results (default: beside the experiment)")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    content = study(QUICK if options.quick else Settings())
    content["command"] = f"python -m {_MODULE}" + (" --quick" if options.quick else "")
    content["seconds"] = round(time.perf_counter() - started, 1)
    output = options.output or shared.results_folder(_MODULE, shared.QUICK if options.quick else "small")
    shared.finish(content, output, table, lambda content, folder: figure(content, folder / "coverage.png"))


if __name__ == "__main__":
    main()
