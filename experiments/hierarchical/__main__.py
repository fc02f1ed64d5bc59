"""``python -m experiments.hierarchical``: run the study, or go on with it, and write numbers, table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.cells import CellStudy, run_command
from experiments.hierarchical.report import figure, table
from experiments.hierarchical.settings import SIZES
from experiments.hierarchical.study import run_study

STUDY = CellStudy(
    name="hierarchical",
    description=__doc__,
    sizes=SIZES,
    empty={"baselines": {}, "cells": []},
    run=run_study,
    table=table,
    figures={"auc.png": figure},
)


def main(arguments: Sequence[str] | None = None) -> Path:
    """Run the command; cells of earlier calls with the same settings and folder are kept."""
    return run_command(STUDY, arguments)


if __name__ == "__main__":
    main()
