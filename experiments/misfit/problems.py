"""What a method is tried on: a model, records, and columns as declared, made by name and seed.

>>> problem = make_problem("linear_t3", seed=0, num_records=100)
>>> problem.dimension, problem.num_records, problem.parameters[-1]
(7, 100, 'log_sigma')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpvi.declared.columns import Column
from experiments.misfit import models


@dataclass(frozen=True)
class Problem:
    """One data set and the model that is fitted to it.

    Parameters
    ----------
    name
        Of the problem.
    model
        A NumPyro function f(x, y).
    data
        (x, y): a design matrix (n, p), float32, and responses (n,), float32 or int32.
    columns
        What x may hold, declared, not read from it.
    parameters
        Names of the unconstrained coordinates, in the order of z.
    slopes, scales
        Which coordinates are weights of columns other than the constant, and which are logarithms of scales.
    delta
        δ of all private runs.
    truth
        The z that made the data, where the model is right.
    """

    name: str
    model: Callable
    data: tuple[np.ndarray, np.ndarray]
    columns: tuple[Column, ...]
    parameters: tuple[str, ...]
    slopes: tuple[int, ...]
    scales: tuple[int, ...]
    delta: float
    truth: np.ndarray | None = None

    @property
    def dimension(self) -> int:
        return len(self.parameters)

    @property
    def num_records(self) -> int:
        return len(self.data[1])


class Kind(NamedTuple):
    """One problem before its data are drawn or read."""

    make: Callable[[int, int | None], Problem]  # (seed, number of records or None for the full study's)
    label: str  # what is wrong, for tables
    table: bool = False  # a fixed real table instead of simulated records


def regression(
    name: str,
    model: Callable,
    x: np.ndarray,
    y: np.ndarray,
    columns: tuple[Column, ...],
    features: tuple[str, ...],
    *,
    delta: float,
    truth: Any = None,
) -> Problem:
    """A :class:`Problem` from a design matrix; the column named ``"constant"``, if any, has no slope."""
    width = sum(column.width for column in columns)
    if x.shape != (len(y), width) or len(features) != width:
        raise ValueError(f"{name}: x has shape {x.shape}, columns take {width}, and {len(features)} have names.")
    slopes = tuple(at for at, feature in enumerate(features) if feature != "constant")
    scales = (width,) if model is models.linear else ()
    dtype = np.float32 if model is models.linear else np.int32
    data = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(y, dtype)
    parameters = (*features, *(("log_sigma",) if scales else ()))
    known = None if truth is None else np.asarray(truth, np.float64)
    return Problem(name, model, data, tuple(columns), parameters, slopes, scales, delta, known)


def kinds() -> Mapping[str, Kind]:
    """Every problem by name: simulated ones first."""
    from experiments.misfit.simulated import SIMULATED
    from experiments.misfit.tables import TABLES

    return {**SIMULATED, **TABLES}


def make_problem(name: str, seed: int = 0, num_records: int | None = None) -> Problem:
    """The problem ``name``: new records for each seed, or a real table, which is the same for all.

    Parameters
    ----------
    name
        One of :func:`kinds`.
    seed
        Of simulated records.
    num_records
        How many, where not those of the full study; of a table, a fixed sample of that many rows.

    Raises
    ------
    FileNotFoundError
        Where a table is not on this machine.
    """
    return kinds()[name].make(seed, num_records)
