"""From raw columns to a design matrix, with a description of which encoded columns belong to which raw one.

Levels, bounds, centres and scales are declared with a column and never read from a table; only
``scaling="published"`` reads means and deviations, as published experiments do, and is not private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpvi.declared.columns import Column, Constant, Numeric, OneHot
from studies.datasets.tables import Table, num_rows

SCALINGS = ("declared", "published")
CONSTANT = "constant"


@dataclass(frozen=True)
class ContinuousColumn:
    """A number x within public bounds [``lower``, ``upper``]; beyond them it counts as the nearer bound.

    Under declared scaling it becomes (h(x) − ``centre``)/``scale``, h(x) = log(1 + x) with ``logarithm`` and x without.
    """

    name: str
    lower: float
    upper: float
    centre: float
    scale: float
    logarithm: bool = False

    def declared(self, values: np.ndarray) -> np.ndarray:
        """The column scaled by its public constants."""
        within = np.clip(values, self.lower, self.upper)
        return ((np.log1p(within) if self.logarithm else within) - self.centre) / self.scale


@dataclass(frozen=True)
class CategoricalColumn:
    """A category with publicly known ``levels``; the ``reference``, if any, has no indicator of its own."""

    name: str
    levels: tuple[str, ...]
    reference: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.levels)) != len(self.levels):
            raise ValueError(f"The levels of {self.name!r} must be distinct.")
        if self.reference is not None and self.reference not in self.levels:
            raise ValueError(f"The reference of {self.name!r}, {self.reference!r}, is not among its levels.")

    @property
    def indicators(self) -> tuple[str, ...]:
        """The levels that have an indicator, in their order."""
        return tuple(level for level in self.levels if level != self.reference)

    def codes(self, values: np.ndarray) -> np.ndarray:
        """The index of each value among the levels, int32; values that are not declared are refused."""
        known = np.array(self.levels)
        order = np.argsort(known)
        found = order[np.minimum(np.searchsorted(known, values, sorter=order), len(known) - 1)]
        if not np.all(known[found] == values):
            raise ValueError(
                f"Column {self.name!r} holds a value that is not among its {len(known)} declared levels. Declare it "
                "or leave such rows out; levels read from the records would not be private."
            )
        return found.astype(np.int32)


RawColumn = ContinuousColumn | CategoricalColumn


class Block(NamedTuple):
    """Encoded columns ``start`` to ``stop`` of one raw column; ``column`` is ``None`` for the constant.

    ``centre`` and ``scale`` are those in use: the column's own under declared scaling, the table's mean and standard
    deviation (of x itself, not of its logarithm) under published scaling, and 0 and 1 for categories. ``logarithm``
    says whether log(1 + x) was scaled.
    """

    column: RawColumn | None
    start: int
    stop: int
    centre: float = 0.0
    scale: float = 1.0
    logarithm: bool = False

    @property
    def name(self) -> str:
        return CONSTANT if self.column is None else self.column.name

    @property
    def feature_names(self) -> tuple[str, ...]:
        """``"age"``, or ``"sex=Male"`` for an indicator."""
        if isinstance(self.column, CategoricalColumn):
            return tuple(f"{self.name}={level}" for level in self.column.indicators)
        return (self.name,)

    def covariate(self, num_bins: int = 32) -> Column:
        """The raw column as a plan counts it in a histogram, bounds in encoded units."""
        if self.column is None:
            return Constant(1.0)
        if isinstance(self.column, CategoricalColumn):
            return OneHot(len(self.column.levels), reference=self.column.reference is not None)
        lower, upper = ((bound - self.centre) / self.scale for bound in self.bounds)
        return Numeric(lower, upper, num_bins)

    @property
    def bounds(self) -> tuple[float, float]:
        """Declared bounds of a number before centre and scale are applied."""
        if not isinstance(self.column, ContinuousColumn):
            raise TypeError(f"{self.name!r} is not a number and has no bounds.")
        lower, upper = float(self.column.lower), float(self.column.upper)
        return (math.log1p(lower), math.log1p(upper)) if self.logarithm else (lower, upper)


class EncodedTable(NamedTuple):
    """A design matrix and what its columns mean."""

    features: np.ndarray  # (n, d), float32
    blocks: tuple[Block, ...]
    scaling: str

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.feature_names)

    def covariates(self, num_bins: int = 32) -> tuple[Column, ...]:
        """One declared column per raw column, for ``dpvi.plan(..., covariates=...)``; numbers get ``num_bins`` bins."""
        return tuple(block.covariate(num_bins) for block in self.blocks)


def encode_table(table: Table, columns: Sequence[RawColumn], scaling: str = "declared") -> EncodedTable:
    """Scaled numbers and indicators in the order of ``columns``, and a constant 1 last.

    Parameters
    ----------
    table
        Raw columns.
    columns
        Which of them to encode, and how.
    scaling
        ``"declared"`` scales numbers by the constants declared with each column, and may be used before a private run.
        ``"published"`` subtracts the mean and divides by the standard deviation (with n, not n − 1) of this very table:
        no privacy guarantee covers these two numbers.

    Examples
    --------
    >>> table = {"age": np.array([25.0, 55.0]), "sex": np.array(["Male", "Female"])}
    >>> age, sex = ContinuousColumn("age", 17, 90, centre=40, scale=15), CategoricalColumn("sex", ("Female", "Male"))
    >>> encoded = encode_table(table, [age, sex])
    >>> encoded.features.tolist()
    [[-1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0]]
    >>> encoded.feature_names
    ('age', 'sex=Female', 'sex=Male', 'constant')
    """
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be 'declared' or 'published', got {scaling!r}.")
    absent = [column.name for column in columns if column.name not in table]
    if absent:
        raise ValueError(f"The table has no column {', '.join(map(repr, absent))}.")
    parts, blocks, start = [], [], 0
    for column in columns:
        part, block = _encode(table[column.name], column, start, scaling)
        parts.append(part)
        blocks.append(block)
        start = block.stop
    parts.append(np.ones((num_rows(table), 1), np.float32))
    blocks.append(Block(None, start, start + 1))
    return EncodedTable(np.concatenate(parts, axis=1), tuple(blocks), scaling)


def declared_covariates(columns: Sequence[RawColumn], num_bins: int = 32) -> tuple[Column, ...]:
    """:meth:`EncodedTable.covariates` under declared scaling, without a table: a plan is made before the data are read.

    Examples
    --------
    >>> declared_covariates([CategoricalColumn("sex", ("Female", "Male"))])
    (OneHot(levels=2, reference=False), Constant(value=1.0))
    """
    blocks = [
        Block(column, 0, 0) if isinstance(column, CategoricalColumn) else _declared_block(column, 0)
        for column in columns
    ]
    return tuple(block.covariate(num_bins) for block in [*blocks, Block(None, 0, 1)])


def _encode(values: np.ndarray, column: RawColumn, start: int, scaling: str) -> tuple[np.ndarray, Block]:
    if isinstance(column, CategoricalColumn):
        kept = [column.levels.index(level) for level in column.indicators]
        indicators = column.codes(values)[:, None] == np.array(kept, np.int32)
        return indicators.astype(np.float32), Block(column, start, start + len(kept))
    if scaling == "declared":
        scaled, block = column.declared(values), _declared_block(column, start)
    else:
        centre, scale = float(values.mean()), float(values.std())
        if scale == 0:
            raise ValueError(f"Column {column.name!r} is constant, so it cannot be scaled to unit deviation.")
        scaled, block = (values - centre) / scale, Block(column, start, start + 1, centre, scale)
    return scaled[:, None].astype(np.float32), block


def _declared_block(column: ContinuousColumn, start: int) -> Block:
    return Block(column, start, start + 1, column.centre, column.scale, column.logarithm)
