"""The runs: one cell for each estimator, sampling rate and noise, all seeds of a cell side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

import dpvi
from dpvi.declared.validation import ConvergenceWarning
from dpvi.posterior import Result
from dpvi.privacy import PrivacyWarning
from experiments.common.missing_cells import ignoring, run_missing, timed
from experiments.gaussian_mixture.problem import (
    Problem,
    common_start,
    log_likelihood,
    make_problem,
    model,
    reference_scores,
)
from experiments.gaussian_mixture.settings import ESTIMATORS, Settings


class Cell(NamedTuple):
    """Which runs; a noise multiplier of 0 is a run without privacy."""

    estimator: str
    sampling_rate: float
    noise_multiplier: float


def cells_of(settings: Settings) -> list[Cell]:
    return [
        Cell(estimator, rate, multiplier)
        for rate, noise in settings.runs
        for multiplier in (*noise, 0.0)
        for estimator in settings.estimators
    ]


def make_plan(cell: Cell, settings: Settings) -> dpvi.Plan:
    """The plan at a given noise; ε is what the accountant says it spends."""
    if cell.noise_multiplier == 0:
        return dpvi.plan_nonprivate(cell.sampling_rate, settings.num_steps, settings.clip_norm)
    return dpvi.plan(
        delta=settings.delta,
        sampling_rate=cell.sampling_rate,
        num_steps=settings.num_steps,
        clip_norm=settings.clip_norm,
        noise_multiplier=cell.noise_multiplier,
    )


def fit(problem: Problem, plan: dpvi.Plan, estimator: str, settings: Settings) -> list[Result]:
    """All seeds side by side, on the same records and from the same start."""
    with ignoring(PrivacyWarning):  # δ = 0.001 for 2,000 records, as published
        return dpvi.fit_many(
            model,
            problem.train,
            plan,
            estimator=ESTIMATORS[estimator],
            optimizer=optax.adam(settings.learning_rate),
            initial_location=common_start(settings.data_seed),
            seeds=range(settings.num_seeds),
            same_data=True,
            progress=False,
        )


def run_study(settings: Settings, content: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> None:
    """Run what is missing in ``content`` and hand it to ``keep`` after each cell."""
    problem = make_problem(settings.num_records, settings.num_test_records, settings.data_seed)
    content["references"] = reference_scores(problem)

    def row_of(cell: Cell) -> dict[str, Any]:
        plan = make_plan(cell, settings)
        results, seconds = timed(fit, problem, plan, cell.estimator, settings)
        scores = [_score(result, problem, settings) for result in results]
        return {"epsilon": plan.epsilon if plan.private else None, "seconds": round(seconds, 2), "scores": scores}

    run_missing(cells_of(settings), content, keep, row_of)


def _score(result: Result, problem: Problem, settings: Settings) -> float:
    with ignoring(ConvergenceWarning):  # a thousand steps do not settle at every noise
        posterior = result.posterior("last")
    return log_likelihood(posterior.sample(settings.num_draws, jax.random.key(0)), problem.test)
