"""``python -m experiments.abalone``: run the study, or go on with it, and write numbers, table and figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.abalone.report import figure, table
from experiments.abalone.settings import SIZES
from experiments.abalone.study import run_study
from experiments.common.cells import CellStudy, run_command

STUDY = CellStudy(
    name="abalone",
    description=__doc__,
    sizes=SIZES,
    empty={"references": {}, "cells": []},
    run=run_study,
    table=table,
    figures={"accuracy.png": figure},
)


def main(arguments: Sequence[str] | None = None) -> Path:
    """Run the command; cells of earlier calls with the same settings and folder are kept."""
    return run_command(STUDY, arguments)


if __name__ == "__main__":
    main()
