"""Synthetic data from private fits, and what an analyst concludes from them (Figure 3).

Each repeat simulates a cohort of its own, fits it with the aligned gradient, draws data sets from the posterior and
pools the Poisson regressions on them. A posterior that knows nothing of its noise (the last iterate) stands beside one
that averages and one that adds the noise it sees in its own trace.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dpvi.posterior import Result
from dpvi.synthetic import pool_glm, synthesize
from dpvi.synthetic.glm import fit_glm
from dpvi.table import Design
from experiments.generative_model import cohort
from experiments.generative_model.cells import WIDE, Cell, DownstreamCell
from experiments.generative_model.problem import COHORT, Problem, cohort_problem
from experiments.generative_model.settings import Settings
from experiments.generative_model.study import Keep, fit_side_by_side, ignored_warnings, make_plan

METHODS = ("last", "average", "stationary")
LEVEL = 0.95
_KEY = 53
_NORMAL_QUANTILE = 1.959963984540054


def run_downstream(settings: Settings, cells: Sequence[DownstreamCell], content: dict[str, Any], keep: Keep) -> None:
    """Repeats that ``content`` does not hold, ``settings.repeats_at_once`` side by side.

    All cells get their first repeats before any gets its second ones, so that a study cut short can be read.
    """
    done = {(row["epsilon"], row["clip_norm"], row["repeat"]) for row in content["downstream"]}
    size = settings.repeats_at_once
    for first in range(0, settings.num_repeats, size):
        for cell in cells:
            repeats = range(first, first + size)
            if all((*cell, repeat) in done for repeat in repeats):
                continue
            started = time.perf_counter()
            rows = batch(cell, repeats, settings)
            seconds = round((time.perf_counter() - started) / size, 1)
            content["downstream"] += [row | {"seconds": seconds} for row in rows]
            keep(content, f"downstream, ε = {cell.epsilon:g}, C = {cell.clip_norm:g}, repeats up to {repeats[-1]}")


def batch(cell: DownstreamCell, repeats: Sequence[int], settings: Settings) -> list[dict[str, Any]]:
    """One row for each repeat."""
    problems = [cohort_problem(settings, repeat) for repeat in repeats]
    steps = settings.downstream_steps
    runs = Cell(COHORT, "aligned", cell.clip_norm, cell.epsilon, WIDE, steps)
    plan = make_plan(cell.epsilon, settings.num_records, settings.sampling_rate, steps, cell.clip_norm)
    records = {leaf: np.stack([p.records[leaf] for p in problems]) for leaf in problems[0].records}
    results = fit_side_by_side(problems[0], records, plan, runs, settings, repeats)
    return [
        cell._asdict() | {"repeat": repeat} | of_repeat(result, problem, settings, repeat)
        for result, problem, repeat in zip(results, problems, repeats, strict=True)
    ]


def of_repeat(result: Result, problem: Problem, settings: Settings, repeat: int) -> dict[str, Any]:
    """The regression on the cohort itself, and pooled over data sets of each posterior."""
    truth = cohort.true_coefficients()
    design = Design(cohort.SCHEMA, tuple(cohort.FEATURES))
    original, variance = fit_glm(problem.records, design, cohort.RESPONSE, robust=True)
    half = _NORMAL_QUANTILE * np.sqrt(variance)
    row: dict[str, Any] = {"original": _judged(original, original - half, original + half, original, truth)}
    for method in METHODS:
        row[method] = of_method(result, problem, method, settings, repeat, original, truth)
    return row


def of_method(
    result: Result,
    problem: Problem,
    method: str,
    settings: Settings,
    repeat: int,
    original: np.ndarray,
    truth: np.ndarray,
) -> dict[str, Any]:
    """Pooled estimates of one posterior; ``failed`` holds the sentence where a data set allows no regression."""
    with ignored_warnings():
        posterior = result.posterior(method) if method == "last" else _tail_posterior(result, method, settings)
    data = synthesize(
        posterior,
        problem.model,
        cohort.SCHEMA,
        num_records=settings.dataset_records,
        num_datasets=settings.num_datasets,
        key=jax.random.key(np.uint32(_KEY + repeat)),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # statsmodels warns where a rate overflows; such a data set fails below
            pooled = pool_glm(data, cohort.SCHEMA, cohort.RESPONSE, robust=True)
    except ValueError as error:
        return {"failed": str(error)}
    lower, upper = pooled.interval(LEVEL)
    judged = _judged(pooled.estimate, lower, upper, original, truth)
    return judged | {"share_fell_back": float(np.mean(pooled.fell_back))}


def _tail_posterior(result: Result, method: str, settings: Settings) -> Any:
    return result.posterior(method, slope_threshold=settings.slope_threshold)


def _judged(
    estimate: np.ndarray, lower: np.ndarray, upper: np.ndarray, original: np.ndarray, truth: np.ndarray
) -> dict[str, Any]:
    """Distance to the coefficients on the cohort (the paper's error), error and width, and which intervals cover."""
    return {
        "distance_to_original": float(np.linalg.norm(estimate - original)),
        "estimate": estimate.tolist(),
        "mean_half_width": float(np.mean((upper - lower) / 2)),
        "covered": ((lower <= truth) & (truth <= upper)).tolist(),
    }
