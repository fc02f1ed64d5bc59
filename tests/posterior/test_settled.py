"""Whether a run had settled: how often the warning comes where it must, and where it must not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from numpyro.distributions import constraints
from scipy.special import expit
from support.small_models import block_sums, private_plan, trace_of

import dpvi
from dpvi.declared.guarantee import Circumstances
from dpvi.declared.validation import ConvergenceWarning
from dpvi.families import FullRank, MeanField
from dpvi.models.sites import layout
from dpvi.posterior.result import Result
from dpvi.posterior.settled import Settling, settling, units
from dpvi.posterior.tail import converged_tail
from dpvi.release.trace import Trace

RATE, RUNS, DIMENSION, RECORDS = 0.05, 20, 2, 1000


class Runs(NamedTuple):
    """Private runs of mean-field variational inference with Adam, side by side."""

    iterates: np.ndarray  # (steps, runs, 4)
    gradients: np.ndarray

    def trace(self, run: int) -> Trace:
        rows = self.iterates[:, run].astype(np.float32)
        length = max(1, len(rows) // 128)
        every = np.ones(len(rows), bool)
        return trace_of(rows, length)._replace(blocks=block_sums(rows, self.gradients[:, run], length, every))


def logistic(truth: tuple[float, float]) -> Callable:
    random = np.random.default_rng(5)
    x = np.c_[np.ones(RECORDS), random.normal(size=RECORDS)]
    y = (random.uniform(size=RECORDS) < expit(x @ np.array(truth))).astype(float)
    return lambda z, rows: (y[rows] - expit(z @ x[rows].T))[..., None] * x[rows]


def location(mean: float, scale: float = 1.0) -> Callable:
    y = mean + scale * np.random.default_rng(5).normal(size=(RECORDS, DIMENSION))
    return lambda z, rows: (y[rows] - z[:, None]) / scale**2


def softplus(s: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(s))


def simulate(score: Callable, num_steps: int, noise_multiplier: float, seed: int = 0, num_runs: int = RUNS) -> Runs:
    """What ``fit`` does by default, clip norm 1 and a wide prior, in NumPy: 20 runs take as long as one."""
    random, d = np.random.default_rng(seed), DIMENSION
    xi = np.concatenate([np.full((num_runs, d), 0.1), np.full((num_runs, d), np.log(np.expm1(0.1)))], axis=1)
    first, second = np.zeros_like(xi), np.zeros_like(xi)
    iterates, gradients = np.empty((2, num_steps, num_runs, 2 * d))
    for step in range(num_steps):
        eta = random.normal(size=(num_runs, d))
        scale = softplus(xi[:, d:])
        z = xi[:, :d] + scale * eta
        scores = score(z, np.flatnonzero(random.uniform(size=RECORDS) < RATE))
        scores /= np.maximum(1, np.linalg.norm(scores, axis=-1, keepdims=True))
        noisy = scores.sum(axis=1) + noise_multiplier * random.normal(size=(num_runs, d))
        slope = noisy / RATE - z / 100
        gradient = np.concatenate([slope, expit(xi[:, d:]) * (slope * eta + 1 / scale)], axis=1)
        iterates[step], gradients[step] = xi, -RATE * gradient
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        rate = 0.003 + 0.027 * (1 + np.cos(np.pi * step / num_steps)) / 2
        change = (first / (1 - 0.9 ** (step + 1))) / (np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8)
        xi = xi + rate * change
    return Runs(iterates, gradients)


def found(trace: Trace) -> Settling:
    return settling(trace, *units(trace, MeanField()), RATE)


def power(runs: Runs) -> float:
    """Share of the runs that are warned of."""
    return float(np.mean([found(runs.trace(run)).sentence != "" for run in range(runs.iterates.shape[1])]))


@cache
def end_of(score: Callable) -> np.ndarray:
    """Where long and quiet runs end."""
    return simulate(score, 3000, 0.1, seed=9, num_runs=5).iterates[2000:].mean(axis=(0, 1))


def off_by(runs: Runs, score: Callable) -> tuple[float, float]:
    """How far the runs end from where long and quiet ones do: means in reported sds, widths as logs of ratios."""
    d, quiet = DIMENSION, end_of(score)
    tails = [converged_tail(runs.trace(run)) for run in range(runs.iterates.shape[1])]
    mean = np.array([tail.mean for tail in tails])
    sd = np.array([np.sqrt(softplus(tail.mean[d:]) ** 2 + tail.variance[:d]) for tail in tails])
    far = np.abs(mean[:, :d].mean(axis=0) - quiet[:d]) / np.median(sd, axis=0)
    wide = np.abs(np.log(np.median(softplus(mean[:, d:]), axis=0) / softplus(quiet[d:])))
    return float(far.max()), float(wide.max())


FAR = logistic((-4.0, 3.0))
UNSETTLED = {
    "the run of the report, 200 steps": (FAR, 200, 1.0),
    "in more noise": (FAR, 200, 8.0),
    "half way": (FAR, 500, 1.0),
    "a far location": (location(6.0), 200, 8.0),
    "data that are not standardised": (location(20.0, 5.0), 500, 1.0),
    "widths, five times too large": (location(0.2, 0.1), 100, 1.0),
}
SETTLED = {
    "near the start": (logistic((0.5, -0.3)), 500, 1.0),
    "a unit away": (logistic((-1.0, 1.0)), 1000, 1.0),
    "in more noise": (location(0.3), 1000, 8.0),
    "the run of the report, 3,000 steps": (FAR, 3000, 1.0),
}


@pytest.mark.parametrize("case", UNSETTLED)
def test_at_least_nine_of_ten_runs_that_had_not_settled_are_found(case):
    score, num_steps, noise_multiplier = UNSETTLED[case]
    runs = simulate(score, num_steps, noise_multiplier)
    far, wide = off_by(runs, score)
    assert far > 1 or wide > np.log(2)
    assert power(runs) >= 0.9


@pytest.mark.parametrize("case", SETTLED)
def test_at_most_one_of_twenty_runs_that_had_settled_is_warned_of(case):
    score, num_steps, noise_multiplier = SETTLED[case]
    runs = simulate(score, num_steps, noise_multiplier)
    far, wide = off_by(runs, score)
    assert far < 0.5
    assert wide < 0.25
    assert power(runs) <= 0.05


def test_the_drift_of_iterates_finds_none_of_these():
    """The named wrong answer: under a falling learning rate the last tail stands still wherever it is."""
    score, num_steps, noise_multiplier = UNSETTLED["the run of the report, 200 steps"]
    runs = simulate(score, num_steps, noise_multiplier)
    assert all(converged_tail(runs.trace(run)).converged.all() for run in range(RUNS))


def test_natural_gradients_say_the_same():
    runs = simulate(FAR, 200, 1.0, num_runs=1)
    trace = runs.trace(0)
    inverse, widths = units(trace, MeanField())
    blocks = trace.blocks
    scaled = blocks._replace(gradient=inverse * blocks.gradient, gradient_squared=inverse**2 * blocks.gradient_squared)
    natural = settling(trace._replace(blocks=scaled), inverse, widths, RATE, natural=True)
    for one, other in zip(natural, settling(trace, inverse, widths, RATE), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_without_a_unit_the_iterates_decide():
    runs = simulate(location(20.0, 5.0), 200, 1.0, num_runs=1)
    trace, unknown = runs.trace(0), np.full(4, np.nan)
    drifting = settling(trace, unknown, unknown, RATE).drifting
    np.testing.assert_array_equal(drifting[:2], [True, True])
    still = trace._replace(blocks=trace.blocks._replace(gradient=0 * trace.blocks.gradient))
    assert not settling(still, unknown, unknown, RATE).drifting.any()


def result(trace: Trace, family=MeanField()) -> Result:
    sites = layout([("w", (2,), (2,), constraints.real_vector)])
    plan = private_plan(len(trace.steps), sampling_rate=RATE)
    return Result(plan, Circumstances("none"), trace, family, {"name": "Aligned"}, sites, None)


@pytest.mark.parametrize("method", ["stationary", "average", "last"])
def test_a_posterior_warns_and_its_summary_remembers(method):
    trace = simulate(FAR, 200, 1.0, num_runs=1).trace(0)
    with pytest.warns(ConvergenceWarning, match="still drifting when the run ended, the furthest by about"):
        posterior = result(trace).posterior(method)
    assert "still drifting" in str(posterior.summary())
    assert "Take more steps" in repr(posterior)


def test_noise_that_hides_the_answer_is_named():
    trace = simulate(logistic((-1.0, 1.0)), 200, 30.0, seed=4, num_runs=1).trace(0)
    with pytest.warns(dpvi.ConvergenceWarning, match="too large to tell whether they"):
        result(trace).posterior()


def test_a_dense_family_has_units_for_its_locations():
    trace = simulate(FAR, 200, 1.0, num_runs=1).trace(0)
    padded = trace._replace(
        final=np.array([*trace.final, 0.0], np.float32),
        blocks=trace.blocks._replace(**{
            name: np.pad(part, ((0, 0), (0, 1))) for name, part in trace.blocks._asdict().items() if part.ndim == 2
        }),
    )  # fmt: skip
    inverse, _ = units(padded, FullRank())
    assert np.isfinite(inverse[:2]).all()
    assert np.isnan(inverse[2:]).all()
