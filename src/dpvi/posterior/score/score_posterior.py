"""From a trace with frozen query points to a Gaussian on z, with a look at whether the model could have done it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpvi.core.plan import Plan
from dpvi.core.trace import Trace
from dpvi.families.base import Family
from dpvi.models.generative import CovariateLaw
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.score.blocks import blocks_of, simulation_seed
from dpvi.posterior.score.check import check_blocks
from dpvi.posterior.score.gauss_newton import gauss_newton
from dpvi.posterior.score.model import ScoreModel


class NotConvergedError(ValueError):
    """No parameters were found that explain what was released."""


def score_posterior(
    trace: Trace,
    family: Family,
    *,
    plan: Plan,
    model: Any,
    scores: ScoreModel | None = None,
    num_records: float | None = None,
    covariates: CovariateLaw | None = None,
    num_simulated: int | None = None,
    seed: int | None = None,
    check: bool = True,
) -> Gaussian:
    """The score posterior of a trace with frozen query points, as ``Result.posterior("score")`` computes it.

    Parameters
    ----------
    trace, family, plan, model
        From the result. The family is not used: no variational scale enters.
    scores
        The driver's :class:`~dpvi.posterior.score.model.ScoreModel`, whose programs are compiled already; its settings
        hold.
    num_records, covariates, num_simulated
        Settings of a new one, instead of ``scores``.
    seed
        Of the simulation; by default it follows from what was released, so that repeated studies do not share one
        simulation error.
    check
        Warn where the blocks are not compatible with the fitted model; see :func:`check_blocks`.
    """
    blocks = blocks_of(trace)
    settings = {"num_records": num_records, "covariates": covariates, "num_simulated": num_simulated}
    given = {name: value for name, value in settings.items() if value is not None}
    if scores is None or given:
        if model is None:
            raise ValueError("The score posterior simulates records; load the result with its model.")
        scores = ScoreModel(model, plan, **given)
    elif scores.plan != plan:
        raise ValueError("scores must be a ScoreModel of the plan of this result, got one of another plan.")
    population = scores.population(trace.histograms)
    seed = simulation_seed(blocks.mean_noisy_sum[0]) if seed is None else seed
    found = gauss_newton(scores, blocks, blocks.query[-1], seed, population)
    if not found.converged:
        raise NotConvergedError(
            "Gauss-Newton did not converge on these releases: the last step would still move by "
            f"{np.sqrt(found.decrement):.2g} standard deviations. Measure nearer to the answer, with a longer moving "
            "phase."
        )
    if check:
        check_blocks(scores, blocks, found.mean, warn=True, seed=seed, population=population)
    return Gaussian.from_covariance(found.mean.astype(trace.final.dtype), found.covariance)
