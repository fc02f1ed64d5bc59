"""The data sets that rivals were published on, what is declared of them, and the answer without privacy.

Columns are handed to every method but BinAgg divided by the largest value that was declared for them, which is public;
coefficients are those of the raw columns everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

QUANTILE = 1.959963984540054  # of a normal, 97.5 %


class DataSet(NamedTuple):
    """Covariates (n, d), responses (n,), and the coefficients (d,) that made them."""

    x: np.ndarray
    y: np.ndarray
    truth: np.ndarray


class Interval(NamedTuple):
    """What a method says of all coefficients; without intervals ``lower`` and ``upper`` are NaN."""

    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    privacy_scale: np.ndarray | None = None  # standard deviation around the answer without privacy, where it is told


@dataclass(frozen=True)
class Problem:
    """A law of data sets and what a custodian declares.

    Parameters
    ----------
    kind
        ``"linear"`` or ``"logistic"``.
    num_records
        n.
    bounds
        Declared for each column; equal ones for a constant, two values in ``levels`` for an indicator.
    draw
        A data set from a generator and n.
    judged
        The coefficients that are looked at.
    prior_scale
        Standard deviation of coefficients of scaled columns, a priori.
    response_bound
        |y| of a linear problem, declared.
    variance_prior
        Shape and scale of the inverse Gamma law of the residual variance.
    levels
        Columns that are indicators.
    """

    kind: str
    num_records: int
    bounds: tuple[tuple[float, float], ...]
    draw: Callable[[np.random.Generator, int], DataSet]
    judged: tuple[int, ...]
    prior_scale: float
    response_bound: float = 1.0
    variance_prior: tuple[float, float] = (2.0, 1.0)
    levels: tuple[int, ...] = ()

    @property
    def scale(self) -> np.ndarray:
        """The largest declared |x| of each column."""
        return np.max(np.abs(np.asarray(self.bounds)), axis=1)

    def scaled(self, data: DataSet) -> DataSet:
        """Columns within ±1, and coefficients to match."""
        return DataSet(data.x / self.scale, data.y, data.truth * self.scale)

    def raw(self, found: Interval) -> Interval:
        """Back from scaled columns."""
        return Interval(*(None if part is None else part / self.scale for part in found))


def gaussian_interval(estimate: np.ndarray, covariance: np.ndarray) -> Interval:
    """Central 95 % of a normal."""
    half = QUANTILE * np.sqrt(np.diag(covariance))
    return Interval(estimate, estimate - half, estimate + half)


def nonprivate(problem: Problem, data: DataSet) -> Interval:
    """Mode of the same model and prior without privacy, and the normal law around it."""
    answer = nonprivate_linear if problem.kind == "linear" else nonprivate_logistic
    return problem.raw(answer(problem.scaled(data), problem.prior_scale))


def nonprivate_linear(data: DataSet, prior_scale: float) -> Interval:
    """Least squares with a ridge of the prior; the variance of residuals is theirs."""
    n, d = data.x.shape
    moments = data.x.T @ data.x
    residuals = data.y - data.x @ np.linalg.lstsq(data.x, data.y, rcond=None)[0]
    variance = residuals @ residuals / (n - d)
    covariance = np.linalg.inv(moments / variance + np.eye(d) / prior_scale**2)
    return gaussian_interval(covariance @ (data.x.T @ data.y) / variance, covariance)


def nonprivate_logistic(data: DataSet, prior_scale: float) -> Interval:
    """Newton's method; it has converged long before the fortieth step."""
    d = data.x.shape[1]
    beta = np.zeros(d)
    information = np.eye(d)
    for _ in range(40):
        share = 1 / (1 + np.exp(-data.x @ beta))
        information = (data.x.T * (share * (1 - share))) @ data.x + np.eye(d) / prior_scale**2
        beta = beta + np.linalg.solve(information, data.x.T @ (data.y - share) - beta / prior_scale**2)
    return gaussian_interval(beta, np.linalg.inv(information))


def _logistic(rng: np.random.Generator, x: np.ndarray, truth: np.ndarray) -> DataSet:
    return DataSet(x, (rng.uniform(size=len(x)) < 1 / (1 + np.exp(-x @ truth))).astype(np.float64), truth)


def _arcsine(rng: np.random.Generator, n: int) -> DataSet:
    x = np.column_stack([np.ones(n), 2 * rng.beta(0.5, 0.5, size=n) - 1])
    return _logistic(rng, x, np.array([0.5, 2.0]))


def _four_columns(rng: np.random.Generator, n: int) -> DataSet:
    x = np.column_stack([np.ones(n), np.clip(rng.normal(size=(n, 3)), -3, 3)])
    return _logistic(rng, x, np.array([0.5, 1.0, -1.0, 0.5]))


def _cube(rng: np.random.Generator, n: int) -> DataSet:
    truth, x = np.array([1.5, -2.0, 0.5]), rng.uniform(0, 10, size=(n, 3))
    return DataSet(x, x @ truth + rng.normal(size=n), truth)


def _wages(rng: np.random.Generator, n: int) -> DataSet:
    """Log wage by school, experience, sex and town; who is longer at school has worked for less time."""
    school = np.clip(np.round(rng.normal(13, 3, size=n)), 0, 20)
    experience = np.clip(rng.gamma(2.0, 10.0, size=n) - 0.8 * (school - 13), 0, 50)
    x = np.column_stack([np.ones(n), school / 10 - 1, experience / 25 - 1, rng.uniform(size=(n, 2)) < (0.48, 0.7)])
    truth = np.array([2.8, 0.9, 0.25, -0.2, 0.12])
    return DataSet(x, x @ truth + 0.5 * rng.normal(size=n), truth)


ORACLE_PRIOR = (3.0, 1.0)  # of the residual variance


def _from_prior(rng: np.random.Generator, n: int) -> DataSet:
    """Truth drawn from the prior, so that exact posteriors cover 95 % exactly."""
    truth, variance = rng.normal(size=3), ORACLE_PRIOR[1] / rng.gamma(ORACLE_PRIOR[0])
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, size=(n, 2))])
    return DataSet(x, x @ truth + np.sqrt(variance) * rng.normal(size=n), truth)


PROBLEMS: dict[str, Problem] = {
    "arcsine-1000": Problem("logistic", 1_000, ((1, 1), (-1, 1)), _arcsine, (1,), 5.0),
    "arcsine-2000": Problem("logistic", 2_000, ((1, 1), (-1, 1)), _arcsine, (1,), 5.0),
    "cube": Problem("linear", 2_000, ((0, 10),) * 3, _cube, (0, 1, 2), 30.0, 30.0),
    "four-columns": Problem("logistic", 5_000, ((1, 1), *((-3, 3),) * 3), _four_columns, (0, 1, 2, 3), 15.0),
    "wages": Problem(
        "linear", 50_000, ((1, 1), (-1, 1), (-1, 1), (0, 1), (0, 1)), _wages, (1, 2, 3, 4), 5.0, 7.0, levels=(3, 4)
    ),
    "oracle": Problem("linear", 100, ((1, 1), (-1, 1), (-1, 1)), _from_prior, (0, 1, 2), 1.0, 4.0, ORACLE_PRIOR),
}


def data_set(name: str, seed: int, num_records: int | None = None) -> DataSet:
    """The same records for every method that is given this seed."""
    problem = PROBLEMS[name]
    return problem.draw(np.random.default_rng([20_616, seed]), num_records or problem.num_records)
