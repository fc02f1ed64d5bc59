"""The runs: one cell for each method, clip norm, dimension and density, all seeds of a cell side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import dpvi
from dpvi.declared.plan import Plan
from dpvi.posterior import Result
from experiments.common.missing_cells import fit_in_parts, folder_of, run_missing, timed
from experiments.common.sized_command import ADJACENCIES, KEPT_RUNS
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


def fit(
    problem: Problem, plan: Plan, method: str, settings: Settings, runs: Sequence[int], directory: Path | None = None
) -> list[Result]:
    """Runs number ``runs`` on one data set."""
    return dpvi.fit_many(
        linear_regression,
        tuple(problem.records),
        plan,
        family=METHODS[method].family,
        estimator=METHODS[method].estimator,
        optimizer=optax.adam(settings.learning_rate),
        initial_location=common_start(problem, settings.data_seed),
        seeds=[settings.first_seed + k for k in runs],
        same_data=True,
        directory=directory,
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
    kept_runs: Path | None = None,
) -> None:
    """Run the cells that ``content`` does not hold, calling ``keep`` after each."""
    size = settings.num_seeds if kept_runs is None else KEPT_RUNS
    data = cache(partial(_data, settings))

    def row_of(cell: Cell) -> dict[str, Any]:
        problem, ceiling = data(cell.dimension, cell.density)
        clipped = replace(plan, releases=(replace(plan.gradients, clip_norm=cell.clip_norm),))
        some = partial(fit, problem, clipped, cell.method, settings)
        results, seconds = fit_in_parts(some, range(settings.num_seeds), size, folder_of(kept_runs, cell))
        scores, more = timed(lambda: [score_of(result, problem) for result in results])
        found = {"scores": [s for s in scores if np.isfinite(s)], "num_runs": len(scores)}
        return found | {"nonprivate_score": ceiling, "seconds": round(seconds + more, 2)}

    run_missing(_cells(settings, methods), content, keep, row_of, kept_runs)


def _cells(settings: Settings, methods: Sequence[str]) -> Iterator[Cell]:
    """One clip norm after the other: a study cut short has all data sets at the first."""
    for clip_norm in settings.clip_norms:
        for dimension in settings.dimensions:
            for density in settings.densities:
                yield from (Cell(dimension, density, clip_norm, method) for method in methods)


def _data(settings: Settings, dimension: int, density: float) -> tuple[Problem, float]:
    problem = make_problem(dimension, density, settings.num_records, settings.data_seed)
    return problem, nonprivate_score(problem)
