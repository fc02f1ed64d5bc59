"""The committed numbers of the studies of ``dpvi.glm`` are what their tables and ratios are made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpvi.regression import FormulaModel
from experiments.preview.cases import CASES
from experiments.preview.report import table

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PREVIEW = EXPERIMENTS / "preview" / "results"
ONE_LINE = EXPERIMENTS / "one_line" / "results" / "results.json"


def test_the_committed_table_is_made_of_the_committed_numbers():
    assert table(PREVIEW / "results.json") == (PREVIEW / "table.md").read_text(encoding="utf-8")


def test_the_committed_ratio_is_that_of_the_committed_losses():
    found = json.loads(ONE_LINE.read_text(encoding="utf-8"))
    best = min(each["log_loss"] for each in found["grid"])
    mean = sum(each["log_loss"] for each in found["glm"]) / len(found["glm"])
    assert found["ratio"] == pytest.approx(mean / best)
    assert len(found["grid"]) == 20


@pytest.mark.parametrize("name", CASES)
def test_the_declarations_fit_the_formula(name):
    case = CASES[name]
    assert FormulaModel(case.formula, case.schema, case.family).design.names
