"""Parquet and Arrow files: tables on disk, read group by group where a row was drawn.

These formats keep rows in groups (row groups, record batches) that are decoded as a whole, so drawing one row reads the
wanted columns of its group. Positions of many steps are asked for at once, which reads a group once for all of them.
Where reading dominates, convert once to ``.npy`` files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpvi.records.arrays import check_fits
from dpvi.records.sources.arrow_files import FileFormat, Kind, kind_of, open_file, values_of
from dpvi.records.sources.base import SourceError, Stamp, take_from_parts
from dpvi.records.sources.extents import Held
from dpvi.records.sources.folders import files_below

Columns = Mapping[str, str | Sequence[str]]

_ENDINGS: dict[FileFormat, tuple[str, ...]] = {"parquet": (".parquet",), "arrow": (".arrow", ".feather")}


class _File:
    """One Parquet or Arrow (IPC) file with the columns that are wanted."""

    def __init__(self, path: Path, file_format: FileFormat, columns: Columns | None) -> None:
        self.stamp = Stamp.of(path)
        self._format: FileFormat = file_format
        with open_file(path, file_format) as reader:
            schema, self._group_rows = reader.schema, reader.group_rows
        self.num_rows = sum(self._group_rows)
        wanted = columns or {name: name for name in schema.names}
        self._columns = {name: [each] if isinstance(each, str) else list(each) for name, each in wanted.items()}
        self._kinds = {each: kind_of(path, schema, each) for names in self._columns.values() for each in names}
        self.types = {name: self._type(name, isinstance(wanted[name], str)) for name in wanted}

    def _type(self, name: str, single: bool) -> Kind:
        """What an argument of the model gets: a column, or several side by side."""
        path, kinds = self.stamp.path, [self._kinds[each] for each in self._columns[name]]
        if single:
            return kinds[0]
        if not kinds or any(kind.shape for kind in kinds):
            raise SourceError(f"{path}: {name!r} must be made of one or more columns of single numbers.")
        return Kind(np.result_type(*(kind.dtype for kind in kinds)), (len(kinds),))

    def take(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        self.stamp.check()
        try:
            return self._read(rows)
        finally:  # another file in its place explains whatever went wrong, and may as well be read without a complaint
            self.stamp.check()

    def _read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        starts = np.cumsum([0, *self._group_rows])
        cuts = np.searchsorted(rows, starts)
        pieces = [{name: np.zeros((0, *kind.shape), kind.dtype) for name, kind in self.types.items()}]
        with open_file(self.stamp.path, self._format) as reader:
            for group in np.flatnonzero(np.diff(cuts)).tolist():
                inside = rows[cuts[group] : cuts[group + 1]] - starts[group]
                pieces.append(self._arrays(reader.read(group, list(self._kinds)).take(inside)))
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in self.types}

    def _arrays(self, table: Any) -> dict[str, np.ndarray]:
        values = {each: values_of(self.stamp.path, table, each, kind) for each, kind in self._kinds.items()}
        for name, names in self._columns.items():
            for each in names if self.types[name].dtype.kind in "iu" else ():  # beside floats they become floats
                check_fits(values[each], f"{self.stamp.path}, column {each!r},", SourceError)
        return {
            name: np.stack([values[each] for each in names], axis=1).astype(self.types[name].dtype)
            if self.types[name].shape != self._kinds[names[0]].shape
            else values[names[0]]
            for name, names in self._columns.items()
        }


class TableSource:
    """Records from :func:`open_parquet` or :func:`open_arrow`."""

    def __init__(self, files: list[_File]) -> None:
        self._files = files
        self._starts = np.cumsum([0, *(file.num_rows for file in files)])
        self.num_records = int(self._starts[-1])
        self.shapes = {
            name: jax.ShapeDtypeStruct((self.num_records, *shape), dtype)
            for name, (dtype, shape) in files[0].types.items()
        }

    def take(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return take_from_parts(self._files, self._starts, rows)

    def extents(self) -> list[Held]:
        """Which files these are."""
        return [Held((file.stamp,)) for file in self._files]

    def check_unchanged(self) -> None:
        for file in self._files:
            file.stamp.check()


def open_parquet(path: str | Path, columns: Columns | None = None) -> TableSource:
    """Records in Parquet files, read when they are drawn.

    Parameters
    ----------
    path
        A file, or a folder: then all ``.parquet`` files in it and in folders below, in the order of their paths, links
        followed. Names that begin with ``_`` or ``.`` are passed over; a file that two paths lead to is refused, since
        its records would count twice. Copies are not recognised.
    columns
        ``{argument of the model: column, or list of columns that become a matrix}``. By default every column under its
        own name. Columns hold numbers, booleans or lists of fixed length of them.

    Returns
    -------
    What :func:`dpvi.fit` takes as ``data``.
    """
    return _open(Path(path), "parquet", columns)


def open_arrow(path: str | Path, columns: Columns | None = None) -> TableSource:
    """Records in Arrow IPC files (``.arrow``, ``.feather``); parameters and folders as in :func:`open_parquet`."""
    return _open(Path(path), "arrow", columns)


def _open(path: Path, file_format: FileFormat, columns: Columns | None) -> TableSource:
    paths = files_below(path, _ENDINGS[file_format]) if path.is_dir() else [path]
    if not paths:
        raise SourceError(f"{path} holds no {' or '.join(_ENDINGS[file_format])} file.")
    files = [_File(each, file_format, columns) for each in paths]
    first = files[0]
    for other in files[1:]:
        for name in first.types.keys() ^ other.types.keys():
            here, there = (first, other) if name in first.types else (other, first)
            raise SourceError(
                f"{there.stamp.path} has no column {name!r}; {here.stamp.path} has it, and all files must."
            )
        for name, found in other.types.items():
            if found != first.types[name]:
                raise SourceError(
                    f"{other.stamp.path} holds column {name!r} as {found}, {first.stamp.path} as "
                    f"{first.types[name]}; all files must agree."
                )
    return TableSource([file for file in files if file.num_rows] or files[:1])
