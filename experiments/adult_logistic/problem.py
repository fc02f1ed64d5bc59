"""Records, model and non-private optimum; and the public law from which records are simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.special

from experiments.adult_logistic.optimum import Optimum, mean_field_optimum
from studies.datasets import CategoricalColumn, Table, adult, adult_labels, encode_adult_aligned
from studies.datasets.adult_encoding import ALIGNED_COLUMNS

_SIMULATION_SEED = 31


class Problem(NamedTuple):
    """Encoded records and where a fit without privacy ends."""

    name: str
    features: np.ndarray  # (n, 96), float32
    labels: np.ndarray  # (n,), int32
    optimum: Optimum

    @property
    def records(self) -> tuple[np.ndarray, np.ndarray]:
        return self.features, self.labels


def logistic_regression(x: Any, y: Any = None) -> None:
    """Weights a priori N(0, I), one Bernoulli label per record."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def make_problem(simulated_records: int | None, path: Path | None = None, download: bool = False) -> Problem:
    """Adult in 96 columns, numbers z-scored as published; or ``simulated_records`` rows of the public law."""
    if simulated_records is not None:
        return simulated_problem(np.random.default_rng(_SIMULATION_SEED), simulated_records)
    table = adult(path, download=download).train
    features, labels = encode_adult_aligned(table, "published").features, adult_labels(table)
    return Problem("Adult", features, labels, mean_field_optimum(features, labels))


def simulated_problem(rng: np.random.Generator, num_records: int) -> Problem:
    """A table of the public law, with labels at weights from the prior and its own optimum."""
    features = encode_adult_aligned(_public_table(rng, num_records), "published").features
    probability = scipy.special.expit(features.astype(np.float64) @ rng.normal(size=features.shape[1]))
    labels = (rng.uniform(size=num_records) < probability).astype(np.int32)
    return Problem("simulated records", features, labels, mean_field_optimum(features, labels))


def _public_table(rng: np.random.Generator, num_records: int) -> Table:
    """Declared columns, nothing read: levels equally likely, numbers normal around their declared centres."""
    table: Table = {}
    for column in ALIGNED_COLUMNS:
        if isinstance(column, CategoricalColumn):
            table[column.name] = rng.choice(column.levels, num_records)
        else:
            values = column.centre + column.scale * rng.normal(size=num_records)
            table[column.name] = np.clip(np.expm1(values) if column.logarithm else values, column.lower, column.upper)
    return table
