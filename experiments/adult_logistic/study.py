"""The runs: one cell for each clipping rule, variant and ε, all seeds of a cell side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optax

import dpvi
from dpvi.declared.plan import Plan
from dpvi.posterior import Result
from dpvi.privacy import PrivacyWarning
from experiments.adult_logistic.problem import Problem, logistic_regression
from experiments.adult_logistic.releases import norms_at_the_start, rule_clip_norm, simulated_clip_norms
from experiments.adult_logistic.scores import score
from experiments.adult_logistic.settings import AT_START, PUBLISHED_CLIP_NORMS, VARIANTS, Settings
from experiments.common.missing_cells import fit_in_parts, folder_of, ignoring, run_missing
from experiments.common.sized_command import ADJACENCIES, KEPT_RUNS

_RULE_RECORDS = 30_000  # a declared size for simulated tables, not read from the records


class Cell(NamedTuple):
    """Which runs: a rule for the clip norm, a variant and a budget."""

    clipping: str
    variant: str
    epsilon: float


def cells_of(clippings: Sequence[str], variants: Sequence[str], epsilons: Sequence[float]) -> list[Cell]:
    return [Cell(c, v, e) for c in clippings for e in epsilons for v in variants]


def make_plans(settings: Settings, num_records: int) -> dict[float, Plan]:
    """One plan for each ε, δ = 1/N as published, at clip norm 1: what a plan spends does not depend on it."""
    adjacency = ADJACENCIES[settings.noise]
    return {
        epsilon: dpvi.plan(
            epsilon, 1 / num_records, settings.sampling_rate, settings.num_steps, clip_norm=1.0, adjacency=adjacency
        )
        for epsilon in settings.epsilons
    }


def save_plans(plans: Mapping[float, Plan], path: Path) -> None:
    """Write plans for a machine without the accountant; the text is made first, so a failure leaves no half file."""
    text = json.dumps([plan.to_dict() for plan in plans.values()], indent=2, allow_nan=False) + "\n"
    path.write_text(text, encoding="utf-8")


def load_plans(path: Path, settings: Settings) -> dict[float, Plan]:
    """Stored plans, refused where one is missing or was made for another size."""
    stored = [Plan.from_dict(content) for content in json.loads(path.read_text(encoding="utf-8"))]
    wanted = (settings.sampling_rate, settings.num_steps, ADJACENCIES[settings.noise])
    for plan in stored:
        if (found := (plan.sampling_rate, plan.num_steps, plan.adjacency)) != wanted:
            raise ValueError(
                f"{path} has (sampling rate, steps, adjacency) {found}, the study {wanted}; write it again."
            )
    plans = {plan.epsilon: plan for plan in stored}
    missing = [f"{epsilon:g}" for epsilon in settings.epsilons if epsilon not in plans]
    if missing:
        raise ValueError(f"{path} has no plan for epsilon {', '.join(missing)}; write it again.")
    return plans


def clip_norms(problem: Problem) -> dict[str, dict[str, float]]:
    """C of every variant: as published, by the paper's rule on simulated records, and by it on the records themselves.

    The third is what the paper did; it is not private, is used by no run, and stands in the results for comparison. The
    last is no C of any run either: the rule's quantile where runs start, on simulated records.
    """
    size = min(_RULE_RECORDS, len(problem.labels)) if problem.name != "Adult" else _RULE_RECORDS
    return {
        "published": dict(PUBLISHED_CLIP_NORMS),
        "simulated": simulated_clip_norms(size),
        "on the records": {name: rule_clip_norm(estimator, problem) for name, estimator in VARIANTS.items()},
        AT_START: norms_at_the_start(size, Settings().initial_scale),
    }


def facts_of(problem: Problem) -> dict[str, Any]:
    """What depends on the data alone: clip norms, and quartiles of the optimum's variances σ*².

    The latter say how fast a run forgets its start; like every distance to the optimum they are not private.
    """
    variances = np.quantile(problem.optimum.scale**2, (0.25, 0.5, 0.75)).tolist()
    return {"data": problem.name, "clip_norms": clip_norms(problem), "optimum_variances": variances}


def load_facts(path: Path, data: str) -> dict[str, Any]:
    """Those of another study of the same data; to find them takes as long as thousands of steps."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored["data"] != data:
        raise ValueError(f"{path} has facts about {stored['data']}, the study is of {data}; leave them out.")
    return {name: stored[name] for name in ("data", "clip_norms", "optimum_variances") if name in stored}


def with_clip_norm(plan: Plan, clip_norm: float) -> Plan:
    """The same plan at another clip norm: its noise is relative to it."""
    return replace(plan, releases=(replace(plan.gradients, clip_norm=clip_norm),))


def fit(
    cell: Cell, plan: Plan, problem: Problem, settings: Settings, runs: Sequence[int], directory: Path | None = None
) -> list[Result]:
    """Runs number ``runs`` of a cell, on one data set."""
    with ignoring(PrivacyWarning):  # the paper's δ is one over the number of records, which is rightly called too large
        return dpvi.fit_many(
            logistic_regression,
            tuple(problem.records),
            plan,
            family=dpvi.MeanField(initial_scale=settings.initial_scale),
            estimator=VARIANTS[cell.variant],
            optimizer=optax.adam(settings.learning_rate),
            seeds=[settings.first_seed + k for k in runs],
            same_data=True,
            directory=directory,
            progress=False,
        )


def run_study(
    settings: Settings,
    problem: Problem,
    plans: Mapping[float, Plan],
    cells: Sequence[Cell],
    content: dict[str, Any],
    keep: Callable[[dict[str, Any]], None],
    kept_runs: Path | None = None,
) -> None:
    """Run the ``cells`` that ``content`` does not hold, calling ``keep`` after each."""
    size = settings.num_seeds if kept_runs is None else KEPT_RUNS

    def row_of(cell: Cell) -> dict[str, Any]:
        plan = with_clip_norm(plans[cell.epsilon], content["clip_norms"][cell.clipping][cell.variant])
        some = partial(fit, cell, plan, problem, settings)
        results, seconds = fit_in_parts(some, range(settings.num_seeds), size, folder_of(kept_runs, cell))
        noise = {"clip_norm": plan.clip_norm, "noise_multiplier": plan.noise_multiplier}
        return noise | {"seconds": round(seconds, 2)} | score(results, problem.optimum, settings)

    run_missing(cells, content, keep, row_of, kept_runs)
