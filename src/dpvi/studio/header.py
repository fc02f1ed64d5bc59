"""The first line of a CSV file, and nothing else of it: names of columns are what the studio shows."""

from __future__ import annotations

import csv
import io
from pathlib import Path

_FIRST = 2**16  # bytes: a header is never longer
_REMEDY = "save it as CSV with commas, in UTF-8"
_MADE_BY = {
    b"PK\x03\x04": "an Excel workbook or another archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook of the old kind",
    b"PAR1": "a Parquet file",
    b"%PDF": "a PDF",
    b"\x1f\x8b": "a compressed file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}


def header_of(path: Path, name: str) -> tuple[str, ...]:
    """Names of the columns of the CSV file at ``path``, which the user knows as ``name``.

    Raises
    ------
    ValueError
        With one sentence, where the file is no such table. It holds nothing of a record.
    """
    with open(path, "rb") as file:
        start = file.read(_FIRST)
    if not start.strip():
        raise ValueError(f"{name} is empty; choose a file with a header and records.")
    for magic, kind in _MADE_BY.items():
        if start.startswith(magic):
            raise ValueError(f"{name} is {kind} and not a CSV file; {_REMEDY}.")
    end = min((place for place in (start.find(b"\n"), start.find(b"\r")) if place >= 0), default=len(start))
    try:
        line = start[:end].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"The header of {name} is not text in UTF-8; {_REMEDY}.") from None
    if "\x00" in line:
        raise ValueError(f"{name} holds bytes that no text has; {_REMEDY}.")
    return _checked(next(csv.reader(io.StringIO(line)), []), name)


def _checked(names: list[str], file: str) -> tuple[str, ...]:
    if len(names) == 1:
        for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if mark in names[0]:
                raise ValueError(f"The columns of {file} are separated by {word}; {_REMEDY}.")
    if any(_is_number(each) for each in names):
        raise ValueError(f"The first line of {file} holds numbers and not names; add a line with the columns' names.")
    if not all(each.strip() for each in names):
        raise ValueError(f"A column of {file} has no name; give every column a name in the first line.")
    if len(set(names)) < len(names):
        raise ValueError(f"The header of {file} names a column twice; give every column a name of its own.")
    return tuple(names)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
