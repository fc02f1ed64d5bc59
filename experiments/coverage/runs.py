"""The private runs that methods read: one fit of a group of data sets serves every method that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import dpvi
from dpvi.declared.plan import Plan
from dpvi.posterior import Result
from dpvi.run.optimizers import na_dpvi_sgd
from experiments.coverage.case import DELTA, NUM_GRADIENT_DRAWS, SAMPLING_RATE, Case, DataSet

_DPVIM_RATE = 1e-3


class Study(NamedTuple):
    """Sizes and seed of a study.

    The paper has 10,000 steps and 5,000 records. Slow methods see the first ``num_slow_data_sets`` data sets.
    ``num_draws`` are draws of each posterior, of which the paper takes 20,000: ranks move in steps of one over that
    number, so 4,000 do for levels of 0.001. ``group_size`` is how many data sets run side by side, the problem's own by
    default.
    """

    num_data_sets: int = 500
    num_slow_data_sets: int = 50
    num_records: int = 5000
    num_steps: int = 10_000
    num_draws: int = 4000
    num_repeats: int = 20
    seed: int = 1
    group_size: int | None = None


class Group(NamedTuple):
    """Some data sets of a study; everything a method may read.

    ``truths`` are for scores and never for posteriors.
    """

    case: Case
    study: Study
    indices: tuple[int, ...]
    truths: np.ndarray  # (k, d)
    records: Any  # stacked, (k, N, …)
    seeds: tuple[int, ...]  # of the mechanism, one for each data set

    def first(self, count: int) -> Group:
        """Only the first ``count`` data sets."""
        if count == len(self.indices):
            return self
        records = jax.tree.map(lambda leaf: leaf[:count], self.records)
        return self._replace(
            indices=self.indices[:count], truths=self.truths[:count], records=records, seeds=self.seeds[:count]
        )

    def generator(self, position: int) -> np.random.Generator:
        """Randomness for draws from the posterior of one data set; not that of its records."""
        return np.random.default_rng(_sequence(self.study.seed, self.indices[position], 2))


def simulate_group(case: Case, study: Study, indices: Sequence[int]) -> Group:
    """Data sets by number: each has random streams of its own, so groups of any size hold the same ones."""
    sets: list[DataSet] = [
        case.problem.simulate(np.random.default_rng(_sequence(study.seed, k, 0)), study.num_records) for k in indices
    ]
    records = jax.tree.map(lambda *leaves: np.stack(leaves), *[one.records for one in sets])
    seeds = tuple(int(_sequence(study.seed, k, 1).generate_state(1, np.uint64)[0]) for k in indices)
    return Group(case, study, tuple(indices), np.stack([one.truth for one in sets]), records, seeds)


def _sequence(seed: int, data_set: int, purpose: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy=seed, spawn_key=(data_set, purpose))


def na_dpvi_run(group: Group, *, tight: bool = False) -> list[Result]:
    """DPVI as the noise-aware paper ran it: fixed preconditioner, ten draws, plain gradient descent."""
    problem, plan = group.case.problem, group.case.plan(group.study.num_steps, tight=tight)
    return dpvi.fit_many(
        problem.model,
        group.records,
        plan,
        family=problem.family,
        estimator=dpvi.Preconditioned(beta=problem.beta, num_draws=NUM_GRADIENT_DRAWS),
        optimizer=na_dpvi_sgd(plan, problem.family, problem.dimension, beta=problem.beta, lambda_c=problem.lambda_c),
        initial_location=np.asarray(problem.initial_location),
        seeds=group.seeds,
        progress=False,
    )


def tight_na_dpvi_run(group: Group) -> list[Result]:
    """The same with no more noise than the stated ε needs."""
    return na_dpvi_run(group, tight=True)


def dpvim_run(group: Group) -> list[Result]:
    """DPVIm as its own paper ran it: aligned, one draw, Adam at 0.001. Clip norm, noise and start as above."""
    return _aligned(group, group.case.plan(group.study.num_steps), optax.adam(_DPVIM_RATE))


def dpvim_descent_run(group: Group) -> list[Result]:
    """Aligned gradients with the step sizes of the noise-aware paper, whose comparison is in no published program."""
    problem, plan = group.case.problem, group.case.plan(group.study.num_steps)
    descent = na_dpvi_sgd(plan, problem.family, problem.dimension, beta=problem.beta, lambda_c=problem.lambda_c)
    return _aligned(group, plan, descent)


def _aligned(group: Group, plan: Plan, optimizer: optax.GradientTransformation) -> list[Result]:
    problem = group.case.problem
    return dpvi.fit_many(
        problem.model,
        group.records,
        plan,
        family=problem.family,
        estimator=dpvi.Aligned(),
        optimizer=optimizer,
        initial_location=np.asarray(problem.initial_location),
        seeds=group.seeds,
        progress=False,
    )


def score_run(group: Group, *, histograms: bool = False) -> list[Result]:
    """The default of this library at the stated ε: measuring at frozen points, in blocks that double.

    It starts at the prior's centre; the paper's starts belong to the paper's step sizes. The number of
    records is public, as in the other runs. Covariates follow the law that the problem declares or, with
    ``histograms``, what a twentieth of the budget buys.
    """
    case, problem = group.case, group.case.problem
    plan = dpvi.plan(
        epsilon=case.epsilon,
        delta=DELTA,
        sampling_rate=SAMPLING_RATE,
        num_steps=group.study.num_steps,
        clip_norm=case.score_clip_norm,
        num_records=group.study.num_records,
        covariates=problem.columns if histograms else None,
    )
    return dpvi.fit_many(
        problem.model,
        group.records,
        plan,
        covariate_law=None if histograms else problem.covariate_law,
        seeds=group.seeds,
        progress=False,
    )


def score_histograms_run(group: Group) -> list[Result]:
    """The same with covariates from paid histograms."""
    return score_run(group, histograms=True)


RUNS: Mapping[str, Callable[[Group], list[Result]]] = {
    "na_dpvi": na_dpvi_run,
    "tight_na_dpvi": tight_na_dpvi_run,
    "dpvim": dpvim_run,
    "score": score_run,
    "score_histograms": score_histograms_run,
    "dpvim_descent": dpvim_descent_run,
}
