"""``python -m experiments.exponential_families [--quick] [--num-datasets K] [--methods …] [--output DIR]``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.coverage.command import run_experiment
from experiments.exponential_families.cases import CASES

TITLE = "Table 1 of noise-aware DPVI: exponential families, ε = 0.1"


def main(arguments: Sequence[str] | None = None) -> Path:
    quick = ["dirichlet_categorical"]
    return run_experiment("experiments.exponential_families", TITLE, CASES, arguments, quick_cases=quick)


if __name__ == "__main__":
    main()
