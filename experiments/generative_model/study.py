"""The runs: one cell for each data set, variant, clip norm, budget, initial scale and length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import optax

import dpvi
from dpvi.declared.plan import Plan
from dpvi.declared.validation import ConvergenceWarning
from dpvi.posterior import Result
from dpvi.privacy import PrivacyWarning
from experiments.common.missing_cells import fit_in_parts, folder_of, ignoring, run_missing
from experiments.generative_model.cells import Cell
from experiments.generative_model.problem import Problem
from experiments.generative_model.scores import score
from experiments.generative_model.settings import VARIANTS, Settings

_START_SEED = 47
_START_BOUND = 2.0

Keep = Callable[[dict[str, Any], str], None]


@cache
def make_plan(epsilon: float, num_records: int, sampling_rate: float, num_steps: int, clip_norm: float) -> Plan:
    """δ = 1/N as published; the size of a simulated cohort and of a public census is no secret."""
    with ignored_warnings():
        return dpvi.plan(epsilon, 1 / num_records, sampling_rate, num_steps, clip_norm=clip_norm)


def ignored_warnings() -> AbstractContextManager[None]:
    """Silence what the results say: δ is one over the number of records, as published, and some runs still drift."""
    return ignoring(PrivacyWarning, ConvergenceWarning)


def location_start(problem: Problem, index: int) -> np.ndarray:
    """Start ``index`` of the unconstrained locations, uniform on (−2, 2): the same for every variant and ε."""
    dimension = dpvi.check(problem.model, dict(problem.records)).dimension
    return np.random.default_rng([_START_SEED, index]).uniform(-_START_BOUND, _START_BOUND, dimension)


def fit_side_by_side(
    problem: Problem,
    records: Mapping[str, np.ndarray],
    plan: Plan,
    cell: Cell,
    settings: Settings,
    runs: Sequence[int],
    directory: Path | None = None,
    *,
    same_data: bool = False,
) -> list[Result]:
    """Runs number ``runs``, all from the start that the first of them belongs to.

    ``records`` are one table (n,) for all with ``same_data``, else a table for each, (runs, n).
    """
    with ignored_warnings():
        return dpvi.fit_many(
            problem.model,
            dict(records),
            plan,
            family=dpvi.MeanField(initial_scale=cell.initial_scale),
            estimator=VARIANTS[cell.variant],
            optimizer=optax.adam(settings.learning_rate),
            initial_location=location_start(problem, runs[0] // len(runs)),
            seeds=[settings.first_seed + k for k in runs],
            same_data=same_data,
            directory=directory,
            progress=False,
        )


def fit(cell: Cell, problem: Problem, settings: Settings, kept_runs: Path | None = None) -> tuple[list[Result], float]:
    """All starts and runs of a cell, the runs of a start side by side, and the seconds they took."""
    plan = make_plan(cell.epsilon, problem.num_records, settings.sampling_rate, cell.num_steps, cell.clip_norm)
    some = partial(fit_side_by_side, problem, problem.records, plan, cell, settings, same_data=True)
    size = settings.runs_per_start
    return fit_in_parts(some, range(settings.num_starts * size), size, folder_of(kept_runs, cell))


def run_cells(
    settings: Settings,
    problems: Mapping[str, Callable[[], Problem]],
    cells: Sequence[Cell],
    content: dict[str, Any],
    keep: Keep,
    kept_runs: Path | None = None,
) -> None:
    """Run the ``cells`` that ``content`` does not hold, calling ``keep`` after each."""

    def row_of(cell: Cell) -> dict[str, Any]:
        problem = problems[cell.data]()
        results, seconds = fit(cell, problem, settings, kept_runs)
        row = {"table": problem.name, "num_records": problem.num_records}
        row |= {"noise_multiplier": results[0].plan.noise_multiplier, "seconds": round(seconds, 2)}
        return row | score(results, str(problem.model.response), problem.optimum, settings)

    def keep_last(content: dict[str, Any]) -> None:
        cell = content["cells"][-1]
        what = f"{cell['data']}, {cell['variant']}, C = {cell['clip_norm']:g}, σ_q = {cell['initial_scale']:g}"
        keep(content, what)

    run_missing(cells, content, keep_last, row_of, kept_runs)
