"""Records, their model and the optimum of its regression without privacy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpvi.models.table import TableModel
from dpvi.table import Schema
from experiments.generative_model import cohort
from experiments.generative_model.census import income_table, poverty_table
from experiments.generative_model.optimum import Optimum, poisson_optimum
from experiments.generative_model.settings import Settings

COHORT, CENSUS = "cohort", "census"
_COHORT_SEED, _CENSUS_SEED = 41, 43
_TABLES = {"income": ("Census-Income", income_table), "poverty": ("US Census 1990", poverty_table)}


class Problem(NamedTuple):
    """What is fitted, and where the regression would end without privacy."""

    name: str
    model: TableModel
    records: Mapping[str, np.ndarray]  # encoded leaves, each (n,)
    optimum: Optimum  # of the weights in the order of the design, then the intercept

    @property
    def num_records(self) -> int:
        return len(next(iter(self.records.values())))


def cohort_problem(settings: Settings, repeat: int | None = None) -> Problem:
    """The study's cohort, or with ``repeat`` another cohort of the same law."""
    seed = [_COHORT_SEED] if repeat is None else [_COHORT_SEED, repeat]
    records = cohort.simulate(np.random.default_rng(seed), settings.num_records)
    return _problem("simulated cohort", cohort.SCHEMA, records, cohort.RESPONSE, settings)


def census_problem(settings: Settings, path: Path | None = None) -> Problem:
    """The census, or ``settings.census_records`` of its records, drawn without replacement under a fixed seed."""
    name, load = _TABLES[settings.census]
    schema, table = load(path)
    records = schema.encode(table)
    size = len(next(iter(records.values())))
    if settings.census_records is not None and settings.census_records < size:
        rows = np.random.default_rng(_CENSUS_SEED).choice(size, settings.census_records, replace=False)
        records = {leaf: values[rows] for leaf, values in records.items()}
    return _problem(name, schema, records, list(schema.columns)[-1], settings)


def _problem(
    name: str, schema: Schema, records: Mapping[str, np.ndarray], response: str, settings: Settings
) -> Problem:
    model = TableModel(schema, settings.num_components, response=response)
    assert model.regression is not None
    matrix = model.regression.design.matrix(records)
    with_intercept = np.column_stack([matrix, np.ones(len(matrix))])
    return Problem(name, model, records, poisson_optimum(with_intercept, np.asarray(records[response])))
