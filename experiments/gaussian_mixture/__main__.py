"""``python -m experiments.gaussian_mixture``: run the study, or go on with it, and write numbers, table and figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.cells import CellStudy, run_command
from experiments.gaussian_mixture.report import figure, table
from experiments.gaussian_mixture.settings import SIZES
from experiments.gaussian_mixture.study import run_study

STUDY = CellStudy(
    name="gaussian_mixture",
    description=__doc__,
    sizes=SIZES,
    empty={"references": {}, "cells": []},
    run=run_study,
    table=table,
    figures={"log_likelihood.png": figure},
)


def main(arguments: Sequence[str] | None = None) -> Path:
    """Run the command; cells of earlier calls with the same settings and folder are kept."""
    return run_command(STUDY, arguments)


if __name__ == "__main__":
    main()
