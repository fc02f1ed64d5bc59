"""Three tables, what is declared of their columns, and one regression of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpvi.table import Boolean, Categorical, Count, Numeric, Schema
from studies.datasets import abalone, adult, rand_hie
from studies.datasets.adult_columns import MARITAL_STATUS, SEX

Table = dict[str, Any]


class Case(NamedTuple):
    """A regression; ``load`` reads its table."""

    formula: str
    family: str
    schema: Schema
    load: Callable[[], Table]
    delta: float = 1e-6


def _adult() -> Table:
    table = adult().train
    names = {"age": "age", "education": "education-num", "hours": "hours-per-week"}
    found = {name: table[raw] for name, raw in names.items()}
    return found | {"marital": table["marital-status"], "sex": table["sex"], "rich": table["income"] == ">50K"}


def _abalone() -> Table:
    table = abalone()
    names = {"rings": "Rings", "sex": "Sex", "diameter": "Diameter", "shell": "Shell_weight"}
    return {name: table[raw] for name, raw in names.items()}


def _rand() -> Table:
    table = rand_hie()
    whole = np.isfinite(table["mdvis"]) & np.isfinite(table["logc"]) & np.isfinite(table["disea"])
    names = {"visits": "mdvis", "coinsurance": "logc", "diseases": "disea", "age": "xage", "female": "female"}
    return {name: table[raw][whole] for name, raw in names.items()}


CASES = {
    "adult": Case(
        "rich ~ age + education + hours + marital + sex",
        "bernoulli",
        Schema(
            {
                "rich": Boolean(),
                "age": Numeric(17, 90),
                "education": Numeric(1, 16, integer=True),
                "hours": Numeric(0, 99),
                "marital": Categorical(tuple(MARITAL_STATUS.levels)),
                "sex": Categorical(tuple(SEX.levels)),
            }
        ),
        _adult,
    ),
    "abalone": Case(
        "rings ~ sex + diameter + shell",
        "gaussian",
        Schema(
            {
                "rings": Numeric(0, 30),
                "sex": Categorical(("M", "F", "I")),
                "diameter": Numeric(0, 0.7),
                "shell": Numeric(0, 1.1),
            }
        ),
        _abalone,
    ),
    "rand_hie": Case(
        "visits ~ coinsurance + diseases + age + female",
        "negative_binomial",
        Schema(
            {
                "visits": Count(80),
                "coinsurance": Numeric(0, 5),
                "diseases": Numeric(0, 60),
                "age": Numeric(0, 65),
                "female": Boolean(),
            }
        ),
        _rand,
    ),
}
