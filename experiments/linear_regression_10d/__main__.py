"""``python -m experiments.linear_regression_10d [--quick] [--num-datasets K] [--methods …] [--output DIR]``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.coverage.command import run_experiment
from experiments.linear_regression_10d.cases import CASES

TITLE = "Table 2 of noise-aware DPVI: Bayesian linear regression with ten covariates"


def main(arguments: Sequence[str] | None = None) -> Path:
    return run_experiment("experiments.linear_regression_10d", TITLE, CASES, arguments, quick_cases=["epsilon_1"])


if __name__ == "__main__":
    main()
