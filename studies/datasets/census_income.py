"""Census-Income (KDD): 299,285 persons of the Current Population Surveys of 1994 and 1995.

UCI Machine Learning Repository (2000), doi:10.24432/C5N30T, CC BY 4.0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.datasets.files import DataFile, locate, read_bytes
from studies.datasets.tables import Split, Table, parse_table

_ORIGIN = "the UCI repository, https://archive.ics.uci.edu/dataset/117/census+income+kdd"

# No address: the checksum of the files served there is not known, and nothing unchecked is downloaded.
FILES = {
    "train": DataFile(
        "census_income_kdd",
        ("census-income.data", "census-income.data.gz", "census_income_train.csv", "census_income_train.csv.gz"),
        _ORIGIN,
    ),
    "test": DataFile(
        "census_income_kdd",
        ("census-income.test", "census-income.test.gz", "census_income_test.csv", "census_income_test.csv.gz"),
        _ORIGIN,
    ),
}

LABEL = "income"
POSITIVE = "50000+"
SURVEY_WEIGHT = "instance_weight"

_NAMES = (
    "age",
    "class_of_worker",
    "detailed_industry_recode",
    "detailed_occupation_recode",
    "education",
    "wage_per_hour",
    "enroll_in_edu_inst_last_wk",
    "marital_stat",
    "major_industry_code",
    "major_occupation_code",
    "race",
    "hispanic_origin",
    "sex",
    "member_of_a_labor_union",
    "reason_for_unemployment",
    "full_or_part_time_employment_stat",
    "capital_gains",
    "capital_losses",
    "dividends_from_stocks",
    "tax_filer_stat",
    "region_of_previous_residence",
    "state_of_previous_residence",
    "detailed_household_and_family_stat",
    "detailed_household_summary_in_household",
    "instance_weight",
    "migration_code_change_in_msa",
    "migration_code_change_in_reg",
    "migration_code_move_within_reg",
    "live_in_this_house_1_year_ago",
    "migration_prev_res_in_sunbelt",
    "num_persons_worked_for_employer",
    "family_members_under_18",
    "country_of_birth_father",
    "country_of_birth_mother",
    "country_of_birth_self",
    "citizenship",
    "own_business_or_self_employed",
    "fill_inc_questionnaire_for_veterans_admin",
    "veterans_benefits",
    "weeks_worked_in_year",
    "year",
    "income",
)
_NUMERIC = {
    "age",
    "wage_per_hour",
    "capital_gains",
    "capital_losses",
    "dividends_from_stocks",
    SURVEY_WEIGHT,
    "num_persons_worked_for_employer",
    "weeks_worked_in_year",
}


def census_income(path: str | Path | None = None) -> Split:
    """The official training and test parts as raw columns, 42 of them.

    Codes such as ``veterans_benefits`` and ``detailed_industry_recode`` are categories and therefore strings. Missing
    values stay "?": more than half of the rows have one. ``instance_weight`` is a survey weight and no feature.

    Parameters
    ----------
    path
        A folder with ``census-income.data`` and ``census-income.test``, or with the same rows under a header as
        ``census_income_train.csv`` and ``census_income_test.csv``; gzipped or not. Without it see
        :func:`~studies.datasets.files.locate`.
    """
    return Split(*(read_census_income(locate(FILES[part], path)) for part in ("train", "test")))


def census_income_labels(table: Table) -> np.ndarray:
    """1 where the income is above 50,000 dollars, else 0, int32."""
    return (table[LABEL] == POSITIVE).astype(np.int32)


def read_census_income(path: Path) -> Table:
    """One part, from a file with or without a header."""
    table = parse_table(read_bytes(path).decode("utf-8"), _NAMES, _NUMERIC)
    # the original files write "- 50000." and "50000+."
    table[LABEL] = np.char.rstrip(table[LABEL], ".")
    return table
