"""Simulated records: ways in which a model can be wrong, and right models beside them.

Covariates of most problems are independent of each other: two normals, a uniform, a yes or no and a skewed share. Those
problems whose covariates depend on each other say so in their names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from dpvi.declared.columns import Column, Constant, Levels, Numeric, OneHot
from experiments.misfit import models
from experiments.misfit.problems import Kind, Problem, regression

NUM_RECORDS = 5000
DELTA = 1e-5
SIGMA = 0.3
_BOUND = 3.0  # of a standard normal covariate, which is divided by it

# weights of the base design: normal, normal, uniform, yes or no, share, constant
LINEAR_WEIGHTS = (0.6, -0.4, 0.3, 0.2, -0.5, 0.1)
LOGISTIC_WEIGHTS = (1.5, -1.0, 0.8, 0.5, -1.0, -0.3)
POISSON_WEIGHTS = (0.9, -0.6, 0.5, 0.3, -0.6, 0.5)


class Design(NamedTuple):
    """Columns as declared, their names, and the matrix."""

    columns: tuple[Column, ...]
    features: tuple[str, ...]
    x: np.ndarray


BASE_COLUMNS = (Numeric(-1, 1), Numeric(-1, 1), Numeric(-1, 1), Levels((0, 1)), Numeric(0, 1), Constant())
BASE_FEATURES = ("normal_1", "normal_2", "uniform", "binary", "share", "constant")


def base_design(rng: np.random.Generator, n: int) -> Design:
    """Five covariates that are independent of each other, and the constant."""
    normals = np.clip(rng.normal(size=(n, 2)), -_BOUND, _BOUND) / _BOUND
    others = rng.uniform(-1, 1, n), rng.random(n) < 0.3, rng.beta(2, 5, n), np.ones(n)
    return Design(BASE_COLUMNS, BASE_FEATURES, np.column_stack([normals, *others]))


def correlated_normals(rng: np.random.Generator, n: int, rho: float) -> np.ndarray:
    """Two standard normals with correlation ``rho``, (n, 2)."""
    first, second = rng.normal(size=(2, n))
    return np.column_stack([first, rho * first + np.sqrt(1 - rho**2) * second])


# each maker takes a random generator and a number of records, and returns model, design, response and truth, if any
Drawn = tuple[Callable, Design, np.ndarray, tuple[float, ...] | None]


def _linear_with(residuals: Callable[[np.random.Generator, np.ndarray], np.ndarray], right: bool = False) -> Callable:
    """A linear model whose mean is right and whose residuals are ``residuals(rng, x)``."""

    def draw(rng: np.random.Generator, n: int) -> Drawn:
        design = base_design(rng, n)
        y = design.x @ np.array(LINEAR_WEIGHTS) + residuals(rng, design.x)
        return models.linear, design, y, (*LINEAR_WEIGHTS, np.log(SIGMA)) if right else None

    return draw


def _normal(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return SIGMA * rng.normal(size=len(x))


def _t3(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return SIGMA * rng.standard_t(3, len(x)) / np.sqrt(3)


def _skewed(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return SIGMA * (rng.gamma(0.5, size=len(x)) - 0.5) / np.sqrt(0.5)


def _heteroscedastic(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return 0.15 * np.exp(1.2 * x[:, 2] + 0.5 * x[:, 3]) * rng.normal(size=len(x))


def _interaction(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return 0.8 * x[:, 2] * x[:, 3] + _normal(rng, x)


def _mixture(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Three in ten belong to a population with the opposite slopes and a higher mean."""
    other = rng.random(len(x)) < 0.3
    return _normal(rng, x) + other * (0.8 - 2 * x[:, :5] @ np.array(LINEAR_WEIGHTS[:5]))


def _censored(rng: np.random.Generator, n: int) -> Drawn:
    """Responses above a bound are recorded as the bound: about three in ten."""
    model, design, y, _ = _linear_with(_normal)(rng, n)
    return model, design, np.minimum(y, 0.2), None


def _squares(rng: np.random.Generator, n: int) -> Drawn:
    """x beside x², as two declared columns, and a yes or no; heavy-tailed residuals as wages have them."""
    years, sex = rng.beta(1.3, 1.8, n), (rng.random(n) < 0.5).astype(float)
    x = np.column_stack([years, years**2, sex, np.ones(n)])
    y = x @ np.array([1.8, -1.4, -0.3, -0.2]) + SIGMA * rng.standard_t(5, n)
    columns = (Numeric(0, 1), Numeric(0, 1), Levels((0, 1)), Constant())
    return models.linear, Design(columns, ("years", "years²", "binary", "constant"), x), y, None


def _collinear(rng: np.random.Generator, n: int) -> Drawn:
    """A right logistic model with four normals, two pairs of correlation .95."""
    normals = np.column_stack([correlated_normals(rng, n, 0.95), correlated_normals(rng, n, -0.95)])
    x = np.column_stack([np.clip(normals, -_BOUND, _BOUND) / _BOUND, np.ones(n)])
    truth = (1.5, -1.0, 1.0, 0.5, -0.3)
    columns = (*(Numeric(-1, 1),) * 4, Constant())
    features = ("pair_1a", "pair_1b", "pair_2a", "pair_2b", "constant")
    return models.logistic, Design(columns, features, x), _labels(rng, x, truth), truth


def _rare_levels(rng: np.random.Generator, n: int) -> Drawn:
    """A right logistic model with a category of six levels, the rarest of which has one record in a hundred."""
    level = rng.choice(6, n, p=[0.5, 0.25, 0.15, 0.06, 0.03, 0.01])
    number = np.clip(rng.normal(size=n), -_BOUND, _BOUND) / _BOUND
    x = np.column_stack([number, level[:, None] == np.arange(1, 6), np.ones(n)])
    truth = (1.5, 0.5, -0.5, 1.0, -1.0, 1.5, -0.5)
    features = ("normal", *(f"level_{k}" for k in range(1, 6)), "constant")
    design = Design((Numeric(-1, 1), OneHot(6, reference=True), Constant()), features, x)
    return models.logistic, design, _labels(rng, x, truth), truth


def _leverage(rng: np.random.Generator, n: int) -> Drawn:
    """A covariate with t₂ tails, recorded within ±10; the response follows its true value: far records do not fit."""
    heavy, normal, binary = rng.standard_t(2, n), rng.normal(size=n), (rng.random(n) < 0.3).astype(float)
    x = np.column_stack([np.clip(heavy, -10, 10) / 10, np.clip(normal, -_BOUND, _BOUND) / _BOUND, binary, np.ones(n)])
    y = 0.1 * heavy - 0.3 * x[:, 1] + 0.2 * x[:, 2] + SIGMA * rng.normal(size=n)
    columns = (Numeric(-1, 1), Numeric(-1, 1), Levels((0, 1)), Constant())
    return models.linear, Design(columns, ("heavy", "normal", "binary", "constant"), x), y, None


def _generous(model: Callable, truth: tuple[float, ...]) -> Callable:
    """A right model of numbers whose records lie in a small part of generous bounds: incomes, months, ages, amounts.

    Scaled by these bounds, slopes are large: further from 0 than a prior on slopes expects.
    """

    def draw(rng: np.random.Generator, n: int) -> Drawn:
        income = np.clip(rng.gamma(1.2, 45.0, n), 0, 600) / 600
        months = np.where(rng.random(n) < 0.06, rng.gamma(1.5, 6.0, n), 0.0)
        amount = np.clip(rng.gamma(4.0, 0.08, n), 0, 3) / 3
        ages = np.clip(rng.normal(41, 12, n), 0, 120) / 120
        binary = (rng.random(n) < 0.3).astype(float)
        x = np.column_stack([income, np.clip(months, 0, 60) / 60, amount, ages, binary, np.ones(n)])
        mean = x @ np.asarray(truth)
        y = rng.poisson(np.exp(mean)) if model is models.poisson else _labels(rng, x, truth)
        columns = (*(Numeric(0, 1),) * 4, Levels((0, 1)), Constant())
        return model, Design(columns, ("income", "months", "amount", "age", "binary", "constant"), x), y, truth

    return draw


def _logistic_right(rng: np.random.Generator, n: int) -> Drawn:
    design = base_design(rng, n)
    return models.logistic, design, _labels(rng, design.x, LOGISTIC_WEIGHTS), LOGISTIC_WEIGHTS


def _label_noise(rng: np.random.Generator, n: int) -> Drawn:
    """One label in ten is flipped; slopes are large, so that flips are far from what the model expects."""
    design = base_design(rng, n)
    labels = _labels(rng, design.x, 3 * np.array(LOGISTIC_WEIGHTS))
    return models.logistic, design, np.where(rng.random(n) < 0.1, 1 - labels, labels), None


def _probit(rng: np.random.Generator, n: int) -> Drawn:
    design = base_design(rng, n)
    probability = ndtr(1.3 * design.x @ np.array(LOGISTIC_WEIGHTS))
    return models.logistic, design, (rng.random(n) < probability).astype(np.int32), None


def _counts(change: Callable[[np.random.Generator, np.ndarray], np.ndarray] | None) -> Callable:
    """Counts whose rates are those of the model, or what ``change(rng, rates)`` makes of them."""

    def draw(rng: np.random.Generator, n: int) -> Drawn:
        design = base_design(rng, n)
        rates = np.exp(design.x @ np.array(POISSON_WEIGHTS))
        y = rng.poisson(rates if change is None else change(rng, rates))
        return models.poisson, design, y, POISSON_WEIGHTS if change is None else None

    return draw


def _overdispersed(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    """Negative binomial counts: variance rate + rate²."""
    return rates * rng.gamma(1.0, size=len(rates))


def _zero_inflated(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    return np.where(rng.random(len(rates)) < 0.35, 0.0, 1.5 * rates)


def _pair(rho: float) -> Callable:
    """The smallest case: a right logistic model with two standard covariates of correlation ``rho``, no constant."""

    def draw(rng: np.random.Generator, n: int) -> Drawn:
        x, truth = np.clip(correlated_normals(rng, n, rho), -4, 4), (1.0, -1.0)
        design = Design((Numeric(-4, 4), Numeric(-4, 4)), ("first", "second"), x)
        return models.logistic, design, _labels(rng, x, truth), truth

    return draw


def _labels(rng: np.random.Generator, x: np.ndarray, weights: object) -> np.ndarray:
    return (rng.random(len(x)) < expit(x @ np.asarray(weights))).astype(np.int32)


def _make(name: str, draw: Callable, seed: int, num_records: int | None) -> Problem:
    rng = np.random.default_rng([seed, sum(name.encode())])
    model, design, y, truth = draw(rng, num_records or NUM_RECORDS)
    return regression(name, model, design.x, y, design.columns, design.features, delta=DELTA, truth=truth)


_WAYS: dict[str, tuple[Callable, str]] = {
    "linear_t3": (_linear_with(_t3), "t₃ residuals"),
    "linear_skewed": (_linear_with(_skewed), "skewed residuals"),
    "linear_heteroscedastic": (_linear_with(_heteroscedastic), "heteroscedastic residuals"),
    "linear_interaction": (_linear_with(_interaction), "a missing interaction"),
    "linear_mixture": (_linear_with(_mixture), "a mixture of two populations"),
    "linear_censored": (_censored, "censoring at a bound"),
    "linear_squares": (_squares, "x beside x², t₅ residuals"),
    "linear_leverage": (_leverage, "leverage"),
    "logistic_collinear": (_collinear, "collinear columns, model right"),
    "logistic_rare_levels": (_rare_levels, "rare levels, model right"),
    "logistic_label_noise": (_label_noise, "label noise"),
    "logistic_probit": (_probit, "probit data under a logit"),
    "poisson_overdispersed": (_counts(_overdispersed), "overdispersed counts"),
    "poisson_zero_inflated": (_counts(_zero_inflated), "zero-inflated counts"),
    "poisson_generous": (_generous(models.poisson, (-4.4, 1.2, 0.8, -1.5, 0.6, 0.3)), "generous bounds, right"),
    "logistic_generous": (
        _generous(models.logistic, (2.0, -1.0, 5.3, -1.5, 0.6, -1.2)),
        "generous bounds, right",
    ),
    "linear_right": (_linear_with(_normal, right=True), "nothing"),
    "logistic_right": (_logistic_right, "nothing"),
    "poisson_right": (_counts(None), "nothing"),
    "pair_0": (_pair(0.0), "nothing, ρ = 0"),
    "pair_50": (_pair(0.5), "nothing, ρ = 0.5"),
    "pair_70": (_pair(0.7), "nothing, ρ = 0.7"),
    "pair_95": (_pair(0.95), "nothing, ρ = 0.95"),
}

SIMULATED = {name: Kind(partial(_make, name, draw), label) for name, (draw, label) in _WAYS.items()}
