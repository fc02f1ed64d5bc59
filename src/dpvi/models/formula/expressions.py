"""What stands between the signs of a formula, read as arithmetic and never run as Python.

A formula may come with a result from someone else. So an expression is parsed, and what is not on the lists below is
refused with a sentence. The same expression is computed with NumPy (for new rows) and with JAX (inside the model).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpvi.models.formula.contrasts import KINDS, Contrast
from dpvi.models.formula.errors import FormulaError
from dpvi.models.formula.raw_columns import RawColumns, bounds_of
from dpvi.models.formula.splines import b_spline, inner_knots, natural_spline

FUNCTIONS = ("log", "log1p", "log2", "log10", "exp", "expm1", "sqrt", "abs", "sin", "cos", "tanh", "minimum", "maximum")
_PASSED_ON = ("I", "offset")  # they mark what is inside
_OF_THE_DATA = ("center", "scale", "standardize", "lag", "hashed", "cc")
_BACKTICKS = re.compile(r"`([^`]+)`")
_LONGEST, _LARGEST_POWER, _MOST_COLUMNS = 1000, 20, 50
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class Category(NamedTuple):
    """A factor of declared levels: indicators (…, L) and the contrast it asks for."""

    indicators: Any
    levels: tuple[Any, ...]
    contrast: Contrast


class Numbers(NamedTuple):
    """A factor of one or more columns, and what stands in brackets behind its name ("" for one column)."""

    columns: list[Any]
    suffixes: list[str]


class Used(NamedTuple):
    """The columns that an expression reads, and those that it takes for categories."""

    names: tuple[str, ...]
    as_levels: frozenset[str]


def used_columns(expression: str, known: Any, *, lookup: bool = False) -> Used:
    """The columns of ``known`` that ``expression`` names, in order."""
    if lookup:
        return Used((expression,), frozenset())
    names: dict[str, None] = {}
    levels: set[str] = set()
    functions = set()
    tree = parsed(expression)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            functions |= {id(each) for each in ast.walk(node.func)}
            if _called(node) == "C" and node.args:
                levels.add(_column_name(node.args[0], expression))
                functions |= {id(each) for argument in node.args[1:] for each in ast.walk(argument)}
                functions |= {id(each) for keyword in node.keywords for each in ast.walk(keyword.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and id(node) not in functions:
            if node.id not in known:
                raise FormulaError(
                    f"{expression!r} names {node.id!r}, which is no declared column; the schema has "
                    f"{', '.join(map(repr, known))}."
                )
            names[node.id] = None
        if isinstance(node, ast.Call) and _called(node) == "Q":
            names[_column_name(node, expression)] = None
    return Used(tuple(names), frozenset(levels))


def parsed(expression: str) -> ast.expr:
    """The syntax tree of an expression."""
    try:
        if len(expression) > _LONGEST:
            raise SyntaxError
        text = _BACKTICKS.sub(lambda found: f"Q({found.group(1)!r})", expression.strip())
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(f"{expression[:80]!r} in the formula is no expression that can be read.") from None


class Evaluator:
    """Computes factors of rows of a raw matrix, (…, width).

    Parameters
    ----------
    raw
        What the columns of the matrix are.
    matrix
        The rows.
    numpy
        The array module, NumPy or ``jax.numpy``.
    """

    def __init__(self, raw: RawColumns, matrix: Any, numpy: Any) -> None:
        self.raw, self.matrix, self.numpy = raw, matrix, numpy

    def lookup(self, name: str) -> Category | Numbers:
        """A column by its name."""
        place = self.raw.places[name]
        if place.levels is not None and not _is_number(place.column):
            return Category(self.raw.indicators(self.matrix, name, self.numpy), place.levels, Contrast())
        return Numbers([self.raw.number(self.matrix, name, self.numpy)], [""])

    def factor(self, expression: str) -> Category | Numbers:
        """What an expression says."""
        tree = parsed(expression)
        if isinstance(tree, ast.Call) and _called(tree) in _BLOCKS:
            return _BLOCKS[_called(tree)](self, tree, expression)
        if isinstance(tree, ast.Call) and _called(tree) == "Q":
            return self.lookup(_column_name(tree, expression))
        value = self.number(tree, expression)
        return Numbers([value + 0 * self.matrix[..., 0]], [""])

    def number(self, node: ast.expr, whole: str) -> Any:
        """One number per row, or a constant."""
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return float(node.value)  # pyright: ignore[reportArgumentType]
            case ast.Name():
                return self.raw.number(self.matrix, node.id, self.numpy, within=True)
            case ast.UnaryOp(op=ast.USub()):
                return -self.number(node.operand, whole)
            case ast.UnaryOp(op=ast.UAdd()):
                return self.number(node.operand, whole)
            case ast.BinOp(op=ast.Pow()):
                return self.number(node.left, whole) ** _power(node.right, whole)
            case ast.BinOp(op=op) if type(op) in _BINARY:
                return _BINARY[type(op)](self.number(node.left, whole), self.number(node.right, whole))
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in _COMPARED:
                return self._compared(node.left, op, right, whole)
            case ast.Call() if _called(node) in _PASSED_ON and len(node.args) == 1 and not node.keywords:
                return self.number(node.args[0], whole)
            case ast.Call() if _called(node) == "Q":
                return self.raw.number(self.matrix, _column_name(node, whole), self.numpy, within=True)
            case ast.Call() if _called(node) in FUNCTIONS and not node.keywords:
                return self._applied(_called(node), node, whole)
        raise _unknown(node, whole)

    def _applied(self, function: str, node: ast.Call, whole: str) -> Any:
        wanted = 2 if function in ("minimum", "maximum") else 1
        if len(node.args) != wanted:
            raise FormulaError(f"{function} in {whole!r} takes {wanted} argument{'s' * (wanted > 1)}.")
        arguments = [self.number(each, whole) for each in node.args]
        return getattr(self.numpy, function)(*arguments)

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr, whole: str) -> Any:
        name = _plain_name(left)
        place = self.raw.places.get(name) if name else None
        if name and place is not None and place.levels is not None and isinstance(op, (ast.Eq, ast.NotEq)):
            level = _literal(right, whole)
            if level not in place.levels:
                raise FormulaError(f"{whole!r} compares {name!r} with {level!r}, which is none of its declared levels.")
            share = self.raw.indicators(self.matrix, name, self.numpy)[..., place.levels.index(level)]
            return share if isinstance(op, ast.Eq) else 1 - share
        found = _COMPARED[type(op)](self.number(left, whole), self.number(right, whole))
        return self.numpy.where(found, self.numpy.ones_like(self.matrix[..., 0]), 0 * self.matrix[..., 0])

    def category(self, node: ast.Call, whole: str) -> Category:
        """``C(column, contr.treatment("a"))`` and its relatives."""
        given = _arguments(node, ("column", "contrast", "levels"), whole)
        name = _column_name(given["column"], whole)
        declared = self.raw.places[name].levels
        assert declared is not None
        indicators, levels = self.raw.indicators(self.matrix, name, self.numpy), declared
        if "levels" in given:
            levels = tuple(_literal(given["levels"], whole))
            if sorted(map(str, levels)) != sorted(map(str, declared)):
                raise FormulaError(f"levels in {whole!r} must be the declared ones {list(declared)}, in any order.")
            indicators = indicators[..., np.array([declared.index(level) for level in levels])]
        contrast = _contrast(given["contrast"], whole) if "contrast" in given else Contrast()
        return Category(indicators, levels, contrast)

    def polynomial(self, node: ast.Call, whole: str) -> Numbers:
        """``poly(x, degree)``: Legendre polynomials of the declared range; with ``raw=True`` plain powers."""
        given = _arguments(node, ("column", "degree", "raw"), whole)
        degree = _whole(given.get("degree"), 1, whole)
        name = _column_name(given["column"], whole)
        x = self.raw.number(self.matrix, name, self.numpy, within=True)
        if "raw" in given and _literal(given["raw"], whole):
            return Numbers([x**power for power in range(1, degree + 1)], [str(power) for power in range(degree)])
        lower, upper = bounds_of(name, self.raw.places[name].column)
        t = (x - lower) / (upper - lower) * 2 - 1
        columns = [0 * t + 1, t]
        for order in range(1, degree):
            columns.append(((2 * order + 1) * t * columns[order] - order * columns[order - 1]) / (order + 1))
        return Numbers(columns[1 : degree + 1], [str(power) for power in range(1, degree + 1)])

    def basis_spline(self, node: ast.Call, whole: str) -> Numbers:
        """``bs(x, df=…)`` or ``bs(x, knots=[…])`` over declared bounds."""
        names = ("column", "df", "knots", "degree", "include_intercept", "lower_bound", "upper_bound")
        x, lower, upper, given = self._spline(node, names, whole)
        degree = _whole(given.get("degree"), 3, whole)
        intercept = bool(_literal(given["include_intercept"], whole)) if "include_intercept" in given else False
        knots = _literal(given["knots"], whole) if "knots" in given else None
        df = _whole(given.get("df"), degree + intercept, whole)
        inner = inner_knots(whole, lower, upper, knots, df - degree - intercept)
        columns = b_spline(x, lower, upper, inner, degree, self.numpy)
        first = 0 if intercept else 1
        return Numbers(columns[first:], [str(index) for index in range(first, len(columns))])

    def natural_spline(self, node: ast.Call, whole: str) -> Numbers:
        """``cr(x, df=…)`` or ``cr(x, knots=[…])``: one column per knot, bounds among them."""
        names = ("column", "df", "knots", "lower_bound", "upper_bound")
        x, lower, upper, given = self._spline(node, names, whole)
        knots = _literal(given["knots"], whole) if "knots" in given else None
        df = _whole(given.get("df"), 4, whole)
        inner = inner_knots(whole, lower, upper, knots, df - 2)
        columns = natural_spline(x, (lower, *inner, upper), self.numpy)
        return Numbers(columns, [str(index + 1) for index in range(len(columns))])

    def _spline(self, node: ast.Call, names: tuple[str, ...], whole: str) -> tuple[Any, float, float, dict[str, Any]]:
        given = _arguments(node, names, whole)
        name = _column_name(given["column"], whole)
        x = self.raw.number(self.matrix, name, self.numpy, within=True)
        lower, upper = bounds_of(name, self.raw.places[name].column)
        lower = float(_literal(given["lower_bound"], whole)) if "lower_bound" in given else lower
        upper = float(_literal(given["upper_bound"], whole)) if "upper_bound" in given else upper
        return self.numpy.clip(x, lower, upper), lower, upper, given


_BLOCKS: dict[str, Callable[[Evaluator, ast.Call, str], Category | Numbers]] = {
    "C": Evaluator.category,
    "poly": Evaluator.polynomial,
    "bs": Evaluator.basis_spline,
    "cr": Evaluator.natural_spline,
    "cs": Evaluator.natural_spline,
}


def _is_number(column: Any) -> bool:
    return column.kind in ("numeric", "count", "boolean", "date")


def _called(node: ast.Call) -> str:
    """The name of a called function; ``np.`` in front of it changes nothing."""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "np":
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _plain_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call) and _called(node) == "Q":
        return _column_name(node, "Q")
    return None


def _column_name(node: ast.expr, whole: str) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Call(args=[ast.Constant(value=str(name))], keywords=[]) if _called(node) == "Q":
            return name
    raise FormulaError(f"{whole!r} needs the plain name of a declared column there, and not an expression.")


def _arguments(node: ast.Call, names: tuple[str, ...], whole: str) -> dict[str, ast.expr]:
    given = dict(zip(names, node.args, strict=False)) | {each.arg or "": each.value for each in node.keywords}
    unknown = sorted(given.keys() - set(names))
    if unknown or len(node.args) > len(names) or names[0] not in given:
        raise FormulaError(f"{whole!r} takes {', '.join(names)}; correct its arguments.")
    return given


def _contrast(node: ast.expr, whole: str) -> Contrast:
    function = node.func if isinstance(node, ast.Call) else node
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in KINDS:
        raise FormulaError(
            f"The contrast in {whole!r} must be contr.treatment(...), contr.sum, contr.helmert or contr.poly."
        )
    given = _arguments_of_contrast(node, whole) if isinstance(node, ast.Call) else {}
    return Contrast(KINDS[name], given.get("reference"))


def _arguments_of_contrast(node: ast.Call, whole: str) -> dict[str, Any]:
    values = [_literal(each, whole) for each in [*node.args, *(each.value for each in node.keywords)]]
    names = {each.arg for each in node.keywords}
    if len(values) > 1 or not names <= {"base", "reference"}:
        raise FormulaError(f"The contrast in {whole!r} takes at most its reference level.")
    return {"reference": values[0]} if values else {}


def _literal(node: ast.expr, whole: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise FormulaError(f"{whole!r} needs plain numbers or texts as settings.") from None


def _whole(node: ast.expr | None, default: int, whole: str) -> int:
    value = default if node is None else _literal(node, whole)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_COLUMNS:
        raise FormulaError(f"{whole!r} needs a whole number from 1 to {_MOST_COLUMNS} there.")
    return value


def _power(node: ast.expr, whole: str) -> float | int:
    value = _literal(node, whole)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > _LARGEST_POWER:
        raise FormulaError(f"A power in {whole!r} must be a number of at most {_LARGEST_POWER}.")
    return value


def _unknown(node: ast.expr, whole: str) -> FormulaError:
    name = _called(node) if isinstance(node, ast.Call) else ""
    if name in _OF_THE_DATA:
        return FormulaError(
            f"{name}(...) in {whole!r} would read its settings from the records. Columns are put on their declared "
            "scale by themselves; leave it out, or write the numbers, as in I((age - 40) / 10)."
        )
    if name in _BLOCKS:
        return FormulaError(f"{name}(...) in {whole!r} must stand by itself, or in an interaction with ':'.")
    return FormulaError(
        f"{whole!r} holds something that a formula cannot have here. It may have columns, numbers, + - * / **, "
        f"comparisons, {', '.join(FUNCTIONS)}, and by themselves {', '.join(_BLOCKS)}."
    )
