"""The runs: one cell for each estimator, clip norm, sampling rate and ε, all seeds of a cell side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dpvi
from dpvi.declared.validation import ConvergenceWarning
from dpvi.posterior import Result
from dpvi.privacy import PrivacyWarning
from experiments.abalone.problem import Problem, accuracy, load, model
from experiments.abalone.settings import ESTIMATORS, Settings
from experiments.common.missing_cells import ignoring, run_missing, timed

_PYMC = Path(__file__).with_name("pymc.json")  # written by pymc_reference.py


class Cell(NamedTuple):
    """Which runs."""

    estimator: str
    clip_norm: float
    sampling_rate: float
    epsilon: float


def cells_of(settings: Settings) -> list[Cell]:
    """Panel (a) varies the clip norm, panel (b) the sampling rate."""
    pairs = [(clip_norm, settings.sampling_rate) for clip_norm in settings.clip_norms]
    pairs += [(settings.clip_norm, rate) for rate in settings.sampling_rates]
    chosen = list(dict.fromkeys(pairs))
    return [
        Cell(name, *pair, epsilon) for name in settings.estimators for pair in chosen for epsilon in settings.epsilons
    ]


def fit(problem: Problem, plan: dpvi.Plan, estimator: str, num_seeds: int) -> list[Result]:
    """All seeds side by side, on the same records."""
    with ignoring(PrivacyWarning):  # δ = 0.001, as published
        return dpvi.fit_many(
            model,
            tuple(problem.train),
            plan,
            estimator=ESTIMATORS[estimator],
            seeds=range(num_seeds),
            same_data=True,
            progress=False,
        )


def accuracies(results: list[Result], method: str, problem: Problem) -> list[float]:
    """Of each run, by its last iterate or its averaged ones."""
    with ignoring(ConvergenceWarning):  # a thousand steps do not settle at every noise
        return [accuracy(np.asarray(result.posterior(method).distribution.mean), problem) for result in results]


def run_study(settings: Settings, content: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> None:
    """Run what is missing in ``content`` and hand it to ``keep`` after each cell."""
    problem = load()
    if "not private" not in content["references"]:
        plan = dpvi.plan_nonprivate(settings.sampling_rate, settings.reference_steps)
        [result] = fit(problem, plan, "aligned", 1)
        content["references"]["not private"] = accuracies([result], "average", problem)[0]
    if _PYMC.exists():
        content["references"]["PyMC"] = float(np.mean(json.loads(_PYMC.read_text(encoding="utf-8"))["accuracies"]))

    def row_of(cell: Cell) -> dict[str, Any]:
        plan = dpvi.plan(cell.epsilon, settings.delta, cell.sampling_rate, settings.num_steps, clip_norm=cell.clip_norm)
        results, seconds = timed(fit, problem, plan, cell.estimator, settings.num_seeds)
        scores, more = timed(lambda: {method: accuracies(results, method, problem) for method in ("last", "average")})
        return {"noise_multiplier": plan.noise_multiplier} | scores | {"seconds": round(seconds + more, 2)}

    run_missing(cells_of(settings), content, keep, row_of)
