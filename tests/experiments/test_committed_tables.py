"""Committed tables are what their reports make of the committed numbers; nobody wrote into them by hand."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
REPORTED = (
    *("abalone", "adult_logistic", "full_rank", "gaussian_mixture", "generative_model", "gradient_scales"),
    *("hierarchical", "learning_rate_sensitivity", "misfit", "rivals", "vae"),
)
FOLDERS = [
    path.parent
    for name in REPORTED
    for path in sorted((EXPERIMENTS / name).glob("results*/results.json"))
    if not path.parent.name.endswith("quick")
]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(EXPERIMENTS).as_posix())
def test_a_committed_table_is_made_of_the_committed_numbers(folder):
    report = importlib.import_module(f"experiments.{folder.parent.name}.report")
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert report.table(content) == (folder / "table.md").read_text(encoding="utf-8")
