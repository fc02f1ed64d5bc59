"""The schema of a table: named columns, and the way from a table to arrays and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.declared import columns as histogram_columns
from dpvi.table import toml, writing
from dpvi.table.base import Column, SchemaError
from dpvi.table.levels import Leveled
from dpvi.table.reading import RawColumn, read_columns
from dpvi.table.writing import Decoded

OUTSIDE = ("clamp", "raise")
_SUFFIX = "_observed"
_COUNTED = " (a column to count for dpvi.plan(covariates=...); columns of a table come from dpvi.table)"


@dataclass(frozen=True)
class Schema:
    """What is publicly known about a table: its columns, their bounds and levels.

    A schema reads nothing from records. Whatever a record holds, what is encoded lies within the declared bounds and
    levels, and no message or file says how often it did not.

    Parameters
    ----------
    columns
        ``{name: column}`` in the order of the table; columns of a table that are not named here are ignored.
    missing_markers
        Texts that stand for a missing value in columns of text, besides what the table itself marks as missing.

    Examples
    --------
    >>> from dpvi.table import Boolean, Categorical, Numeric
    >>> schema = Schema({"age": Numeric(0, 100), "sex": Categorical(("f", "m")), "ill": Boolean(missing=True)})
    >>> arrays = schema.encode({"age": [50, 25], "sex": ["m", "f"], "ill": [True, None]})
    >>> {name: leaf.tolist() for name, leaf in arrays.items()}
    {'age': [0.0, -0.5], 'sex': [1, 0], 'ill': [True, False], 'ill_observed': [True, False]}
    >>> schema.decode(arrays)["ill"].tolist()
    [True, None]
    """

    columns: Mapping[str, Column]
    missing_markers: tuple[str, ...] = field(default=("",))

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(self.columns))
        object.__setattr__(self, "missing_markers", tuple(self.missing_markers))
        if not self.columns:
            raise SchemaError("A schema needs at least one column.")
        for name, column in self.columns.items():
            if not isinstance(name, str) or not name or not isinstance(column, Column):
                raise SchemaError(
                    "columns must map names to declarations such as dpvi.table.Numeric(0, 100), got "
                    f"{name!r}: {column!r}{_COUNTED if isinstance(column, histogram_columns.Column) else ''}."
                )
            if column.missing and observed_leaf(name) in self.columns:
                raise SchemaError(
                    f"Column {observed_leaf(name)!r} has the name of the mask of {name!r}; rename one of them."
                )
        if not all(isinstance(marker, str) for marker in self.missing_markers):
            raise SchemaError(f"missing_markers must be texts, got {self.missing_markers!r}.")

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            raise SchemaError(f"The schema has no column {name!r}; it has {', '.join(map(repr, self.columns))}.")
        return self.columns[name]

    @property
    def leaves(self) -> dict[str, np.dtype]:
        """Name and dtype of every array of an encoded table, in order."""
        found = {}
        for name, column in self.columns.items():
            found[name] = np.dtype(column.leaf_dtype)
            if column.missing:
                found[observed_leaf(name)] = np.dtype(bool)
        return found

    def encode(self, table: Any, *, outside: str = "clamp") -> dict[str, np.ndarray]:
        """Turn a table into arrays, one leaf per column and a mask where values may be missing.

        ====================  =========================================================================
        column                leaf
        ====================  =========================================================================
        numeric, date         float64 in [−1, 1], from the declared bounds
        count                 int32
        categorical, ordinal  int32, the position among the levels
        boolean               bool
        missing allowed       and ``<name>_observed``, bool; the leaf is zero where it is False
        ====================  =========================================================================

        Parameters
        ----------
        table
            A pandas or polars data frame, a pyarrow table, a mapping of arrays, or the path of a ``.csv`` or
            ``.parquet`` file.
        outside
            ``"clamp"`` moves values beyond the bounds to the nearer bound and unknown levels to the declared ``other``,
            without a word; ``"raise"`` refuses them with a sentence that names the column. Whether that sentence
            appears depends on records: it is for the custodian's console, not for a log that is shared.

        Raises
        ------
        SchemaError
            Where a column is absent, a value is missing that must not be, text stands where numbers belong, or a level
            is unknown and no ``other`` is declared.
        """
        if outside not in OUTSIDE:
            raise ValueError(f"outside must be one of {', '.join(map(repr, OUTSIDE))}, got {outside!r}.")
        raw = read_columns(table, self.columns, self.missing_markers)
        arrays = {}
        for name, column in self.columns.items():
            encoded, observed = _encode(name, column, raw[name], outside == "raise")
            arrays[name] = encoded
            if column.missing:
                arrays[observed_leaf(name)] = observed
        return arrays

    def decode(self, arrays: Mapping[str, Any], *, to: str = "columns") -> Any:
        """The inverse of :meth:`encode`: a table with the declared columns, levels and dtypes.

        Parameters
        ----------
        arrays
            As :meth:`encode` returns them. A mask that is left out means that nothing is missing.
        to
            ``"columns"`` (a dict of NumPy arrays), ``"pandas"``, ``"polars"`` or ``"arrow"``.
        """
        return writing.build(self.decode_columns(arrays), to)

    def decode_columns(self, arrays: Mapping[str, Any]) -> dict[str, Decoded]:
        """Decoded columns with their masks, for writing."""
        lacking = [name for name in self.columns if name not in arrays]
        if lacking:
            raise SchemaError(f"The arrays lack {', '.join(map(repr, lacking))}, which the schema declares.")
        decoded = {}
        for name, column in self.columns.items():
            leaf, mask = np.asarray(arrays[name]), arrays.get(observed_leaf(name)) if column.missing else None
            if leaf.ndim != 1 or (leaf.dtype.kind == "f" and not np.isfinite(leaf).all()):
                raise SchemaError(f"The array of column {name!r} must hold one finite number per record.")
            absent = np.zeros(len(leaf), bool) if mask is None else ~np.asarray(mask, dtype=bool)
            decoded[name] = Decoded(column, column.decode(name, leaf), absent)
        return decoded

    def save(self, path: str | Path) -> None:
        """Write the schema as TOML."""
        text = toml.to_text(self.to_dict())  # made first, so that a failure leaves no half-written file
        Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from TOML.

        A draft (:func:`~dpvi.table.draft_schema`) is refused until someone has looked through it and set
        ``confirmed_public = true``.
        """
        return cls.from_dict(toml.from_text(Path(path).read_text(encoding="utf-8")))

    def to_dict(self) -> dict[str, Any]:
        """Entries as they stand in a TOML file."""
        columns = {name: column.to_dict() for name, column in self.columns.items()}
        return {
            "format_version": toml.FORMAT_VERSION,
            "missing_markers": list(self.missing_markers),
            "columns": columns,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """The inverse of :meth:`to_dict`."""
        return cls(toml.columns_from_dict(content), tuple(content.get("missing_markers", ("",))))


def observed_leaf(name: str) -> str:
    """Name of the mask of column ``name``: True where its value is present."""
    return f"{name}{_SUFFIX}"


def _encode(name: str, column: Column, raw: RawColumn, strict: bool) -> tuple[np.ndarray, np.ndarray]:
    absent = raw.absent
    if isinstance(column, Leveled) and absent.any():
        # A declared level such as "NA" is a value, whatever stands for missing elsewhere.
        levels = {str(level) for level in column.levels}
        absent = absent & ~np.array([isinstance(value, str) and value in levels for value in raw.values.tolist()])
    if absent.any() and not column.missing:
        raise SchemaError(
            f"Column {name!r} holds missing values, which the schema does not allow; declare it with missing = true, "
            "or fill them from public knowledge."
        )
    leaf = np.zeros(len(absent), dtype=column.leaf_dtype)
    if not absent.all():
        leaf[~absent] = column.encode(name, raw.values[~absent], strict)
    return leaf, ~absent
