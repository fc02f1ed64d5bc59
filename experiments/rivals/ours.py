"""dpvi on the same data sets, by its default plan or by an expert's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import dpvi
from experiments.common.missing_cells import ignoring
from experiments.rivals.problems import DataSet, Interval, Problem
from experiments.rivals.settings import Setting

PLANS = ("default", "expert")
_EXPERT = {"sampling_rate": 0.1, "num_steps": 2_000, "clip_norm": 3.0}


def make_plan(problem: Problem, setting: Setting, kind: str) -> dpvi.Plan:
    """Budget and declared columns alone, or with the settings of today's expert."""
    options: dict[str, Any] = dict(_EXPERT) if kind == "expert" else {}
    return dpvi.plan(epsilon=setting.epsilon, delta=setting.delta, covariates=columns_of(problem), **options)


def columns_of(problem: Problem) -> list[Any]:
    """Scaled columns, as they are declared."""
    columns: list[Any] = []
    for number, (low, high) in enumerate(problem.bounds):
        scale = float(problem.scale[number])
        if low == high:
            columns.append(dpvi.Constant(low / scale))
        elif number in problem.levels:
            columns.append(dpvi.Levels((low / scale, high / scale)))
        else:
            columns.append(dpvi.Numeric(low / scale, high / scale))
    return columns


def model_of(problem: Problem) -> Any:
    """The regression with coefficients ``w`` of scaled columns and, in a linear one, ``variance``."""

    def logistic(x: Any, y: Any = None) -> None:
        weights = numpyro.sample("w", dist.Normal(0.0, problem.prior_scale).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    def linear(x: Any, y: Any = None) -> None:
        weights = numpyro.sample("w", dist.Normal(0.0, problem.prior_scale).expand([x.shape[1]]).to_event(1))
        variance = numpyro.sample("variance", dist.InverseGamma(*problem.variance_prior))
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ weights, jnp.sqrt(variance)), obs=y)

    return linear if problem.kind == "linear" else logistic


def run_ours(problem: Problem, data: DataSet, plan: dpvi.Plan, model: Any, seed: int) -> Interval:
    """Intervals of the posterior, and the scale of its privacy part where it is told."""
    return run_many(problem, [data], plan, model, [seed])[0]


def run_many(
    problem: Problem, data: Sequence[DataSet], plan: dpvi.Plan, model: Any, seeds: Sequence[int]
) -> list[Interval]:
    """:func:`run_ours` on data sets of equal size, one per seed; programs are compiled once for all."""
    scaled = [problem.scaled(each) for each in data]
    x = np.stack([each.x for each in scaled]).astype(np.float32)
    y = np.stack([each.y for each in scaled]).astype(np.int32 if problem.kind == "logistic" else np.float32)
    with ignoring(UserWarning):  # convergence and contradictions: coverage is what is judged here
        results = dpvi.fit_many(model, (x, y), plan, seeds=list(seeds), progress=False)
        return [problem.raw(_interval(result.posterior())) for result in results]


def _interval(posterior: Any) -> Interval:
    """Of scaled columns."""
    summary = posterior.summary()
    weights = [number for number, name in enumerate(summary.names) if name.split("[")[0] == "w"]
    privacy = getattr(posterior.distribution, "privacy_covariance", None)
    scale = None if privacy is None else np.sqrt(np.diag(np.asarray(privacy, np.float64)))[weights]
    return Interval(summary.mean[weights], summary.lower[weights], summary.upper[weights], scale)
