"""The runs: one cell for each N, ε and number of iterations, all seeds of a cell side by side."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import optax

import dpvi
from dpvi.core.validation import ConvergenceWarning
from dpvi.posterior import Result
from dpvi.privacy import PrivacyWarning
from experiments.hierarchical.problem import Problem, auc, guide, make_problem, model, plain_logistic_auc, probabilities
from experiments.hierarchical.settings import MAIN_SIZE, NOT_PRIVATE, Settings


class Cell(NamedTuple):
    """Which runs; ``epsilon`` is a number or ``"inf"``."""

    num_records: int
    epsilon: float | str
    num_steps: int


def cells_of(settings: Settings) -> list[Cell]:
    """Figure 5 has every N at the longest training; Figure 6 every length at N = 500."""
    budgets: tuple[float | str, ...] = (*settings.epsilons, NOT_PRIVATE)
    sizes = [Cell(n, budget, settings.longest) for n in settings.num_records for budget in budgets]
    lengths = [Cell(MAIN_SIZE, budget, steps) for steps in settings.num_steps for budget in budgets]
    return list(dict.fromkeys([*sizes, *lengths]))


def make_plan(cell: Cell, settings: Settings) -> dpvi.Plan:
    """δ = 1/N as published."""
    if isinstance(cell.epsilon, str):
        return dpvi.plan_nonprivate(settings.sampling_rate, cell.num_steps)
    return dpvi.plan(
        cell.epsilon, 1 / cell.num_records, settings.sampling_rate, cell.num_steps, clip_norm=settings.clip_norm
    )


def fit(problem: Problem, plan: dpvi.Plan, settings: Settings) -> list[Result]:
    """All seeds side by side, on the same records."""
    seeds = range(settings.num_seeds)
    data = tuple(np.broadcast_to(part, (len(seeds), *part.shape)) for part in problem.train)
    of_groups = {"characteristics": problem.characteristics}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # δ = 1/N, as published
        return dpvi.fit_many(
            partial(model, **of_groups),
            data,
            plan,
            guide=partial(guide, **of_groups),
            optimizer=optax.adam(settings.learning_rate),
            seeds=seeds,
            progress=False,
        )


def run_study(settings: Settings, content: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> None:
    """Run what is missing in ``content`` and hand it to ``keep`` after each cell."""
    done = {(row["num_records"], row["epsilon"], row["num_steps"]) for row in content["cells"]}
    for cell in cells_of(settings):
        if cell in done:
            continue
        problem = make_problem(cell.num_records, settings.data_seed)
        content["baselines"][str(cell.num_records)] = plain_logistic_auc(problem)
        plan = make_plan(cell, settings)
        started = time.perf_counter()
        results = fit(problem, plan, settings)
        row = cell._asdict() | {"noise_multiplier": plan.noise_multiplier}
        row["seconds"] = round(time.perf_counter() - started, 2)
        for method in ("last", "average"):
            row[method] = [_auc(result, method, problem) for result in results]
        content["cells"].append(row)
        keep(content)


def _auc(result: Result, method: str, problem: Problem) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # short trainings are part of the study
        parameters: Any = result.posterior(method)
    return auc(probabilities(parameters.params, problem.test, problem.characteristics), problem.test.labels)
