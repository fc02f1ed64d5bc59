"""``python -m experiments.gradient_scales [--quick] [--data DIR] [--output DIR]``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.adult_logistic.problem import make_problem
from experiments.gradient_scales.report import figure, table
from experiments.gradient_scales.study import Settings, study

QUICK = Settings(num_draws=2, simulated_records=2000)
SIZES = {"full": Settings(num_draws=200), "gpu": Settings(num_draws=200), "small": Settings()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How large the two parts of a record's gradient are.")
    parser.add_argument("--quick", action="store_true", help="few draws on simulated records")
    parser.add_argument(
        "--size", choices=tuple(SIZES), default="small", help="200 draws for full and gpu, 20 for small"
    )
    parser.add_argument(
        "--data", type=Path, default=None, help="folder with Adult (default: DPVI_DATA, then the cache)"
    )
    parser.add_argument("--download", action="store_true", help="fetch Adult where it is missing")
    parser.add_argument("--output", type=Path, default=None, help="folder of the results (default: beside this file)")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    settings = QUICK if options.quick else SIZES[options.size]
    problem = make_problem(settings.simulated_records, options.data, options.download)
    content = study(problem, settings)
    content["data"], content["num_records"] = problem.name, len(problem.labels)
    size = "" if options.size == "small" else f" --size {options.size}"
    content["command"] = "python -m experiments.gradient_scales" + (" --quick" if options.quick else size)
    content["seconds"] = round(time.perf_counter() - started, 1)
    output = options.output or Path(__file__).parent / ("results_quick" if options.quick else "results")
    text = table(content)
    output.mkdir(parents=True, exist_ok=True)
    (output / "results.json").write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")
    (output / "table.md").write_text(text, encoding="utf-8")
    figure(content, output / "norms.png")
    print(text)


if __name__ == "__main__":
    main()
