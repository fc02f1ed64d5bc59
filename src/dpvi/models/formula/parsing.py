"""A formula in its parts: response, terms, offsets and varying intercepts. Formulaic reads the signs between them."""

from __future__ import annotations

import importlib
import math
import re
from dataclasses import dataclass
from typing import Any

from dpvi.models.formula.errors import FormulaError

_LONGEST, _MOST_TERMS, _MOST_PRODUCTS = 4000, 500, 10**5
_GROUP = re.compile(r"\(\s*1\s*\|\s*(`[^`]+`|[^\W\d]\w*)\s*\)")
_POWER = re.compile(r"(?:\*\*|\^)\s*(\d+)")
_CALL = re.compile(r"[\w.]*\([^()]*\)|\{[^{}]*\}|`[^`]*`|'[^']*'|\"[^\"]*\"")
_NAME, _PRODUCT = re.compile(r"[^\W\d]\w*"), re.compile(r"(?<!\*)\*(?!\*)|[:/]|%in%")


@dataclass(frozen=True)
class Part:
    """One factor of a term: the name of a column, or an expression."""

    text: str
    lookup: bool


@dataclass(frozen=True)
class Parsed:
    """What a formula asks for.

    Attributes
    ----------
    response
        The name of the column on the left.
    intercept
        Whether there is one.
    terms
        The factors of each term, without the intercept.
    offsets
        Expressions that are added with coefficient one.
    groups
        Columns with a varying intercept.
    """

    response: str
    intercept: bool
    terms: tuple[tuple[Part, ...], ...]
    offsets: tuple[str, ...]
    groups: tuple[str, ...]


def parse(formula: str) -> Parsed:
    """Read ``formula`` without running any of it.

    Examples
    --------
    >>> found = parse("recid ~ age + C(charge) + offset(log(days)) + (1 | court)")
    >>> found.response, [part.text for term in found.terms for part in term], found.offsets, found.groups
    ('recid', ['age', 'C(charge)'], ('log(days)',), ('court',))
    """
    if not isinstance(formula, str) or formula.count("~") != 1 or len(formula) > _LONGEST:
        raise FormulaError(f"A formula is a text such as 'y ~ age + C(job)', got {str(formula)[:80]!r}.")
    left, right = formula.split("~")
    groups = tuple(dict.fromkeys(name.strip("`") for name in _GROUP.findall(right)))
    right = _without_groups(right)
    _check_size(right)
    intercept, terms, offsets = True, [], []
    found = _terms(f"~ {right}")
    intercept = any(not term for term in found)
    for term in filter(None, found):
        wrapped = [part for part in term if not part.lookup and part.text.startswith("offset(")]
        if wrapped and len(term) > 1:
            raise FormulaError("offset(...) must stand by itself, joined with '+'.")
        if wrapped:
            offsets.append(wrapped[0].text.removeprefix("offset(").removesuffix(")"))
        else:
            terms.append(term)
    return Parsed(_response(left), intercept, tuple(terms), tuple(offsets), groups)


def _check_size(right: str) -> None:
    """Refuse a formula of which the terms alone would fill the memory, before it is multiplied out."""
    if sum(map(_most_products, _summands(right))) > _MOST_PRODUCTS:
        raise FormulaError("The formula multiplies out to far too many terms; write the interactions that are meant.")


def _summands(right: str) -> list[str]:
    """What stands between the signs + and − outside all brackets."""
    found, depth = [""], 0
    for sign in right:
        depth += (sign in "([{") - (sign in ")]}")
        if sign in "+-" and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return found


def _most_products(summand: str) -> float:
    """With n names and m factors, (1 + n/m)^m is the most that products of sums can have; powers multiply m."""
    text, shorter = "", summand
    while text != shorter:  # what functions are given is no part of the formula's own products
        text, shorter = shorter, _CALL.sub(_opened, shorter)
    names, factors = len(_NAME.findall(text)), len(_PRODUCT.findall(text)) + 1
    power = math.prod(max(1, min(int(each), 100)) for each in _POWER.findall(text))
    return math.exp(min(power * factors * math.log1p(names / factors), 100.0))


def _opened(found: re.Match[str]) -> str:
    """A call as one name, and a group without its brackets: its powers and products still count."""
    return f" {found.group()[1:-1]} " if found.group()[0] == "(" else " x "


def _without_groups(right: str) -> str:
    rest = _GROUP.sub("0_group", right)
    if "|" in rest:
        raise FormulaError(
            "A varying intercept is written (1 | clinic), with the name of a column whose levels are declared; varying "
            "slopes are not available."
        )
    rest = re.sub(r"\+\s*0_group", "", rest)
    rest = re.sub(r"0_group\s*\+?", "", rest).strip()
    return rest or "1"


def _terms(formula: str) -> list[tuple[Part, ...]]:
    formulaic = _formulaic()
    try:
        read = formulaic.Formula(formula)
        terms = list(getattr(read, "rhs", read))
    except Exception as error:  # formulaic and its tokenizer raise what they like
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise FormulaError(f"The formula cannot be read: {reason}") from None
    if len(terms) > _MOST_TERMS:
        raise FormulaError(f"The formula has more than {_MOST_TERMS} terms; write those that are meant.")
    return [_parts(term) for term in terms]


def _formulaic() -> Any:
    try:
        return importlib.import_module("formulaic")
    except ImportError:
        raise ImportError(
            "Formulas are read by formulaic, which is optional: install dpvi[glm] or formulaic."
        ) from None


def _parts(term: object) -> tuple[Part, ...]:
    parts = []
    for factor in getattr(term, "factors"):  # noqa: B009
        kind = factor.eval_method.value
        if kind == "literal":
            if float(factor.expr) != 1:
                raise FormulaError(f"A number such as {factor.expr} cannot be a term by itself; leave it out.")
            continue
        parts.append(Part(str(factor.expr), kind == "lookup"))
    return tuple(parts)


def _response(left: str) -> str:
    name = left.strip().strip("`")
    if not name:
        raise FormulaError("The formula needs a response on its left, as in 'y ~ age'.")
    if re.search(r"[()+*/:\[\]]", name):
        raise FormulaError(
            f"The response must be the plain name of a declared column, got {name!r}. Transform it in the table, and "
            "declare the bounds of what comes out."
        )
    return name
