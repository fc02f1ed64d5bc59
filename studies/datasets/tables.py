"""Tables as columns: a dict of NumPy vectors of one length, numbers as float64 and categories as strings."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

Table = dict[str, np.ndarray]
MISSING = "?"


class Split(NamedTuple):
    """A table's published parts."""

    train: Table
    test: Table


def parse_table(text: str, names: Sequence[str], numeric: Collection[str]) -> Table:
    """Comma-separated text as columns.

    Blank lines and lines that start with ``|`` are left out, as is a header line (one whose first cell is
    ``names[0]``); blanks around a cell are removed. Errors name the line and column and quote no cell.

    Parameters
    ----------
    text
        The content of the file.
    names
        Names of all columns, in the file's order.
    numeric
        Which of them hold numbers.

    Examples
    --------
    >>> table = parse_table("age, sex\\n39, Male\\n\\n50, Female\\n", ["age", "sex"], {"age"})
    >>> table["age"].tolist(), table["sex"].tolist()
    ([39.0, 50.0], ['Male', 'Female'])
    """
    cells = list(zip(*_rows(text, len(names), names[0]), strict=True))
    if not cells:
        raise ValueError(f"The file has no rows; expected {len(names)} columns, {names[0]} to {names[-1]}.")
    return {
        name: _numbers(name, column) if name in numeric else _categories(column)
        for name, column in zip(names, cells, strict=True)
    }


def complete_rows(table: Table, missing: str = MISSING) -> Table:
    """The rows in which no category is ``missing``."""
    keep = np.ones(num_rows(table), bool)
    for column in table.values():
        if column.dtype.kind == "U":
            keep &= column != missing
    return select_rows(table, keep)


def select_rows(table: Table, rows: np.ndarray) -> Table:
    """``table`` at a mask or at indices of rows."""
    return {name: column[rows] for name, column in table.items()}


def num_rows(table: Table) -> int:
    return len(next(iter(table.values())))


def _rows(text: str, width: int, first_name: str) -> Iterator[list[str]]:
    reader = csv.reader(text.splitlines(), skipinitialspace=True)
    for row in reader:
        if not row or row[0].startswith("|") or (len(row) == 1 and not row[0].strip()):
            continue
        if row[0].strip() == first_name:
            continue
        if len(row) != width:
            raise ValueError(f"Line {reader.line_num} has {len(row)} cells, expected {width}; is this another file?")
        yield [cell.strip() for cell in row]


def _numbers(name: str, column: Sequence[str]) -> np.ndarray:
    try:
        return np.array(column, np.float64)
    except ValueError:
        raise ValueError(f"Column {name!r} must hold numbers, and some of its cells do not.") from None


def _categories(column: Sequence[str]) -> np.ndarray:
    """The column as an array: its few distinct strings become NumPy's and are then repeated, which is faster."""
    levels: dict[str, int] = {}
    codes = [levels.setdefault(cell, len(levels)) for cell in column]
    return np.array(list(levels))[codes]
