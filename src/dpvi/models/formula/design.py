"""The design matrix of a formula over declared columns: names, values, and the declared scale of each column.

Everything about it follows from the formula and the schema. Its values are computed from raw columns, with NumPy for
new rows and with JAX inside the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dpvi.models.formula.contrasts import coded, every_level
from dpvi.models.formula.errors import FormulaError
from dpvi.models.formula.expressions import Category, Evaluator, Numbers, Used, used_columns
from dpvi.models.formula.parsing import Parsed, Part, parse
from dpvi.models.formula.raw_columns import RawColumns
from dpvi.models.formula.scoping import Product, scoped_terms
from dpvi.table import Schema

_MOST_COLUMNS = 2000
_QUARTER = 4.0


@dataclass(frozen=True)
class FormulaDesign:
    """The design of ``formula`` without its intercept, for the columns of ``schema``.

    ``extra`` names columns and expressions that are needed besides: an offset, a number of trials.

    Examples
    --------
    >>> from dpvi.table import Categorical, Numeric
    >>> schema = Schema({"y": Numeric(0, 1), "age": Numeric(0, 80), "job": Categorical(("a", "b"))})
    >>> design = FormulaDesign("y ~ age * job", schema)
    >>> design.names
    ('age', 'job[T.b]', 'age:job[T.b]')
    >>> design.values(design.raw.matrix(schema.encode({"y": [1, 1], "age": [20, 80], "job": ["a", "b"]}))).tolist()
    [[20.0, 0.0, 0.0], [80.0, 1.0, 80.0]]
    """

    formula: str
    schema: Schema
    extra: Sequence[str] = ()
    parsed: Parsed = field(init=False)
    raw: RawColumns = field(init=False)

    def __post_init__(self) -> None:
        parsed = parse(self.formula)
        used = [self._used(part) for term in parsed.terms for part in term]
        used += [used_columns(expression, self.schema.columns) for expression in (*parsed.offsets, *self.extra)]
        used += [Used((name,), frozenset((name,))) for name in parsed.groups]
        names = dict.fromkeys(name for each in used for name in each.names)
        absent = [name for name in (parsed.response, *names) if name not in self.schema.columns]
        if absent:
            raise FormulaError(
                f"The formula names {', '.join(map(repr, absent))}, which the schema does not declare; it has "
                f"{', '.join(map(repr, self.schema.columns))}."
            )
        if parsed.response in names:
            raise FormulaError(f"The response {parsed.response!r} cannot stand on both sides of the formula.")
        levels = frozenset(name for each in used for name in each.as_levels)
        object.__setattr__(self, "parsed", parsed)
        object.__setattr__(self, "raw", RawColumns(self.schema, tuple(names), levels))
        self._check_scale()

    @property
    def names(self) -> tuple[str, ...]:
        """One name per column, as formulaic and statsmodels write them."""
        return tuple(name for term in self._grid[0] for name in term)

    @property
    def term_names(self) -> tuple[str, ...]:
        """The term that each column belongs to."""
        return tuple(
            ":".join(part.text for part in term)
            for term, names in zip(self.parsed.terms, self._grid[0], strict=True)
            for _ in names
        )

    @cached_property
    def centre(self) -> np.ndarray:
        """What is subtracted from a column: its middle over the declared range; zero for indicators."""
        return self._range[0]

    @cached_property
    def scale(self) -> np.ndarray:
        """What a column is divided by: a quarter of its declared range; one for indicators."""
        return self._range[1]

    def values(self, matrix: Any, numpy: Any = np) -> Any:
        """The design in the columns' own units, (…, columns)."""
        columns = self._columns(matrix, numpy)[1]
        if not columns:
            return matrix[..., :0]
        return numpy.stack(columns, axis=-1)

    def expression(self, text: str, matrix: Any, numpy: Any = np) -> Any:
        """One number per row: an offset, a number of trials."""
        found = Evaluator(self.raw, matrix, numpy).factor(text)
        if isinstance(found, Category) or len(found.columns) != 1:
            raise FormulaError(f"{text!r} must be one number per record.")
        return found.columns[0]

    def _used(self, part: Part) -> Used:
        return used_columns(part.text, self.schema.columns, lookup=part.lookup)

    @cached_property
    def _products(self) -> list[list[Product]]:
        factors = self._factors(self.raw.public_grid()[:2], np)
        categories = {text for text, found in factors.items() if isinstance(found, Category)}
        terms = [[part.text for part in term] for term in self.parsed.terms]
        return scoped_terms(terms, categories, self.parsed.intercept)

    def _factors(self, matrix: Any, numpy: Any) -> dict[str, Category | Numbers]:
        evaluator = Evaluator(self.raw, matrix, numpy)
        parts = {part.text: part for term in self.parsed.terms for part in term}
        return {text: evaluator.lookup(text) if part.lookup else evaluator.factor(text) for text, part in parts.items()}

    def _columns(self, matrix: Any, numpy: Any) -> tuple[list[list[str]], list[Any]]:
        factors = self._factors(matrix, numpy)
        names, columns = [], []
        for products in self._products:
            names.append([])
            for product in products:
                for name, column in _multiplied(product, factors):
                    names[-1].append(name)
                    columns.append(column)
                _check_count(len(columns))
        return names, columns

    @cached_property
    def _grid(self) -> tuple[list[list[str]], np.ndarray]:
        matrix = self.raw.public_grid()
        with np.errstate(all="ignore"):
            names, columns = self._columns(matrix, np)
        return names, np.stack(columns, axis=-1) if columns else matrix[:, :0]

    @cached_property
    def _range(self) -> tuple[np.ndarray, np.ndarray]:
        values = self._grid[1]
        low, high = values.min(axis=0, initial=np.inf), values.max(axis=0, initial=-np.inf)
        plain = np.all((values == 0) | (values == 1), axis=0)
        centre = np.where(plain | (not self.parsed.intercept), 0.0, (low + high) / 2)
        return centre, np.where(plain, 1.0, (high - low) / _QUARTER)

    def _check_scale(self) -> None:
        for name, column in zip(self.names, self._grid[1].T, strict=True):
            if not np.all(np.isfinite(column)):
                raise FormulaError(
                    f"{name!r} is not finite all over the declared bounds. Declare bounds within which it is (a lower "
                    "bound above zero for a logarithm), or write a function that is finite there, such as log1p."
                )
            if np.ptp(column) == 0:
                raise FormulaError(f"{name!r} is the same number for every record; leave it out.")


def _multiplied(product: Product, factors: dict[str, Category | Numbers]) -> list[tuple[str, Any]]:
    """Columns of a product, those of its first factor going round fastest."""
    found: list[tuple[str, Any]] = []
    for scoped in product:
        new = _encoded(scoped.factor, factors[scoped.factor], scoped.reduced)
        _check_count(len(new) * max(1, len(found)))  # before they are multiplied and fill the memory
        found = [(f"{left}:{right}", a * b) for right, b in new for left, a in found] if found else new
    return found


def _check_count(count: int) -> None:
    if count > _MOST_COLUMNS:
        raise FormulaError(f"The formula makes more than {_MOST_COLUMNS} columns; leave out interactions.")


def _encoded(text: str, factor: Category | Numbers, reduced: bool) -> list[tuple[str, Any]]:
    if isinstance(factor, Numbers):
        shown = [f"{text}[{suffix}]" if suffix else text for suffix in factor.suffixes]
        return list(zip(shown, factor.columns, strict=True))
    matrix, suffixes = coded(factor.levels, factor.contrast, text) if reduced else every_level(factor.levels)
    columns = []
    for weights in matrix.T:
        used = np.nonzero(weights)[0].tolist()
        columns.append(sum(float(weights[level]) * factor.indicators[..., level] for level in used))
    return [(f"{text}[{suffix}]", column) for suffix, column in zip(suffixes, columns, strict=True)]
