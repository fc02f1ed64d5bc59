"""``python -m experiments.learning_rate_sensitivity [--quick] [--output DIR]``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.learning_rate_sensitivity.report import figure, table
from experiments.learning_rate_sensitivity.study import Settings, study

QUICK = Settings(num_sets=20, num_steps=500, lambda_c=(0.25, 1.0, 16.0))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How NA-DPVI's learning rate decides what its posterior is worth.")
    parser.add_argument("--quick", action="store_true", help="fewer data sets, steps and rates")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    content = study(QUICK if options.quick else Settings())
    content["command"] = "python -m experiments.learning_rate_sensitivity" + (" --quick" if options.quick else "")
    content["seconds"] = round(time.perf_counter() - started, 1)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "results.json").write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    text = table(content)
    (options.output / "table.md").write_text(text)
    figure(content, options.output / "coverage.png")
    print(text)


if __name__ == "__main__":
    main()
