"""The runs: one cell for each method, clip norm, dimension and density, all seeds of a cell side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import dpvi
from dpvi.core.plan import Plan
from dpvi.posterior import Result
from experiments.common.sized_command import ADJACENCIES
from experiments.full_rank.problem import (
    Problem,
    common_start,
    linear_regression,
    make_problem,
    nonprivate_score,
    predictive_score,
)
from experiments.full_rank.settings import METHODS, Settings


class Cell(NamedTuple):
    """Which runs."""

    dimension: int
    density: float
    clip_norm: float
    method: str


def make_plan(settings: Settings) -> Plan:
    """The one budget of the study, at clip norm 1: what a plan spends does not depend on it."""
    return dpvi.plan(
        settings.epsilon,
        settings.delta_factor / settings.num_records,
        settings.sampling_rate,
        settings.num_steps,
        clip_norm=1.0,
        adjacency=ADJACENCIES[settings.noise],
    )


def check_plan(plan: Plan, settings: Settings) -> Plan:
    """A stored plan, refused where it was made for another study."""
    found = (plan.epsilon, plan.sampling_rate, plan.num_steps, plan.adjacency)
    wanted = (settings.epsilon, settings.sampling_rate, settings.num_steps, ADJACENCIES[settings.noise])
    if found != wanted:
        raise ValueError(
            f"The plan has (ε, sampling rate, steps, adjacency) {found}, the study {wanted}; write it again."
        )
    return plan


def fit(problem: Problem, plan: Plan, method: str, settings: Settings) -> list[Result]:
    """All seeds on one data set."""
    lanes = settings.num_seeds
    records = tuple(np.broadcast_to(part, (lanes, *part.shape)) for part in problem.records)
    return dpvi.fit_many(
        linear_regression,
        records,
        plan,
        family=METHODS[method].family,
        estimator=METHODS[method].estimator,
        optimizer=optax.adam(settings.learning_rate),
        initial_location=common_start(problem, settings.data_seed),
        seeds=[settings.first_seed + k for k in range(lanes)],
        progress=False,
    )


def score_of(result: Result, problem: Problem) -> float:
    """The predictive score at the last iterate; NaN where the run diverged."""
    xi = result.trace.final
    if not np.all(np.isfinite(xi)):
        return float("nan")
    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("highest"):
        location, covariance = np.asarray(result.family.location(xi)), np.asarray(result.family.covariance(xi))
    weights = slice(0, -1)  # sites stand in the order of the model, the noise last and on the log scale
    return predictive_score(
        problem,
        location[weights].astype(np.float64),
        covariance[weights, weights].astype(np.float64),
        float(np.exp(location[-1])),
    )


def run_study(
    settings: Settings,
    plan: Plan,
    methods: Sequence[str],
    content: dict[str, Any],
    keep: Callable[[dict[str, Any]], None],
) -> None:
    """Run the cells that ``content`` does not hold, calling ``keep`` after each."""
    done = {(row["dimension"], row["density"], row["clip_norm"], row["method"]) for row in content["cells"]}
    data = cache(partial(_data, settings))
    for cell in _cells(settings, methods):
        if cell in done:
            continue
        problem, ceiling = data(cell.dimension, cell.density)
        started = time.perf_counter()
        clipped = replace(plan, releases=(replace(plan.gradients, clip_norm=cell.clip_norm),))
        scores = [score_of(result, problem) for result in fit(problem, clipped, cell.method, settings)]
        row = cell._asdict() | {"scores": [s for s in scores if np.isfinite(s)], "num_runs": len(scores)}
        row |= {"nonprivate_score": ceiling, "seconds": round(time.perf_counter() - started, 2)}
        content["cells"].append(row)
        keep(content)


def _cells(settings: Settings, methods: Sequence[str]) -> Iterator[Cell]:
    """One clip norm after the other: a study cut short has all data sets at the first."""
    for clip_norm in settings.clip_norms:
        for dimension in settings.dimensions:
            for density in settings.densities:
                yield from (Cell(dimension, density, clip_norm, method) for method in methods)


def _data(settings: Settings, dimension: int, density: float) -> tuple[Problem, float]:
    problem = make_problem(dimension, density, settings.num_records, settings.data_seed)
    return problem, nonprivate_score(problem)
