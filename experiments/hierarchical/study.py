"""The runs: one cell for each N, ε and number of iterations, all seeds of a cell side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import optax

import dpvi
from dpvi.declared.validation import ConvergenceWarning
from dpvi.posterior import Result
from dpvi.privacy import PrivacyWarning
from experiments.common.missing_cells import ignoring, run_missing, timed
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
    of_groups = {"characteristics": problem.characteristics}
    with ignoring(PrivacyWarning):  # δ = 1/N, as published
        return dpvi.fit_many(
            partial(model, **of_groups),
            tuple(problem.train),
            plan,
            guide=partial(guide, **of_groups),
            optimizer=optax.adam(settings.learning_rate),
            seeds=range(settings.num_seeds),
            same_data=True,
            progress=False,
        )


def run_study(settings: Settings, content: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> None:
    """Run what is missing in ``content`` and hand it to ``keep`` after each cell."""

    def row_of(cell: Cell) -> dict[str, Any]:
        problem = make_problem(cell.num_records, settings.data_seed)
        content["baselines"][str(cell.num_records)] = plain_logistic_auc(problem)
        plan = make_plan(cell, settings)
        results, seconds = timed(fit, problem, plan, settings)
        scores = {method: [_auc(result, method, problem) for result in results] for method in ("last", "average")}
        return {"noise_multiplier": plan.noise_multiplier, "seconds": round(seconds, 2)} | scores

    run_missing(cells_of(settings), content, keep, row_of)


def _auc(result: Result, method: str, problem: Problem) -> float:
    with ignoring(ConvergenceWarning):  # short trainings are part of the study
        parameters: Any = result.posterior(method)
    return auc(probabilities(parameters.params, problem.test, problem.characteristics), problem.test.labels)
