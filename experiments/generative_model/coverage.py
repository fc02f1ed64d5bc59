"""Do intervals from synthetic data cover? Cohorts of a known law, one budget, the two blocks of the model fitted apart.

Equations 24 and 25 share no parameter. One budget pays for both runs (``dpvi.plan_together``): the regression's run
measures and has a score posterior, the mixture's has the noise of its own trace. Beside it the same study with what a
user would have without noise-awareness, the last iterates, and the analyst who holds the records.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import jax
import numpy as np

import dpvi
from dpvi.models.table import TableModel
from dpvi.posterior import Posterior, Result, join
from dpvi.posterior.score import NotConvergedError
from dpvi.synthetic import pool_glm, synthesize
from dpvi.synthetic.glm import fit_glm
from dpvi.table import Design
from experiments.generative_model import cohort
from experiments.generative_model.study import Keep, ignored_warnings

LEVEL = 0.95
RECORDS = "records"
# posteriors of mixture and regression; the regression of "score" measured, the others' moved to the end
METHODS: Mapping[str, tuple[str, str]] = {
    "score": ("stationary", "score"),
    "stationary": ("stationary", "stationary"),
    "last": ("last", "last"),
}
_COHORT_SEED, _START_SEED, _KEY = 59, 61, 67
_NORMAL_QUANTILE = 1.959963984540054


@dataclass(frozen=True)
class CoverageSettings:
    """Cohorts, model, budget and data sets.

    Parameters
    ----------
    num_cohorts, cohorts_at_once
        How many cohorts are simulated, and how many are fitted side by side.
    num_records, num_components
        N and K.
    epsilon, mixture_share
        The budget of both runs together at δ = 1/N, and the mixture's share of it.
    sampling_rate, mixture_steps, regression_steps, mixture_clip_norm, regression_clip_norm
        κ, T and C of the two runs.
    num_datasets, dataset_records
        M, and records of a synthetic data set.
    """

    num_cohorts: int = 100
    cohorts_at_once: int = 10
    num_records: int = cohort.PUBLISHED_RECORDS
    num_components: int = 16
    epsilon: float = 1.0
    mixture_share: float = 0.3
    sampling_rate: float = 0.01
    mixture_steps: int = 10_000
    regression_steps: int = 10_000
    mixture_clip_norm: float = 2.0
    regression_clip_norm: float = 2.0
    num_datasets: int = 100
    dataset_records: int = cohort.PUBLISHED_RECORDS

    def __post_init__(self) -> None:
        if self.num_cohorts % self.cohorts_at_once or self.num_cohorts < 2:
            raise ValueError(
                "num_cohorts must be at least 2 and a multiple of cohorts_at_once, got "
                f"{self.num_cohorts} and {self.cohorts_at_once}."
            )


def coverage_settings(size: str) -> CoverageSettings:
    """The study at ``size``."""
    if size == "quick":
        return CoverageSettings(2, 2, 3000, 2, 10.0, 0.3, 0.05, 100, 200, 2.0, 2.0, 5, 5000)
    if size == "small":
        return CoverageSettings(
            cohorts_at_once=20,
            num_records=20_000,
            num_components=4,
            mixture_steps=1000,
            regression_steps=2000,
            num_datasets=20,
            dataset_records=20_000,
        )
    return CoverageSettings()


def run_coverage(settings: CoverageSettings, content: dict[str, Any], keep: Keep) -> None:
    """Cohorts that ``content`` does not hold; ``keep`` is called after each group."""
    stored = content.setdefault("coverage", {"settings": asdict(settings), "cohorts": []})
    if stored["settings"] != asdict(settings):
        raise ValueError("The results hold a coverage study with other settings; choose another --output.")
    size = settings.cohorts_at_once
    for first in range(len(stored["cohorts"]), settings.num_cohorts, size):
        started = time.perf_counter()
        rows = of_group(range(first, first + size), settings)
        seconds = round((time.perf_counter() - started) / size, 2)
        stored["cohorts"] += [row | {"seconds": seconds} for row in rows]
        keep(content, f"coverage, cohorts up to {first + size - 1}, {seconds} s each")


def table_model(settings: CoverageSettings) -> TableModel:
    return TableModel(cohort.SCHEMA, settings.num_components, response=cohort.RESPONSE)


@cache
def plans(settings: CoverageSettings, *, measuring: bool) -> dict[str, dpvi.Plan]:
    """Both runs under one budget; where the regression measures, histograms of its predictors are paid for too."""
    _, regression = table_model(settings).blocks()
    common = {"sampling_rate": settings.sampling_rate}
    mixture = common | {"num_steps": settings.mixture_steps, "clip_norm": settings.mixture_clip_norm}
    measured = common | {"num_steps": settings.regression_steps, "clip_norm": settings.regression_clip_norm}
    if measuring:
        measured["covariates"] = regression.covariates()
    shares = {"mixture": settings.mixture_share}
    with ignored_warnings():
        blocks = {"mixture": mixture, "regression": measured}
        return dpvi.plan_together(settings.epsilon, 1 / settings.num_records, blocks, shares)


def of_group(cohorts: Sequence[int], settings: CoverageSettings) -> list[dict[str, Any]]:
    """One row for each cohort."""
    model = table_model(settings)
    tables = [cohort.simulate(np.random.default_rng([_COHORT_SEED, k]), settings.num_records) for k in cohorts]
    records = {leaf: np.stack([table[leaf] for table in tables]) for leaf in model.leaves}
    mixture, regression = model.blocks()
    measuring, moving = (plans(settings, measuring=flag) for flag in (True, False))
    start = mixture.draw_parameters(jax.random.key(np.uint32(_START_SEED)))
    mixtures = _fit(mixture, records, measuring["mixture"], cohorts, 0, start)
    runs = {
        "score": _fit(regression, records, measuring["regression"], cohorts, 1),
        "moving": _fit(regression, records, moving["regression"], cohorts, 2),
    }
    # posteriors one after the other, then data sets and regressions on all cores: NumPy lets threads run side by side
    posteriors = [
        {
            name: joint_posterior((mixtures[lane], of_mixture), (runs.get(name, runs["moving"])[lane], of_regression))
            for name, (of_mixture, of_regression) in METHODS.items()
        }
        for lane in range(len(tables))
    ]

    def row(lane: int) -> dict[str, Any]:
        found = {name: pooled_row(each, model, settings, cohorts[lane]) for name, each in posteriors[lane].items()}
        return {"cohort": cohorts[lane], RECORDS: _on_records(tables[lane])} | found

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(row, range(len(tables))))


def joint_posterior(mixture: tuple[Result, str], regression: tuple[Result, str]) -> Posterior | str:
    """The posterior of both blocks, or the sentence that says why there is none."""
    try:
        return join({"mixture": _with_posterior(*mixture), "regression": _with_posterior(*regression)})
    except NotConvergedError as error:
        return str(error)


def pooled_row(
    posterior: Posterior | str, model: TableModel, settings: CoverageSettings, number: int
) -> dict[str, Any]:
    """Estimates and half widths pooled over data sets; ``failed`` holds the sentence where there are none."""
    if isinstance(posterior, str):
        return {"failed": posterior}
    data = synthesize(
        posterior,
        model,
        cohort.SCHEMA,
        num_records=settings.dataset_records,
        num_datasets=settings.num_datasets,
        key=jax.random.fold_in(jax.random.key(np.uint32(_KEY)), np.uint32(number)),
    )
    try:
        pooled = pool_glm(data, cohort.SCHEMA, cohort.RESPONSE)
    except ValueError as error:  # a data set that allows no regression
        return {"failed": str(error)}
    lower, upper = pooled.interval(LEVEL)
    return _row(pooled.estimate, (upper - lower) / 2) | {"fell_back": int(pooled.fell_back.sum())}


def _with_posterior(result: Result, method: str) -> tuple[Result, Posterior]:
    with ignored_warnings():
        return result, result.posterior(method, **({"check": False} if method == "score" else {}))


def _fit(
    model: Any, records: Mapping[str, np.ndarray], plan: dpvi.Plan, cohorts: Sequence[int], run: int, start: Any = None
) -> list[Result]:
    """The runs number ``run`` of all cohorts, each with a seed of its own."""
    with ignored_warnings():
        return dpvi.fit_many(
            model,
            {leaf: records[leaf] for leaf in model.leaves},
            plan,
            initial_location=start,
            seeds=[3 * k + run for k in cohorts],
            progress=False,
        )


def _on_records(table: Mapping[str, np.ndarray]) -> dict[str, Any]:
    design = Design(cohort.SCHEMA, tuple(cohort.FEATURES))
    estimate, variance = fit_glm(table, design, cohort.RESPONSE)
    return _row(estimate, _NORMAL_QUANTILE * np.sqrt(variance))


def _row(estimate: np.ndarray, half_width: np.ndarray) -> dict[str, Any]:
    return {"estimate": estimate.round(4).tolist(), "half_width": half_width.round(4).tolist()}
