"""How pyarrow reads a file group by group, and what a column's values are as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from dpvi.records.sources.base import SourceError

_MISSING = "Reading tables needs pyarrow: pip install 'dpvi[tables]'."

FileFormat = Literal["parquet", "arrow"]


class Kind(NamedTuple):
    """The dtype of a column, and the shape of one of its values."""

    dtype: np.dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape) if self.shape else ''}"


class Reader(Protocol):
    """An open file."""

    @property
    def schema(self) -> Any: ...

    @property
    def group_rows(self) -> list[int]: ...

    def read(self, group: int, columns: list[str]) -> Any:
        """A table of these columns of one group."""
        ...


class _Parquet:
    def __init__(self, file: Any) -> None:
        self._file = file
        self.schema = file.schema_arrow

    @property
    def group_rows(self) -> list[int]:
        metadata = self._file.metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def read(self, group: int, columns: list[str]) -> Any:
        return self._file.read_row_group(group, columns=columns)


class _Arrow:
    """An Arrow file. Its footer does not say how many rows a batch has, so the narrowest column is read for that."""

    def __init__(self, opened: Any) -> None:
        from pyarrow import ipc

        self._opened = opened
        self._ipc = ipc
        self._selected: tuple[list[str], Any] | None = None
        with ipc.open_file(opened) as file:
            self.schema = file.schema

    @property
    def group_rows(self) -> list[int]:
        fields = sorted(range(len(self.schema)), key=lambda index: _bits(self.schema.field(index).type))
        with self._with_fields(fields[:1]) as file:
            return [file.get_batch(batch).num_rows for batch in range(file.num_record_batches)]

    def read(self, group: int, columns: list[str]) -> Any:
        from pyarrow import Table

        if self._selected is None or self._selected[0] != columns:
            self._selected = columns, self._with_fields([self.schema.get_field_index(column) for column in columns])
        return Table.from_batches([self._selected[1].get_batch(group)]).select(columns)

    def _with_fields(self, fields: list[int]) -> Any:
        """A reader that reads and decodes these columns only."""
        return self._ipc.open_file(self._opened, options=self._ipc.IpcReadOptions(included_fields=fields))


def _bits(stored: Any) -> float:
    """Of one value of a type, as far as it is fixed."""
    try:
        return stored.bit_width
    except ValueError:
        return math.inf


@contextmanager
def open_file(path: Path, file_format: FileFormat) -> Iterator[Reader]:
    """The file, closed afterwards; whatever pyarrow has to say about it becomes one sentence with its name."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise ImportError(_MISSING) from None
    try:
        if file_format == "parquet":
            with parquet.ParquetFile(path) as file:
                yield _Parquet(file)
        else:
            # read, not mapped: a mapped file that someone cuts short ends the process without a message
            with arrow.OSFile(str(path)) as opened:
                yield _Arrow(opened)
    except SourceError:
        raise
    except (arrow.ArrowException, OSError, EOFError, LookupError, TypeError, ValueError) as error:
        # the library's own text, or NumPy's about a column that became text, may quote values
        raise SourceError(
            f"{path} has rows that cannot be read ({type(error).__name__}). Nothing is released; write the file again."
        ) from None


def kind_of(path: Path, schema: Any, column: str) -> Kind:
    """Dtype and shape of a column, or a sentence about it."""
    if column not in schema.names:
        raise SourceError(f"{path} has no column {column!r}; all files must have it.")
    if schema.names.count(column) > 1:
        raise SourceError(f"{path} has two columns {column!r}; give each a name of its own.")
    from pyarrow import types

    stored, shape = schema.field(column).type, ()
    if types.is_fixed_size_list(stored):
        stored, shape = stored.value_type, (stored.list_size,)
    if not (types.is_integer(stored) or types.is_floating(stored) or types.is_boolean(stored)):
        raise SourceError(
            f"{path} holds column {column!r} as {stored}; records are numbers, booleans or lists of fixed length of "
            "them. Encode text, categories and dates with declared levels first."
        )
    return Kind(np.dtype(stored.to_pandas_dtype()), shape)


def values_of(path: Path, table: Any, column: str, kind: Kind) -> np.ndarray:
    """The values of a column; missing ones are NaN, which integers and booleans cannot express."""
    chunked = table.column(column).combine_chunks()
    values = chunked.flatten() if kind.shape else chunked
    missing = values.null_count or len(values) != len(chunked) * int(np.prod(kind.shape))
    if missing and (kind.dtype.kind != "f" or kind.shape):
        raise SourceError(
            f"{path} has missing values in column {column!r}, which {kind} cannot express. Nothing is released; fill "
            "them, or store the column as float, where a record with a missing value contributes nothing."
        )
    return values.to_numpy(zero_copy_only=False).astype(kind.dtype, copy=False).reshape(len(chunked), *kind.shape)
