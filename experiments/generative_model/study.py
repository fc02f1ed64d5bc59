"""The runs: one cell for each data set, variant, clip norm, budget, initial scale and length."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import optax

import dpvi
from dpvi.core.plan import Plan
from dpvi.core.validation import ConvergenceWarning
from dpvi.posterior import Result
from dpvi.privacy import PrivacyWarning
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


@contextmanager
def ignored_warnings() -> Iterator[None]:
    """Silence what the results say: δ is one over the number of records, as published, and some runs still drift."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def location_start(problem: Problem, index: int) -> np.ndarray:
    """Start ``index`` of the unconstrained locations, uniform on (−2, 2): the same for every variant and ε."""
    dimension = dpvi.check(problem.model, dict(problem.records)).dimension
    return np.random.default_rng([_START_SEED, index]).uniform(-_START_BOUND, _START_BOUND, dimension)


def fit_side_by_side(
    problem: Problem, records: Mapping[str, np.ndarray], plan: Plan, cell: Cell, settings: Settings, runs: Sequence[int]
) -> list[Result]:
    """Runs number ``runs`` on ``records`` (lanes, n), all from the start that the first of them belongs to."""
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
            progress=False,
        )


def fit(cell: Cell, problem: Problem, settings: Settings) -> list[Result]:
    """All starts and runs of a cell."""
    plan = make_plan(cell.epsilon, problem.num_records, settings.sampling_rate, cell.num_steps, cell.clip_norm)
    lanes = settings.runs_per_start
    records = {leaf: np.broadcast_to(values, (lanes, *values.shape)) for leaf, values in problem.records.items()}
    groups = [range(start * lanes, (start + 1) * lanes) for start in range(settings.num_starts)]
    return [run for runs in groups for run in fit_side_by_side(problem, records, plan, cell, settings, runs)]


def run_cells(
    settings: Settings,
    problems: Mapping[str, Callable[[], Problem]],
    cells: Sequence[Cell],
    content: dict[str, Any],
    keep: Keep,
) -> None:
    """Run the ``cells`` that ``content`` does not hold, calling ``keep`` after each."""
    done = {tuple(row[name] for name in Cell._fields) for row in content["cells"]}
    for cell in cells:
        if cell in done:
            continue
        problem = problems[cell.data]()
        started = time.perf_counter()
        results = fit(cell, problem, settings)
        row = cell._asdict() | {"table": problem.name, "num_records": problem.num_records}
        row |= {"noise_multiplier": results[0].plan.noise_multiplier}
        row |= {"seconds": round(time.perf_counter() - started, 1)}
        row |= score(results, str(problem.model.response), problem.optimum, settings)
        content["cells"].append(row)
        keep(content, f"{cell.data}, {cell.variant}, C = {cell.clip_norm:g}, σ_q = {cell.initial_scale:g}")
