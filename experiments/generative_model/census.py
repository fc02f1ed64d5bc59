"""Census-Income (KDD) in place of US Census 1990: who earns above 50,000 dollars, from ten declared columns.

The paper explains poverty among persons with a military background. That file is not always at hand; where it is,
``military_poverty`` of :mod:`studies.datasets` has the paper's table, and :func:`poverty_table` its schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpvi.table import Boolean, Categorical, Column, Count, Schema
from studies.datasets import census_income, census_income_labels, military_poverty
from studies.datasets.us_census_1990 import BINARY, CATEGORICAL_REFERENCES
from studies.datasets.us_census_1990 import RESPONSE as POVERTY

RESPONSE = "high_income"
_AGES = ("below 25", "25-34", "35-44", "45-54", "55-64", "65 and above")
_AGE_BOUNDS = (25, 35, 45, 55, 65)

# From the survey's code book, not from the records. Rare levels go to the one called other: a regression on a synthetic
# table needs every level to occur.
_LEVELS = {
    "class_of_worker": (
        "Not in universe",
        "Private",
        "Self-employed-not incorporated",
        "Local government",
        "State government",
        "Self-employed-incorporated",
        "Federal government",
    ),
    "education": (
        "High school graduate",
        "Children",
        "Some college but no degree",
        "Bachelors degree(BA AB BS)",
        "Masters degree(MA MS MEng MEd MSW MBA)",
        "Associates degree-occup /vocational",
        "Associates degree-academic program",
        "other",
    ),
    "marital_stat": ("Never married", "Married-civilian spouse present", "Divorced", "Widowed", "other"),
    "race": ("White", "Black", "Asian or Pacific Islander", "other"),
    "full_or_part_time_employment_stat": (
        "Children or Armed Forces",
        "Full-time schedules",
        "Not in labor force",
        "other",
    ),
    "tax_filer_stat": ("Nonfiler", "Joint both under 65", "Single", "Joint both 65+", "other"),
    "citizenship": (
        "Native- Born in the United States",
        "Foreign born- Not a citizen of U S",
        "Foreign born- U S citizen by naturalization",
        "other",
    ),
    "veterans_benefits": ("2", "0", "1"),
}


def income_schema() -> Schema:
    """The declared columns; the response is a count of 0 or 1 under a Poisson law, as in the paper."""
    columns: dict[str, Column] = {"age": Categorical(_AGES), "sex": Categorical(("Female", "Male"))}
    columns |= {name: Categorical(levels, other=_other(levels)) for name, levels in _LEVELS.items()}
    return Schema(columns | {RESPONSE: Count(upper=50)})


def income_table(path: Path | None = None) -> tuple[Schema, dict[str, Any]]:
    """Schema and the 199,523 raw records of the official training part."""
    table = census_income(path).train
    columns = {name: table[name] for name in ("sex", *_LEVELS)}
    ages = np.asarray(_AGES)[np.searchsorted(_AGE_BOUNDS, table["age"], side="right")]
    return income_schema(), {"age": ages} | columns | {RESPONSE: census_income_labels(table)}


def poverty_table(path: Path | None = None) -> tuple[Schema, dict[str, Any]]:
    """Schema and raw records of the paper's own table, for those who have the file.

    Levels of this file are codes; those that occur are taken, the reference first, since the study compares gradients
    and publishes nothing.
    """
    table = military_poverty(path)
    columns: dict[str, Column] = {}
    for name, reference in CATEGORICAL_REFERENCES.items():
        others = sorted({int(code) for code in np.unique(table[name])} - {reference})
        columns[name] = Categorical((reference, *others))
    columns |= dict.fromkeys(BINARY, Boolean()) | {POVERTY: Count(upper=50)}
    return Schema(columns), table


def _other(levels: tuple[str, ...]) -> str:
    return "other" if "other" in levels else levels[0]
