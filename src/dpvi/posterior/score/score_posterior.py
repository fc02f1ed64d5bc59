"""From a trace with frozen query points to a distribution of z, with a look at whether the model could have done it."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dpvi.declared import validation
from dpvi.declared.plan import Plan
from dpvi.declared.validation import ConvergenceWarning
from dpvi.families.base import Family
from dpvi.population.covariate_law import CovariateLaw
from dpvi.population.covariates import Population
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.score.blocks import Blocks, blocks_of, simulation_seed
from dpvi.posterior.score.check import check_blocks
from dpvi.posterior.score.gauss_newton import GaussNewton, gauss_newton
from dpvi.posterior.score.model import ScoreModel
from dpvi.posterior.score.nuts import Drawn, sample_nuts
from dpvi.release.trace import Trace

ENGINES = ("gauss_newton", "nuts")
_CHAINS = 1  # keeps the chains' randomness apart from the simulation's
_NUM_DRAWS, _NUM_WARMUP = 4000, 500
_NUM_LAWS = 8  # of the covariates, where they come from noisy histograms


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
    covariate_law: CovariateLaw | None = None,
    num_simulated: int | None = None,
    seed: int | None = None,
    check: bool = True,
    engine: str = "gauss_newton",
    num_draws: int | None = None,
    num_warmup: int | None = None,
) -> Gaussian | Drawn:
    """The score posterior of a trace with frozen query points, as ``Result.posterior("score")`` computes it.

    Parameters
    ----------
    trace, family, plan, model
        From the result. The family is not used: no variational scale enters.
    scores
        The driver's :class:`~dpvi.posterior.score.model.ScoreModel`, whose programs are compiled already; its settings
        hold.
    num_records, covariate_law, num_simulated
        Settings of a new one, instead of ``scores``; ``covariate_law`` as for :func:`dpvi.fit`.
    seed
        Of the simulation; by default it follows from what was released, so that repeated studies do not share one
        simulation error.
    check
        Warn where the blocks are not compatible with the fitted model; see :func:`check_blocks`.
    engine
        ``"gauss_newton"``, a Gaussian around the answer; or ``"nuts"``, the check on it: draws without the Gaussian
        form, by a chain for every law that the covariates may have, which takes many times as long.
    num_draws, num_warmup
        Of ``"nuts"``: how many draws it keeps at least, 4000 by default (as many of every chain), and how many steps
        each chain drops first, 500.
    """
    _check_engine(engine, num_draws, num_warmup)
    blocks = blocks_of(trace)
    settings = {"num_records": num_records, "covariate_law": covariate_law, "num_simulated": num_simulated}
    given = {name: value for name, value in settings.items() if value is not None}
    if scores is None or given:
        if model is None:
            raise ValueError("The score posterior simulates records; load the result with its model.")
        scores = ScoreModel(model, plan, **given)
    elif scores.plan != plan:
        raise ValueError("scores must be a ScoreModel of the plan of this result, got one of another plan.")
    seed = simulation_seed(blocks.mean_noisy_sum[0]) if seed is None else seed
    populations = scores.populations(trace.histograms, _NUM_LAWS, seed)
    answers = _answers(scores, blocks, populations, seed)
    mean, covariance = _mixture([answer for _, answer in answers])
    if check:
        # a law drawn at random fits badly by itself: the model is in doubt only where no law fits
        laws = [scores.population(trace.histograms), *populations] if len(populations) > 1 else populations
        found = (check_blocks(scores, blocks, mean, seed=seed, population=law).message for law in laws)
        messages = [message for message in itertools.takewhile(bool, found) if message]
        if len(messages) == len(laws):
            warnings.warn(messages[0], stacklevel=4)
    if engine == "nuts":
        draws = _chains(scores, blocks, answers, seed, num_draws or _NUM_DRAWS, num_warmup or _NUM_WARMUP)
        return Drawn(draws.astype(trace.final.dtype))
    return Gaussian.from_covariance(mean.astype(trace.final.dtype), covariance)


def _check_engine(engine: Any, num_draws: Any, num_warmup: Any) -> None:
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(map(repr, ENGINES))}, got {engine!r}.")
    for name, value in (("num_draws", num_draws), ("num_warmup", num_warmup)):
        if value is None:
            continue
        validation.whole_number(name, value)
        if engine != "nuts":
            raise ValueError(f"{name} belongs to a chain; pass engine='nuts' too, or leave it out.")


def _chains(
    scores: ScoreModel,
    blocks: Blocks,
    answers: Sequence[tuple[Population, GaussNewton]],
    seed: int,
    num_draws: int,
    num_warmup: int,
) -> np.ndarray:
    """Draws of one chain for each law, one after the other; together those of the mixture."""
    if not answers[0][1].converged:
        raise NotConvergedError(
            "NUTS starts from the Gauss-Newton answer, which was not quite found; use engine='gauss_newton', which "
            "widens its intervals by what is left, or measure nearer to the answer."
        )
    found = [(law, answer) for law, answer in answers if answer.converged]
    keys = jax.random.split(jax.random.fold_in(scores.key(seed), _CHAINS), len(found))
    each = -(-num_draws // len(found))
    drawn = [
        sample_nuts(scores, blocks, key, each, num_warmup, seed, law, answer)
        for key, (law, answer) in zip(keys, found, strict=True)
    ]
    return np.concatenate(drawn)


def _answers(
    scores: ScoreModel, blocks: Blocks, populations: Sequence[Population], seed: int
) -> list[tuple[Population, GaussNewton]]:
    """One for each law that the covariates may have; those that are not found are left out, but for the first."""
    first = gauss_newton(scores, blocks, blocks.query[-1], seed, populations[0])
    distance = f"the last step would still move by {np.sqrt(first.decrement):.2g} standard deviations"
    if not first.usable:
        raise NotConvergedError(
            f"Gauss-Newton did not converge on these releases: {distance}. Measure nearer to the answer, with "
            "schedule=dpvi.Schedule(move_share=0.2) or another prior."
        )
    if not first.converged:
        warnings.warn(
            f"Gauss-Newton came near but did not converge: {distance}, by which the intervals were widened.",
            ConvergenceWarning,
            stacklevel=5,
        )
    # the answers lie near each other, so each but the first has a short way
    others = [(law, gauss_newton(scores, blocks, first.mean, seed, law)) for law in populations[1:]]
    return [(populations[0], first), *(other for other in others if other[1].usable)]


def _mixture(answers: Sequence[GaussNewton]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a law drawn at random from ``answers``."""
    means = np.stack([answer.mean for answer in answers])
    centred = means - means.mean(axis=0)
    within = np.mean([answer.covariance for answer in answers], axis=0)
    return means.mean(axis=0), within + centred.T @ centred / max(len(answers) - 1, 1)
