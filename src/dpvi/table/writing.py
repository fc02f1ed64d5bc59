"""Decoded columns as tables of any make, and as files that are whole or not there."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpvi.table.base import Column, SchemaError
from dpvi.table.levels import Boolean, Leveled, Ordinal
from dpvi.table.quantities import Date
from dpvi.table.reading import need

FORMATS = ("csv", "parquet")


class Decoded(NamedTuple):
    """A column in its own units, and which of its values are missing."""

    column: Column
    values: np.ndarray
    absent: np.ndarray


def build(columns: Mapping[str, Decoded], to: str) -> Any:
    """``columns`` as a ``"columns"`` dict, a ``"pandas"`` or ``"polars"`` data frame or an ``"arrow"`` table.

    ===================  ======================  ====================  ======================
    column               pandas                  polars                arrow
    ===================  ======================  ====================  ======================
    numeric, count       the declared dtype      the declared dtype    the declared dtype
    … may be missing     nullable integer        null                  null
    categorical          category                Enum                  dictionary
    ordinal              ordered category        Enum                  ordered dictionary
    levels are numbers   category                Int64                 dictionary
    boolean              bool, or boolean        Boolean               bool
    date                 datetime64[s]           Date                  date32
    ===================  ======================  ====================  ======================
    """
    makers = {"columns": _plain, "pandas": _pandas, "polars": _polars, "arrow": _arrow}
    if to not in makers:
        raise ValueError(f"to must be one of {', '.join(map(repr, makers))}, got {to!r}.")
    return makers[to](columns)


def write(tables: Iterator[Mapping[str, Decoded]], path: Path, missing_marker: str = "") -> None:
    """Write tables of the same columns one after the other into one ``.csv`` or ``.parquet`` file.

    Memory holds one table at a time. The file appears when it is complete.
    """
    writers = {".csv": _write_csv, ".parquet": _write_parquet}
    if path.suffix not in writers:
        raise SchemaError(f"A table is written to a .csv or .parquet file, got {path.name!r}.")
    with whole_or_nothing(path) as temporary:
        writers[path.suffix](tables, temporary, missing_marker)


@contextmanager
def whole_or_nothing(path: Path) -> Iterator[Path]:
    """A path beside ``path`` that takes its place when the block ends without an error."""
    temporary = path.with_name(path.name + ".partial")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _plain(columns: Mapping[str, Decoded]) -> dict[str, np.ndarray]:
    return {name: _with_gaps(each) if each.column.missing else each.values for name, each in columns.items()}


def _with_gaps(decoded: Decoded) -> np.ndarray:
    values = decoded.values.astype(object)
    values[decoded.absent] = None
    return values


def _pandas(columns: Mapping[str, Decoded]) -> Any:
    pandas = need("pandas")
    return pandas.DataFrame({name: _pandas_column(pandas, each) for name, each in columns.items()})


def _pandas_column(pandas: Any, decoded: Decoded) -> Any:
    column, values, absent = decoded
    if isinstance(column, Leveled):
        dtype = pandas.CategoricalDtype(list(column.levels), ordered=isinstance(column, Ordinal))
        return pandas.Categorical.from_codes(np.where(absent, -1, _codes(decoded)), dtype=dtype)
    if isinstance(column, Date):
        return np.where(absent, np.datetime64("NaT"), values).astype("datetime64[s]")
    if not column.missing:
        return values
    if values.dtype.kind == "f":
        return np.where(absent, values.dtype.type(np.nan), values)
    nullable = "boolean" if isinstance(column, Boolean) else values.dtype.name.replace("int", "Int").replace("uI", "UI")
    return pandas.array(_with_gaps(decoded), dtype=nullable)


def _polars(columns: Mapping[str, Decoded]) -> Any:
    polars = need("polars")
    return polars.DataFrame([_polars_column(polars, name, each) for name, each in columns.items()])


def _polars_column(polars: Any, name: str, decoded: Decoded) -> Any:
    column, values, absent = decoded
    if isinstance(column, Leveled) and isinstance(column.levels[0], str):
        series = polars.Series(name, values.tolist(), dtype=polars.Enum(list(column.levels)))
    else:
        series = polars.Series(name, values)
    if not absent.any():
        return series
    present = polars.Series(~absent)
    return polars.select(polars.when(present).then(series).otherwise(None).alias(name)).to_series()


def _arrow(columns: Mapping[str, Decoded]) -> Any:
    pyarrow = need("pyarrow")
    return pyarrow.table({name: _arrow_column(pyarrow, each) for name, each in columns.items()})


def _arrow_column(pyarrow: Any, decoded: Decoded) -> Any:
    column, values, absent = decoded
    if isinstance(column, Leveled):
        codes = pyarrow.array(_codes(decoded).astype(np.int32), mask=absent)
        return pyarrow.DictionaryArray.from_arrays(
            codes, pyarrow.array(list(column.levels)), ordered=isinstance(column, Ordinal)
        )
    return pyarrow.array(values, mask=absent)


def _codes(decoded: Decoded) -> np.ndarray:
    assert isinstance(decoded.column, Leveled)
    place = {level: code for code, level in enumerate(decoded.column.levels)}
    return np.array([place[level] for level in decoded.values.tolist()], dtype=np.int64)


def _write_csv(tables: Iterator[Mapping[str, Decoded]], path: Path, missing_marker: str) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for number, columns in enumerate(tables):
            if number == 0:
                writer.writerow(list(columns))
            writer.writerows(zip(*(_cells(each, missing_marker) for each in columns.values()), strict=True))


def _cells(decoded: Decoded, missing_marker: str) -> Sequence[Any]:
    cells = decoded.values.astype(str).tolist() if isinstance(decoded.column, Date) else decoded.values.tolist()
    if not decoded.absent.any():
        return cells
    return [missing_marker if gone else cell for cell, gone in zip(cells, decoded.absent.tolist(), strict=True)]


def _write_parquet(tables: Iterator[Mapping[str, Decoded]], path: Path, missing_marker: str) -> None:
    parquet = need("pyarrow.parquet")
    writer = None
    try:
        for columns in tables:
            table = _arrow(columns)
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
