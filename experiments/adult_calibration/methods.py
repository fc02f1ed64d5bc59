"""The methods of the study: each names the run whose trace it reads and how it makes a posterior of it.

A further method is one more entry in :data:`METHODS` and, where it needs a run of its own, one in :data:`RUNS`: a run
is given the problem and may fit with any driver, estimator or plan; methods with the same run share its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import dpvi
from dpvi.declared.plan import Plan
from dpvi.posterior import Gaussian
from dpvi.posterior.score import measured
from dpvi.run.optimizers import na_dpvi_sgd
from experiments.adult_calibration.problem import Problem, logistic_regression
from experiments.adult_calibration.score_posterior import fit_score, score_plan
from experiments.adult_calibration.settings import PUBLISHED_NOISE_MULTIPLIERS, Settings


class Answer(NamedTuple):
    """What one run of a method says about the weights."""

    draws: np.ndarray  # (S, d) from the posterior
    plug_in: np.ndarray | None = None  # weights to predict with in place of the draws, (d,)


@dataclass(frozen=True)
class Run:
    """A private run that one or more methods read.

    Parameters
    ----------
    plan
        (settings, ε) to the plan; ``None`` for a run without privacy, which is the same for every ε and repeat.
    fit
        (settings, problem, plan, seeds) to one result per seed.
    """

    plan: Callable[[Settings, float], Plan] | None
    fit: Callable[[Settings, Problem, Any, Sequence[int]], list[Any]]


@dataclass(frozen=True)
class Method:
    """One row of the table."""

    label: str
    run: str
    answer: Callable[[Settings, Any, jax.Array], Answer]  # (settings, result of the run, key)


def private_plan(settings: Settings, epsilon: float, clip_norm: float) -> Plan:
    """The paper's noise, or what ``epsilon`` needs."""
    common = {"delta": settings.delta, "sampling_rate": settings.sampling_rate, "num_steps": settings.num_steps}
    if settings.noise == "calibrated":
        return dpvi.plan(epsilon=epsilon, clip_norm=clip_norm, **common)
    if epsilon not in PUBLISHED_NOISE_MULTIPLIERS:
        raise ValueError(f"The paper has no noise for epsilon = {epsilon:g}; use --noise calibrated.")
    plan = dpvi.plan(noise_multiplier=PUBLISHED_NOISE_MULTIPLIERS[epsilon], clip_norm=clip_norm, **common)
    if plan.epsilon > epsilon:
        raise ValueError(f"The paper's noise spends epsilon = {plan.epsilon:g} here, above {epsilon:g}.")
    return plan


def fit_preconditioned(settings: Settings, problem: Problem, plan: Plan, seeds: Sequence[int]) -> list[Any]:
    """Noise-aware DPVI's run: plain descent with a fixed β, from 0 and a narrow q."""
    dimension = problem.dimension
    beta = (1.0,) * dimension + (settings.scale_factor,) * dimension
    family = dpvi.MeanField(initial_scale=settings.initial_scale)
    return fit_seeds(
        problem,
        plan,
        seeds,
        family=family,
        estimator=dpvi.Preconditioned(beta=beta, num_draws=settings.num_draws),
        optimizer=na_dpvi_sgd(plan, family, dimension, beta=beta, lambda_c=dimension**0.5),
        initial_location=np.zeros(dimension, np.float32),
    )


def fit_aligned(settings: Settings, problem: Problem, plan: Plan, seeds: Sequence[int]) -> list[Any]:
    """DPVIm's run: aligned gradients from one draw, Adam, from N(0, 0.1²) and a wide q."""
    family = dpvi.MeanField(initial_scale=settings.aligned_initial_scale)
    optimizer = optax.adam(settings.aligned_learning_rate)
    return fit_seeds(problem, plan, seeds, family=family, estimator=dpvi.Aligned(), optimizer=optimizer)


def fit_seeds(problem: Problem, plan: Plan, seeds: Sequence[int], **options: Any) -> list[Any]:
    """One result per seed on the same records, side by side where there are several."""
    data = (problem.features, problem.labels)
    if len(seeds) == 1:
        return [dpvi.fit(logistic_regression, data, plan, seed=seeds[0], progress=False, **options)]
    return dpvi.fit_many(logistic_regression, data, plan, seeds=list(seeds), same_data=True, progress=False, **options)


def _from_posterior(settings: Settings, posterior: Any, key: jax.Array) -> Answer:
    return Answer(np.asarray(posterior.sample_unconstrained(settings.num_predictive_draws, key)))


def naive(settings: Settings, result: Any, key: jax.Array) -> Answer:
    """q at the last iterate; predictions plug in its mean, as published."""
    posterior = result.posterior("last")
    return _from_posterior(settings, posterior, key)._replace(plug_in=np.asarray(posterior.distribution.mean))


def averaged(settings: Settings, result: Any, key: jax.Array) -> Answer:
    """q at the averaged parameters."""
    return _from_posterior(settings, result.posterior("average"), key)


def stationary(settings: Settings, result: Any, key: jax.Array) -> Answer:
    """DPVIm: averaged, with the variance of the iterates on top."""
    return _from_posterior(settings, result.posterior("stationary"), key)


def noise_aware(engine: str) -> Callable[[Settings, Any, jax.Array], Answer]:
    """NA-DPVI by one of its engines."""

    def answer(settings: Settings, result: Any, key: jax.Array) -> Answer:
        # a few hundred unknowns: an accelerator would only add the time it takes to start its kernels
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            posterior = result.posterior(
                "na_dpvi",
                engine=engine,
                burn_in=settings.burn_in,
                num_draws=settings.num_components,
                num_warmup=settings.num_warmup,
            )
        return _from_posterior(settings, posterior, key)

    return answer


def default(settings: Settings, result: Any, key: jax.Array) -> Answer:
    """``result.posterior()``: the score posterior, where the run measured; its own check is not what is judged here."""
    options = {"check": False} if measured(result.trace) else {}
    return _from_posterior(settings, result.posterior(**options), key)


def nonprivate(settings: Settings, result: Gaussian, key: jax.Array) -> Answer:
    """The Laplace approximation without privacy: the ceiling."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    eta = rng.normal(size=(settings.num_predictive_draws, len(result.mean)))
    return Answer(result.mean + eta @ result.scale.T)


RUNS: dict[str, Run] = {
    "preconditioned": Run(lambda s, epsilon: private_plan(s, epsilon, s.clip_norm), fit_preconditioned),
    "aligned": Run(lambda s, epsilon: private_plan(s, epsilon, s.aligned_clip_norm), fit_aligned),
    "score": Run(score_plan, fit_score),
    "nonprivate": Run(None, lambda settings, problem, plan, seeds: [problem.nonprivate]),
}

METHODS: dict[str, Method] = {
    "naive": Method("naive (last iterate, plugged in)", "preconditioned", naive),
    "averaged": Method("averaged iterates", "preconditioned", averaged),
    "dpvim": Method("DPVIm (aligned, stationary)", "aligned", stationary),
    "na_dpvi_laplace": Method("NA-DPVI (Laplace)", "preconditioned", noise_aware("laplace")),
    "na_dpvi_nuts": Method("NA-DPVI (NUTS)", "preconditioned", noise_aware("nuts")),
    "na_dpvi_exact": Method("NA-DPVI (exact)", "preconditioned", noise_aware("exact")),
    "score": Method("score posterior", "score", default),
    "nonprivate": Method("without privacy (Laplace)", "nonprivate", nonprivate),
}
