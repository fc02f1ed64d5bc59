"""A question of the table: which column is explained by which, as a formula."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpvi.table import Boolean, Count, Leveled, Numeric, Ordinal, Schema

FAMILIES = {
    "bernoulli": "Logistic: yes or no",
    "gaussian": "Linear: a number with normal errors",
    "student_t": "Linear with outliers: Student-t errors",
    "poisson": "Counts: Poisson",
    "negative_binomial": "Counts that vary more: negative binomial",
    "gamma": "A positive number: gamma",
    "ordinal": "Ordered categories",
}


def families_for(schema: Schema, response: str) -> list[str]:
    """Families whose response can be such a column; the usual one first."""
    column = schema[response]
    if isinstance(column, Boolean):
        return ["bernoulli"]
    if isinstance(column, Leveled):
        if column.num_levels == 2:
            return ["bernoulli"]
        return ["ordinal"] if isinstance(column, Ordinal) else []
    if isinstance(column, Count):
        return ["poisson", "negative_binomial", "gaussian", "student_t"]
    assert isinstance(column, Numeric)
    return ["gaussian", "student_t", *(["gamma"] if column.lower > 0 else [])]


def formula_of(schema: Schema, response: str, predictors: Sequence[str]) -> str:
    """``y ~ a + C(b)``, names with other characters in backticks."""
    terms = [f"C({_safe(name)})" if isinstance(schema[name], Leveled) else _safe(name) for name in predictors]
    return f"{_safe(response)} ~ {' + '.join(terms)}"


def _safe(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name}`"
