"""The methods of the study: each fits problems at an ε and says what it believes about z.

A further method is one more entry of :data:`METHODS`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from typing import Any, NamedTuple

import jax
import numpy as np

import dpvi
from dpvi.declared.plan import Plan
from dpvi.run.optimizers import na_dpvi_sgd
from experiments.misfit.problems import Problem
from experiments.misfit.settings import Settings

_NUM_DRAWS = 4000


class Outcome(NamedTuple):
    """What one run of a method says about unconstrained z."""

    mean: np.ndarray  # (d,)
    sd_total: np.ndarray  # of the full interval, (d,)
    sd_privacy: np.ndarray | None  # of its privacy part; None where the method does not tell it apart
    message: str  # what the posterior warned of; empty where it did not
    seconds_fit: float
    seconds_posterior: float


# (settings, problems, ε, seeds): one outcome per seed, handed over as soon as there is one; the problems are data sets
# of one kind, one per seed, or the same table for all
Method = Callable[[Settings, Sequence[Problem], float, Sequence[int]], Iterator[Outcome]]
OneFit = Callable[[Settings, Problem, float, int], Outcome]


def default(settings: Settings, problems: Sequence[Problem], epsilon: float, seeds: Sequence[int]) -> Iterator[Outcome]:
    """The library's default: ε, δ and declared columns, nothing else; programs are compiled once for all seeds."""
    first = problems[0]
    plan = _default_plan(epsilon, first.delta, first.columns)
    same = all(problem is first for problem in problems)
    data = first.data if same else jax.tree.map(lambda *parts: np.stack(parts), *(each.data for each in problems))
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = dpvi.fit_many(first.model, data, plan, seeds=list(seeds), same_data=same, progress=False)
    share = (time.perf_counter() - started) / len(results)
    for result in results:
        yield _read(result, share)


def _one_at_a_time(one: OneFit) -> Method:
    """A method that fits seed after seed."""

    @wraps(one)
    def method(
        settings: Settings, problems: Sequence[Problem], epsilon: float, seeds: Sequence[int]
    ) -> Iterator[Outcome]:
        for problem, seed in zip(problems, seeds, strict=True):
            yield one(settings, problem, epsilon, seed)

    return method


@_one_at_a_time
def before(settings: Settings, problem: Problem, epsilon: float, seed: int) -> Outcome:
    """The default before plans without steps: the score posterior with paid histograms, at chosen settings."""
    return _outcome(problem, _plan(settings, epsilon, problem.delta, problem.columns), seed)


@_one_at_a_time
def before_stationary(settings: Settings, problem: Problem, epsilon: float, seed: int) -> Outcome:
    """The same plan without declared columns: averaged iterates, widened by the noise that they show."""
    return _outcome(problem, _plan(settings, epsilon, problem.delta, None), seed, "stationary")


@_one_at_a_time
def na_dpvi(settings: Settings, problem: Problem, epsilon: float, seed: int) -> Outcome:
    """Noise-aware DPVI by its Laplace engine: plain descent from 0 with a narrow q, β of scales 550 as on Adult."""
    plan, d = _plan(settings, epsilon, problem.delta, None), problem.dimension
    beta, family = (1.0,) * d + (550.0,) * d, dpvi.MeanField(initial_scale=0.0025)
    options = {
        "family": family,
        "estimator": dpvi.Preconditioned(beta=beta),
        "optimizer": na_dpvi_sgd(plan, family, d, beta=beta, lambda_c=d**0.5),
        "initial_location": np.zeros(d, np.float32),
    }
    return _outcome(problem, plan, seed, "na_dpvi", {"engine": "laplace"}, **options)


METHODS: dict[str, Method] = {
    "default": default,
    "before": before,
    "before_stationary": before_stationary,
    "na_dpvi": na_dpvi,
}


@cache
def _default_plan(epsilon: float, delta: float, columns: Any) -> Plan:
    return dpvi.plan(epsilon=epsilon, delta=delta, covariates=columns)


@cache
def _plan(settings: Settings, epsilon: float, delta: float, columns: Any) -> Plan:
    return dpvi.plan(
        epsilon=epsilon,
        delta=delta,
        sampling_rate=settings.sampling_rate,
        num_steps=settings.num_steps,
        clip_norm=settings.clip_norm,
        covariates=columns,
    )


def _outcome(
    problem: Problem,
    plan: Plan,
    seed: int,
    method: str | None = None,
    posterior_options: dict[str, Any] | None = None,
    **options: Any,
) -> Outcome:
    """Fit and read the posterior; warnings of the fit are not about intervals."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = dpvi.fit(problem.model, problem.data, plan, seed=seed, progress=False, **options)
    return _read(result, time.perf_counter() - started, method, posterior_options)


def _read(
    result: dpvi.Result, seconds_fit: float, method: str | None = None, options: dict[str, Any] | None = None
) -> Outcome:
    """The posterior of one fit, and every ``UserWarning`` that it raises, whether it was raised before or not."""
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = result.posterior(method, **(options or {}))
    seconds = time.perf_counter() - started
    said = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    return Outcome(*_moments(posterior), " ".join(said), seconds_fit, seconds)


def _moments(posterior: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Mean and standard deviations of z, and those of the privacy part where the posterior tells it apart."""
    law = posterior.distribution
    if not hasattr(law, "mean"):
        draws = np.asarray(posterior.sample_unconstrained(_NUM_DRAWS, jax.random.key(0)), np.float64)
        return draws.mean(axis=0), draws.std(axis=0), None
    covariance = getattr(law, "covariance", None)
    total = law.standard_deviations if covariance is None else np.sqrt(np.diag(covariance))
    privacy = getattr(law, "privacy_covariance", None)
    part = None if privacy is None else np.sqrt(np.diag(np.asarray(privacy, np.float64)))
    return np.asarray(law.mean, np.float64), np.asarray(total, np.float64), part
