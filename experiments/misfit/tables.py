"""Real tables: Adult, Abalone, Census-Income and the RAND Health Insurance Experiment, with declared bounds.

Bounds are public knowledge (codebooks, units, common sense), stated here and never read from the records; what lies
outside is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from dpvi.declared.columns import Column, Constant, Levels, Numeric, OneHot
from experiments.misfit import models
from experiments.misfit.problems import Kind, Problem, regression
from studies.datasets import (
    Table,
    abalone,
    adult,
    adult_labels,
    census_income_labels,
    encode_adult_noise_aware,
    rand_hie,
)
from studies.datasets.adult_encoding import NOISE_AWARE_COLUMNS
from studies.datasets.census_income import FILES as CENSUS_FILES
from studies.datasets.census_income import read_census_income
from studies.datasets.encoding import declared_covariates
from studies.datasets.files import locate
from studies.datasets.tables import select_rows

_SAMPLE_SEED = 16
_CENSUS_RECORDS = 50_000


class Number(NamedTuple):
    """A number within public bounds, scaled to [0, 1]; with ``logarithm`` log(1 + value) is, bounds before it."""

    name: str
    lower: float
    upper: float
    logarithm: bool = False

    def encode(self, table: Table) -> tuple[list[np.ndarray], Column, list[str]]:
        values = np.clip(table[self.name], self.lower, self.upper)
        change = np.log1p if self.logarithm else np.asarray
        lower, upper = (float(change(bound)) for bound in (self.lower, self.upper))
        return [(change(values) - lower) / (upper - lower)], Numeric(0, 1), [self.name]


class Flag(NamedTuple):
    """A column that is 0 or 1, or 1 where it equals ``value``."""

    name: str
    value: str | None = None

    def encode(self, table: Table) -> tuple[list[np.ndarray], Column, list[str]]:
        found = table[self.name] == (1 if self.value is None else self.value)
        return [found], Levels((0, 1)), [self.name]


class Groups(NamedTuple):
    """A category by groups of its levels; levels in no group are the reference."""

    name: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]

    def encode(self, table: Table) -> tuple[list[np.ndarray], Column, list[str]]:
        found = [np.isin(table[self.name], levels) for _, levels in self.groups]
        names = [f"{self.name}={group}" for group, _ in self.groups]
        return found, OneHot(len(found) + 1, reference=True), names


class Flags(NamedTuple):
    """Indicators of one category that the table holds as columns; none of them is the reference."""

    names: tuple[str, ...]

    def encode(self, table: Table) -> tuple[list[np.ndarray], Column, list[str]]:
        return [table[name] == 1 for name in self.names], OneHot(len(self.names) + 1, reference=True), list(self.names)


def encode(
    table: Table, columns: Iterable[Number | Flag | Groups | Flags]
) -> tuple[np.ndarray, tuple[Column, ...], tuple[str, ...]]:
    """The design matrix with a constant last, its declared columns, and the names of its features."""
    parts, declared, features = [], [], []
    for column in columns:
        arrays, kind, names = column.encode(table)
        parts += arrays
        declared.append(kind)
        features += names
    rows = len(parts[0])
    x = np.column_stack([*parts, np.ones(rows)]).astype(np.float32)
    return x, (*declared, Constant()), (*features, "constant")


# lengths and weights of shells were divided by 200: millimetres and grams of a mollusc that reaches 20 cm and 600 g
ABALONE = (
    Groups("Sex", (("M", ("M",)), ("F", ("F",)))),
    Number("Length", 0, 1),
    Number("Diameter", 0, 0.8),
    Number("Height", 0, 0.5),
    Number("Whole_weight", 0, 3),
    Number("Shucked_weight", 0, 1.5),
    Number("Viscera_weight", 0, 1),
    Number("Shell_weight", 0, 1.2),
)
_RINGS_CENTRE, _RINGS_SCALE = 10.0, 10.0

# the survey's top codes: age 90, weeks 52, amounts below 100,000 dollars; persons of 18 or more
CENSUS = (
    Number("age", 18, 90),
    Number("weeks_worked_in_year", 0, 52),
    Number("num_persons_worked_for_employer", 0, 6),
    Number("capital_gains", 0, 1e5, logarithm=True),
    Number("capital_losses", 0, 1e4, logarithm=True),
    Number("dividends_from_stocks", 0, 1e5, logarithm=True),
    Flag("sex", "Male"),
    Groups(
        "education",
        (
            (
                "some college",
                (
                    "Some college but no degree",
                    "Associates degree-academic program",
                    "Associates degree-occup /vocational",
                ),
            ),
            ("high school", ("High school graduate",)),
            ("bachelor", ("Bachelors degree(BA AB BS)",)),
            ("master", ("Masters degree(MA MS MEng MEd MSW MBA)",)),
            ("doctor", ("Doctorate degree(PhD EdD)", "Prof school degree (MD DDS DVM LLB JD)")),
        ),
    ),
    Groups(
        "marital_stat",
        (("never", ("Never married",)), ("divorced", ("Divorced", "Separated")), ("widowed", ("Widowed",))),
    ),
    Groups(
        "race",
        (("black", ("Black",)), ("other", ("Amer Indian Aleut or Eskimo", "Asian or Pacific Islander", "Other"))),
    ),
    Groups(
        "class_of_worker",
        (
            ("none", ("Not in universe", "Never worked", "Without pay")),
            ("government", ("Federal government", "Local government", "State government")),
            ("self-employed", ("Self-employed-incorporated", "Self-employed-not incorporated")),
        ),
    ),
    Flag("citizenship", "Foreign born- Not a citizen of U S"),
)

# Cameron and Trivedi's covariates: coinsurance up to 100 %, expenditure limits of up to 1,000 dollars (5,000 over
# coinsurance), an index of chronic diseases below 60, families of up to 15, persons below 65
RAND = (
    Number("logc", 0, math.log(101)),
    Flag("idp"),
    Number("lpi", 0, 7.5),
    Number("fmde", 0, 8.5),
    Number("physlm", 0, 1),
    Number("disea", 0, 60),
    Flags(("hlthg", "hlthf", "hlthp")),
    Number("linc", 0, 10.5),
    Number("lfam", 0, math.log(15)),
    Number("educdec", 0, 25),
    Number("xage", 0, 65),
    Flag("female"),
    Flag("child"),
    Flag("fchild"),
    Number("black", 0, 1),
)
_LOG_SPENDING_CENTRE, _LOG_SPENDING_SCALE = 5.0, 5.0  # log(1 + dollars), from 0 to about 10
_RAND_RESPONSES: dict[str, tuple[Callable, Callable[[Table], np.ndarray]]] = {
    "rand_linear": (
        models.linear,
        lambda table: (np.log1p(table["meddol"]) - _LOG_SPENDING_CENTRE) / _LOG_SPENDING_SCALE,
    ),
    "rand_poisson": (models.poisson, lambda table: table["mdvis"]),
    "rand_logistic": (models.logistic, lambda table: table["binexp"]),
}


@cache
def _adult() -> Problem:
    """57 weights, as in noise-aware DPVI, scaled by public constants."""
    train = adult().train
    encoded = encode_adult_noise_aware(train, "declared")
    columns = tuple(declared_covariates(NOISE_AWARE_COLUMNS))
    features = encoded.feature_names
    return regression("adult", models.logistic, encoded.features, adult_labels(train), columns, features, delta=1e-6)


@cache
def _abalone() -> Problem:
    """Rings from sizes and weights, in tens of rings about ten."""
    table = abalone()
    y = (table["Rings"] - _RINGS_CENTRE) / _RINGS_SCALE
    x, columns, features = encode(table, ABALONE)
    return regression("abalone", models.linear, x, y, columns, features, delta=1e-5)


@cache
def _census() -> Problem:
    """Incomes above 50,000 dollars among adults: a fixed sample of 50,000 from the smaller, official test part."""
    table = read_census_income(locate(CENSUS_FILES["test"]))
    adults = np.flatnonzero(table["age"] >= 18)
    rows = np.sort(np.random.default_rng(_SAMPLE_SEED).choice(adults, _CENSUS_RECORDS, replace=False))
    table = select_rows(table, rows)
    x, columns, features = encode(table, CENSUS)
    return regression("census_income", models.logistic, x, census_income_labels(table), columns, features, delta=1e-6)


@cache
def _rand(name: str) -> Problem:
    """One year of each person; four persons without years of schooling are left out."""
    table = rand_hie()
    table = select_rows(table, ~np.isnan(table["educdec"]))
    model, response = _RAND_RESPONSES[name]
    x, columns, features = encode(table, RAND)
    return regression(name, model, x, response(table), columns, features, delta=1e-5)


def _make(read: Callable[[], Problem], seed: int, num_records: int | None) -> Problem:
    """The table, or a fixed sample of ``num_records`` of its rows; the seed changes nothing."""
    problem = read()
    if num_records is None or num_records >= problem.num_records:
        return problem
    rows = np.random.default_rng(_SAMPLE_SEED).choice(problem.num_records, num_records, replace=False)
    x, y = problem.data
    return replace(problem, data=(x[rows], y[rows]))


TABLES = {
    "adult": Kind(partial(_make, _adult), "Adult, logistic", table=True),
    "abalone": Kind(partial(_make, _abalone), "Abalone, linear", table=True),
    "census_income": Kind(partial(_make, _census), "Census-Income, logistic", table=True),
    **{
        name: Kind(partial(_make, partial(_rand, name)), f"RAND HIE, {name.removeprefix('rand_')}", table=True)
        for name in _RAND_RESPONSES
    },
}
