"""Faults to plant, and audits that must find them: ``make audit`` runs all, the tests those that take a second.

A fault is another mechanism run in the place of the shipped one, and judged by the plan as it was stated. It is made of
the shipped one with other numbers, or of the shipped one's noise on nothing plus a sum that is formed wrongly here. So
faults stay what they are whatever the mechanism is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri

import dpvi
from dpvi.auditing.bounds import HELD_OUT
from dpvi.auditing.fits import run_fits
from dpvi.auditing.mechanism import noisy_counts, noisy_sums
from dpvi.auditing.modes import report_trials
from dpvi.auditing.step import run_steps
from dpvi.declared.columns import Numeric
from dpvi.declared.plan import Plan
from dpvi.privacy.gaussian import gaussian_signal

_AT_MEDIAN = math.sqrt(math.pi / 2)  # standard error of a normal quantile times √n, where it is smallest


@dataclass(frozen=True)
class Fault:
    """One fault: how to run it, on which plan, and with which background."""

    name: str
    mode: str = "step"
    epsilon: float = 1.0
    sampling_rate: float = 1.0
    num_trials: int = 20_000
    background: str = "orthogonal"
    planted: dict[str, Any] | None = None  # what takes the place of the shipped functions
    covariates: tuple[Any, ...] | None = None

    def audit(self, seed: int | None, confidence: float = 0.99) -> dpvi.Audit:
        plan = plan_of(self.epsilon, self.sampling_rate, self.covariates)
        run = run_steps if self.mode == "step" else run_fits
        trials = run(plan, self.num_trials, seed, self.background, **(self.planted or {}))
        return report_trials(plan, trials, self.mode, confidence, self.background, seed)


def plan_of(epsilon: float, sampling_rate: float, covariates: Any = None) -> Plan:
    """Ten steps at δ = 1e-5."""
    return dpvi.plan(epsilon, 1e-5, sampling_rate, num_steps=10, clip_norm=2.0, covariates=covariates)


def trials_needed(epsilon: float, noise_share: float, confidence: float = 0.99, power: float = 0.99) -> int:
    """Trials a side to tell ``noise_share`` times the noise of a Gaussian mechanism from all of it.

    Both error rates are bounded at confidence 1 − (1 − c)/2 and the measured signal has standard error √2 times that of
    a median: what is to be seen has to exceed both.

    Examples
    --------
    >>> trials_needed(1.0, 0.9), trials_needed(4.0, 0.9)
    (168252, 14132)
    """
    more_signal = gaussian_signal(epsilon, 1e-5) * (1 / noise_share - 1)
    bounds, chance = 2 * ndtri(1 - (1 - confidence) / 2), math.sqrt(2) * ndtri(power)
    return math.ceil(((bounds + chance) * _AT_MEDIAN / more_signal) ** 2 / (1 - HELD_OUT))


def with_numbers(plan: Plan, noise: float = 1.0, clip: float = 1.0, sampling_rate: float | None = None) -> Plan:
    """The plan with other numbers for its steps and its old promise."""
    gradients = plan.gradients
    changed = replace(
        gradients,
        noise_multiplier=noise * gradients.noise_multiplier,
        clip_norm=clip * gradients.clip_norm,
        sampling_rate=gradients.sampling_rate if sampling_rate is None else sampling_rate,
    )
    return replace(plan, releases=(changed, *plan.releases[1:]))


def numbers(**changes: float) -> dict[str, Any]:
    """Plant other numbers in the mechanism of a step."""
    return {"mechanism": lambda plan, *arguments: noisy_sums(with_numbers(plan, **changes), *arguments)}


def fitted_numbers(**changes: float) -> dict[str, Any]:
    """Plant other numbers in whole fits. The plan that runs claims what it spends, or it would be refused."""

    def honest(plan: Plan) -> Plan:
        other = with_numbers(plan, **changes).gradients
        return dpvi.plan(
            delta=plan.delta,
            sampling_rate=other.sampling_rate,
            num_steps=other.count,
            clip_norm=other.clip_norm,
            noise_multiplier=other.noise_multiplier,
        )

    def fits(model: Any, records: Any, plan: Any, **options: Any) -> list[Any]:
        other = honest(plan) if isinstance(plan, Plan) else [honest(plan[0])] * len(plan)
        return dpvi.fit_many(model, records, other, **options)

    return {"fits": fits}


def wrong_sum(
    sums: Callable[[Plan, np.ndarray, Any, tuple[int, int]], np.ndarray], noise_steps: int | None = None
) -> Any:
    """Plant a sum that is formed wrongly under the shipped noise, of which there may be fewer draws than steps."""

    def mechanism(plan: Plan, releases: np.ndarray, seed: Any, num_trials: int, num_steps: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        norms = np.linalg.norm(releases, axis=1, keepdims=True)
        clipped = releases * np.minimum(1.0, plan.clip_norm / norms)
        noise = noisy_sums(plan, np.zeros((1, releases.shape[1])), seed, num_trials, noise_steps or num_steps)
        return sums(plan, clipped, rng, (num_trials, num_steps)) + noise

    return {"mechanism": mechanism}


def fixed_batches(plan: Plan, clipped: np.ndarray, rng: Any, shape: tuple[int, int]) -> np.ndarray:
    """Half of eight records, or of nine: always four of them."""
    ranks = np.argsort(rng.random((*shape, len(clipped))), axis=-1)
    return (ranks < 4).astype(float) @ clipped


def mean_for_sum(plan: Plan, clipped: np.ndarray, rng: Any, shape: tuple[int, int]) -> np.ndarray:
    """The mean over the batch times the number of records that is thought to be public: a normaliser from the data."""
    batch = rng.random((*shape, len(clipped))) < plan.sampling_rate
    sizes = np.maximum(batch.sum(axis=-1, keepdims=True), 1)
    return 8 * plan.sampling_rate * (batch.astype(float) @ clipped) / sizes


def poisson_sums(plan: Plan, clipped: np.ndarray, rng: Any, shape: tuple[int, int]) -> np.ndarray:
    """As it should be; the fault is in the noise."""
    return (rng.random((*shape, len(clipped))) < plan.sampling_rate).astype(float) @ clipped


def one_key(plan: Plan, releases: np.ndarray, seed: Any, num_trials: int, num_steps: int) -> np.ndarray:
    """Every run has the key of every other, as with ``key(0)`` as a default."""
    return np.repeat(noisy_sums(plan, releases, 0, 1, num_steps), num_trials, axis=0)


def bare_counts(plan: Plan, covariates: np.ndarray, seed: int | None) -> np.ndarray:
    """Histograms without noise; as they are always the same, they are counted once."""
    return _counted_once(plan, covariates.shape, covariates.tobytes())


@lru_cache
def _counted_once(plan: Plan, shape: tuple[int, ...], content: bytes) -> np.ndarray:
    steps, histograms = plan.releases
    silent = replace(plan, releases=(steps, replace(histograms, noise_multiplier=1e-6)))
    return np.round(noisy_counts(silent, np.frombuffer(content).reshape(shape), 0))


FAULTS = (
    Fault("half the noise", planted=numbers(noise=0.5)),
    Fault("half the noise", sampling_rate=0.5, planted=numbers(noise=0.5)),
    Fault("half the noise", mode="fits", planted=fitted_numbers(noise=0.5), num_trials=4_000),
    Fault("noise 10 % short", num_trials=trials_needed(1.0, 0.9), planted=numbers(noise=0.9)),
    Fault("noise 10 % short", sampling_rate=0.5, num_trials=trials_needed(1.0, 0.9), planted=numbers(noise=0.9)),
    Fault("noise 10 % short", epsilon=4.0, num_trials=trials_needed(4.0, 0.9), planted=numbers(noise=0.9)),
    Fault(
        "noise 10 % short",
        mode="fits",
        epsilon=4.0,
        num_trials=trials_needed(4.0, 0.9),
        planted=fitted_numbers(noise=0.9),
    ),
    Fault("everybody sampled", sampling_rate=0.5, planted=numbers(sampling_rate=1.0)),
    Fault("everybody sampled", epsilon=4.0, sampling_rate=0.5, planted=numbers(sampling_rate=1.0)),
    Fault(
        "everybody sampled",
        mode="fits",
        epsilon=4.0,
        sampling_rate=0.5,
        num_trials=4_000,
        planted=fitted_numbers(sampling_rate=1.0),
    ),
    Fault("clipped to twice the norm", planted=numbers(clip=2.0, noise=0.5)),
    Fault("batches of a fixed size", sampling_rate=0.5, background="opposed", planted=wrong_sum(fixed_batches)),
    Fault("mean in place of the sum", background="opposed", planted=wrong_sum(mean_for_sum)),
    Fault("one key for all runs", sampling_rate=0.5, num_trials=2_000, planted={"mechanism": one_key}),
    Fault("the same noise in every step", sampling_rate=0.5, planted=wrong_sum(poisson_sums, noise_steps=1)),
    Fault(
        "histograms without noise",
        sampling_rate=0.5,
        num_trials=1_000,
        covariates=(Numeric(0, 1, bins=4),),
        planted={"histograms": bare_counts},
    ),
)
