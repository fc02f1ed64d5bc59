"""What one visit to the studio knows: declarations, a question, a budget, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpvi.studio.declarations import Declared
from dpvi.studio.jobs import Jobs
from dpvi.table import Schema

RESULT, REPORT, BUNDLE = "result.npz", "report.html", "dpvi-bundle.zip"


@dataclass
class Session:
    """State of the wizard. ``folder`` holds the table and what a run wrote; it ends with the studio."""

    folder: Path
    table: str = ""  # the name that the user knows
    rows: list[Declared] = field(default_factory=list)
    schema: Schema | None = None
    response: str = ""
    predictors: list[str] = field(default_factory=list)
    family: str = ""
    formula: str = ""
    epsilon: float = 1.0
    delta: float = 1e-6
    unit: str = "one person"
    rows_per_unit: int = 1
    ledger: str = ""
    num_records: int = 1000
    checked: dict[str, Any] = field(default_factory=dict)  # what the question comes to
    answer: dict[str, Any] = field(default_factory=dict)  # of the run
    jobs: Jobs = field(default_factory=Jobs)

    @property
    def path(self) -> Path:
        """Where the table lies."""
        return self.folder / "table.csv"

    def forget_run(self) -> None:
        """Drop what a run wrote, because the question changed."""
        self.answer = {}

    def job(self) -> dict[str, Any]:
        """All that a job needs to know."""
        if self.schema is None:
            raise ValueError("Declare the columns first.")
        return {
            "table": str(self.path),
            "folder": str(self.folder),
            "schema": self.schema.to_dict(),
            "formula": self.formula,
            "family": self.family,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "rows_per_unit": self.rows_per_unit,
            "ledger": self.ledger,
        }
