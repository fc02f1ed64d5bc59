"""Tables of any make as plain columns: pandas, polars, pyarrow, a mapping of arrays, a CSV or a Parquet file.

Nothing is inferred here. A column comes out as an array of what it holds and a mask of what is missing.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpvi.table.base import SchemaError


class RawColumn(NamedTuple):
    """The values of a column as they came, and which of them are missing (their values mean nothing)."""

    values: np.ndarray
    absent: np.ndarray


def read_columns(table: Any, names: Iterable[str], markers: Collection[str]) -> dict[str, RawColumn]:
    """Take the columns ``names`` out of ``table``; others are left alone.

    Parameters
    ----------
    table
        A pandas or polars data frame, a pyarrow table, a mapping of arrays, or the path of a ``.csv`` or ``.parquet``
        file.
    names
        The columns to take.
    markers
        Texts that stand for a missing value.
    """
    found = _columns_of(table)
    wanted = list(names)
    lacking = [name for name in wanted if name not in found]
    if lacking:
        raise SchemaError(
            f"The table lacks {_listed(lacking)}, which the schema declares; correct the header or the schema."
        )
    columns = {name: _raw(found[name], markers) for name in wanted}
    lengths = {len(column.values) for column in columns.values()}
    if len(lengths) > 1:
        raise SchemaError(f"The columns {_listed(wanted)} must have one value per record, but their lengths differ.")
    if lengths == {0}:
        raise SchemaError("The table holds a header but no records; check the file or the query it came from.")
    return columns


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """A CSV file with a header, every cell as text."""
    header, *records = _csv_rows(path) or [[]]
    if not header:
        raise SchemaError(f"{path.name} is empty; expected a header with the names of the columns.")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise SchemaError(f"The cells of {path.name} are not divided by commas; save it again as CSV with commas.")
    if len(set(header)) < len(header):
        raise SchemaError(f"The header of {path.name} names a column twice; give every column a name of its own.")
    # The line number would say where a record lies; the custodian can find it with any editor.
    if any(len(row) != len(header) for row in records):
        raise SchemaError(f"Some lines of {path.name} have another number of cells than its header; repair the file.")
    cells = zip(*records, strict=True) if records else ([] for _ in header)
    return {name: np.array(column, dtype=object) for name, column in zip(header, cells, strict=True)}


def _csv_rows(path: Path) -> list[list[str]]:
    """All lines that are not empty; what is no text is refused without a word of what it holds."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return [row for row in csv.reader(file) if row]
    except UnicodeDecodeError:
        reason = "it is not text in UTF-8; save it again with that encoding (in Excel: CSV UTF-8)"
    except csv.Error:
        reason = "it is not CSV; export it again"
    raise SchemaError(f"{path.name} cannot be read: {reason}.")


def need(package: str) -> Any:
    """Import an optional package, or say how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(
            f"This kind of table needs {package.split('.')[0]}, which is optional: install dpvi[tables] or "
            f"{package.split('.')[0]}."
        ) from None


def _columns_of(table: Any) -> Mapping[str, Any]:
    if isinstance(table, (str, Path)):
        return _file_columns(Path(table))
    if isinstance(table, Mapping):
        return table
    maker = type(table).__module__.split(".")[0]
    if maker == "pyarrow" and hasattr(table, "column_names"):
        return {name: table.column(name) for name in table.column_names}
    if maker in ("pandas", "polars") and hasattr(table, "columns"):
        return {str(name): table[name] for name in table.columns}
    raise TypeError(
        "A table is a pandas or polars data frame, a pyarrow table, a mapping of arrays, or the path of a .csv or "
        f".parquet file, got {type(table).__name__}."
    )


def _file_columns(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".csv":
        return read_csv(path)
    if path.suffix == ".parquet":
        return _columns_of(parquet_file(path, "read_table"))
    raise SchemaError(f"A table is read from a .csv or .parquet file, got {path.name!r}; convert it first.")


def parquet_file(path: Path, reader: str) -> Any:
    """What a function of ``pyarrow.parquet`` reads of a file; one that is none is refused."""
    parquet = need("pyarrow.parquet")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}; check its name.")
    try:
        return getattr(parquet, reader)(path)
    except ValueError:  # what pyarrow raises of a file that is something else
        pass
    raise SchemaError(f"{path.name} is not a Parquet file, or it is damaged; export it again.")


def _raw(column: Any, markers: Collection[str]) -> RawColumn:
    maker = type(column).__module__.split(".")[0]
    if maker == "pandas":
        absent = column.isna().to_numpy(dtype=bool)
        plain = isinstance(column.dtype, np.dtype)
        values = column.to_numpy() if plain else column.to_numpy(dtype=object)
    elif maker == "polars":
        absent = column.is_null().to_numpy().astype(bool)
        numeric = column.dtype.is_numeric() and not column.dtype.is_decimal()
        values = column.to_numpy() if numeric else _objects(column.to_list())
    else:
        values = _arrow_values(column) if maker == "pyarrow" else np.asarray(column)
        absent = np.zeros(len(values), dtype=bool)
    if values.ndim != 1:
        raise SchemaError("Every column of a table must have one value per record, one has more than one axis.")
    return RawColumn(values, absent | _is_absent(values, markers))


def _arrow_values(column: Any) -> np.ndarray:
    if hasattr(column.type, "value_type"):
        column = column.cast(column.type.value_type)  # a dictionary as the values it stands for
    return column.to_numpy(zero_copy_only=False) if hasattr(column, "buffers") else column.to_numpy()


def _is_absent(values: np.ndarray, markers: Collection[str]) -> np.ndarray:
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind == "M":
        return np.isnat(values)
    if values.dtype.kind not in "OUT":
        return np.zeros(len(values), dtype=bool)
    marked = frozenset(markers)
    return np.array([_absent(value, marked) for value in values.tolist()], dtype=bool)


def _absent(value: Any, markers: frozenset[str]) -> bool:
    if isinstance(value, str):
        return value.strip() in markers
    return value is None or (isinstance(value, (float, np.floating, np.datetime64)) and value != value)


def _objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))
