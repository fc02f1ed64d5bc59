"""What a person says of a column in the form, turned into a declaration, or one sentence about what is lacking."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from dpvi.table import Boolean, Categorical, Column, Count, Numeric, Ordinal, Schema, SchemaError

UNUSED = "not used"
KINDS = {
    UNUSED: "Not used",
    "numeric": "Number",
    "count": "Count",
    "boolean": "Yes / no",
    "categorical": "Categories",
    "ordinal": "Ordered categories",
}


@dataclass
class Declared:
    """One row of the form, as typed."""

    name: str
    kind: str = UNUSED
    lower: str = ""
    upper: str = ""
    levels: str = ""
    other: str = ""
    missing: bool = False

    def column(self) -> Column:
        """The declaration."""
        if self.kind == "numeric":
            return Numeric(self._number("lower"), self._number("upper"), missing=self.missing)
        if self.kind == "count":
            upper = self._number("upper")
            if upper != int(upper):
                raise SchemaError(f"The largest count of {self.name} must be a whole number, got {self.upper}.")
            return Count(int(upper), missing=self.missing)
        if self.kind == "boolean":
            return Boolean(missing=self.missing)
        levels, other = self._levels(), self.other.strip() or None
        if other is not None and other not in levels:
            raise SchemaError(
                f"The level that collects others, {other}, is not among the levels of {self.name}; add it to them."
            )
        make = Ordinal if self.kind == "ordinal" else Categorical
        return make(levels, other=other, missing=self.missing)

    def _number(self, end: str) -> float:
        text = getattr(self, end).strip()
        what = f"{'smallest' if end == 'lower' else 'largest'} value of {self.name}"
        if not text:
            raise SchemaError(
                f"The {what} is lacking; write what is publicly known, such as a limit from the code book."
            )
        try:
            return float(text)
        except ValueError:
            raise SchemaError(f"The {what} must be a number with a point for decimals, got {text!r}.") from None

    def _levels(self) -> tuple[str, ...]:
        lines = [line for line in self.levels.splitlines() if line.strip()]
        cells = [
            cell.strip() for row in csv.reader(io.StringIO("\n".join(lines)), skipinitialspace=True) for cell in row
        ]
        levels = tuple(cell for cell in cells if cell)
        if len(levels) < 2 or len(set(levels)) < len(levels):
            raise SchemaError(f"{self.name} needs at least two different levels, separated by commas.")
        return levels


def schema_of(rows: list[Declared]) -> Schema:
    """The schema of all columns that are used."""
    used = {row.name: row.column() for row in rows if row.kind != UNUSED}
    if len(used) < 2:
        raise SchemaError("Declare at least two columns: a response and a predictor.")
    return Schema(used)


def rows_from(path: Path, rows: list[Declared]) -> None:
    """Fill the form from a schema that was saved before; columns that the table lacks are refused."""
    schema = Schema.load(path)
    known = {row.name: row for row in rows}
    lacking = [name for name in schema.columns if name not in known]
    if lacking:
        raise SchemaError(
            f"The schema declares {', '.join(lacking)}, which the table does not have; use its own schema."
        )
    for name, column in schema.columns.items():
        row, entry = known[name], column.to_dict()
        if entry["kind"] not in KINDS:
            raise SchemaError(f"Column {name} is a {entry['kind']}, which the studio cannot declare; use dpvi fit.")
        row.kind, row.missing = entry["kind"], column.missing
        row.lower, row.upper = (str(entry.get(end, "")) for end in ("lower", "upper"))
        row.levels = ", ".join(_quoted(str(level)) for level in entry.get("levels", ()))
        row.other = str(entry.get("other", ""))


def _quoted(level: str) -> str:
    return f'"{level}"' if "," in level else level
