"""A first schema from a file of records: for a custodian to correct, not for use as it is.

Bounds and levels that are read from records are themselves statistics of them, without noise. So a draft is text with
every such entry marked, and :meth:`Schema.load` refuses it until someone has vouched for what it says.
"""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.table import toml
from dpvi.table.base import Column, SchemaError
from dpvi.table.levels import Boolean, Categorical
from dpvi.table.quantities import Date, Numeric
from dpvi.table.reading import RawColumn, parquet_file, read_columns, read_csv
from dpvi.table.schema import Schema

_MARK = "READ FROM THE RECORDS"
_HEADER = """\
# DRAFT of a schema, SENSITIVE until confirmed: entries marked READ FROM THE RECORDS are statistics of the records.
#
# For every column: replace bounds by ones that are known without the records, and levels by the questionnaire's or
# code book's; name a level in other = "..." that collects unlisted values; choose the kind (numeric, count, date,
# categorical, ordinal, boolean). For ordinal columns put the levels into rising order.
# When every marked entry is public knowledge, set confirmed_public = true; until then the schema is refused.

"""
_MAX_LEVELS = 100


def draft_schema(path: str | Path, *, missing_markers: tuple[str, ...] = ("",), max_levels: int = _MAX_LEVELS) -> str:
    """Text of a TOML schema guessed from a CSV or Parquet file.

    Numbers become numeric columns with bounds rounded outwards to one digit of their range, days become dates with
    bounds rounded outwards to years, 0/1 and true/false become booleans, other text becomes categories.

    Parameters
    ----------
    path
        A ``.csv`` or ``.parquet`` file.
    missing_markers
        Texts that stand for a missing value.
    max_levels
        A column of text with more different values is left out with a comment: it looks like a name or a number of
        a person.

    Returns
    -------
    str
        TOML with ``confirmed_public = false``.

    Guarantees
    ----------
    None: the text is computed from records without noise. It is for the custodian.
    """
    file = Path(path)
    raw = read_columns(file, _names(file), missing_markers)
    columns: dict[str, Column] = {}
    left_out = []
    for name, column in raw.items():
        guessed = _guess(name, column, max_levels)
        if guessed is None:
            left_out.append(f"# Column {name!r} is left out: empty, constant or with more than {max_levels} texts.")
        else:
            columns[name] = guessed
    if not columns:
        raise SchemaError(f"No column of {file.name} can be described; declare the schema by hand.")
    content = Schema(columns, missing_markers).to_dict()
    content["columns"] = {
        name: {**entry, "missing": columns[name].missing} for name, entry in content["columns"].items()
    }
    marked = ("kind", "lower", "upper", "integer", "levels", "missing")
    comments = {(name, entry): _MARK for name in columns for entry in marked}
    text = toml.to_text({"confirmed_public": False, **content}, comments)
    return _HEADER + "".join(f"{line}\n" for line in left_out) + text


def _names(path: Path) -> list[str]:
    if path.suffix == ".csv":
        return list(read_csv(path))
    if path.suffix == ".parquet":
        return parquet_file(path, "read_schema").names
    raise SchemaError(f"A schema is drafted from a .csv or .parquet file, got {path.name!r}.")


def _guess(name: str, raw: RawColumn, max_levels: int) -> Column | None:
    values, missing = raw.values[~raw.absent], bool(raw.absent.any())
    different = set(values.tolist())
    if len(different) < 2:
        return None
    for guess in (_boolean, _numeric, _date):
        column = guess(name, values, missing)
        if column is not None:
            return column
    if len(different) > max_levels:
        return None
    return Categorical(tuple(sorted(str(level) for level in different)), missing=missing)


def _boolean(name: str, values: np.ndarray, missing: bool) -> Column | None:
    try:
        Boolean().encode(name, values, strict=True)
    except SchemaError:
        return None
    return Boolean(missing=missing)


def _numeric(name: str, values: np.ndarray, missing: bool) -> Column | None:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if values.dtype.kind == "M" or not np.isfinite(numbers).all():
        return None
    low, high = float(numbers.min()), float(numbers.max())
    digit = 10.0 ** math.floor(math.log10(high - low))
    integer = bool(np.all(numbers == np.rint(numbers)))
    lower, upper = math.floor(low / digit) * digit, math.ceil(high / digit) * digit
    bounds: tuple[Any, Any] = (int(lower), int(upper)) if integer else (lower, upper)
    return Numeric(*bounds, integer=integer, dtype=_stored(values, integer), missing=missing)


def _stored(values: np.ndarray, integer: bool) -> str:
    """The dtype of a typed column where it is not the default one; whole floats come from integers with gaps."""
    default = {"i": "int64", "u": "int64", "f": "float64"}.get(values.dtype.kind)
    fitting = values.dtype.kind in ("iu" if integer else "f")
    return values.dtype.name if default and fitting and values.dtype.name not in (default, "float16") else ""


def _date(name: str, values: np.ndarray, missing: bool) -> Column | None:
    try:
        days = np.asarray(values, dtype="datetime64[us]").astype("datetime64[D]")
    except (TypeError, ValueError):
        return None
    if np.isnat(days).any() or days.min() == days.max():
        return None
    first, last = days.min().item(), days.max().item()
    if not (isinstance(first, datetime.date) and isinstance(last, datetime.date)):  # years that no calendar has
        return None
    return Date(datetime.date(first.year, 1, 1), datetime.date(last.year, 12, 31), missing=missing)


def confirmed_text(draft: str) -> str:
    """A draft that somebody vouches for, without its marks; anything that would be no schema then is refused."""
    content = toml.from_text(draft.replace("confirmed_public = false", "confirmed_public = true", 1))
    text = toml.to_text(Schema.from_dict(content).to_dict())
    return text.replace("format_version", "confirmed_public = true\nformat_version", 1)
