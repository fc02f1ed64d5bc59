"""Our step as a user runs it: ``dpvi.fit`` with the defaults (aligned, mean field, ChaCha, exact Poisson) and Adam.

A fit has a fixed part (model check, tracing, compilation) and a part per step. The time per step is the difference
between a long and a short fit, divided by the difference in steps; a compilation cache on disk makes the fixed part
small and equal. Both lengths have to be whole numbers of chunks, or a last shorter chunk is compiled as well.
"""

from __future__ import annotations

import functools
import tempfile
import time
from typing import Any

import jax
import numpyro
import numpyro.distributions as dist
import optax
from harness.problem import Problem, records

import dpvi

LONG = 5  # the long fit has this many times the steps of the short one


def model(x: Any, y: Any = None) -> None:
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


@functools.cache
def make_plan(problem: Problem, num_steps: int) -> Any:
    """Cached: the accountant is no part of a step."""
    return dpvi.plan(
        noise_multiplier=problem.noise_multiplier,
        delta=problem.delta,
        sampling_rate=problem.sampling_rate,
        num_steps=num_steps,
        clip_norm=problem.clip_norm,
    )


def first_result(problem: Problem, num_steps: int) -> Any:
    """Plan and fit: the whole of a user's wait."""
    plan = make_plan(problem, num_steps)
    return dpvi.fit(model, records(problem), plan, optimizer=optax.adam(problem.learning_rate), seed=0, progress=False)


@functools.cache
def cache_compilations() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    jax.config.update("jax_compilation_cache_dir", folder.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    return folder


def run(problem: Problem, num_steps: int) -> float:
    """Seconds per step, by the difference of two fits."""
    cache_compilations()
    seconds = []
    for steps in (num_steps, LONG * num_steps):
        make_plan(problem, steps)
        start = time.perf_counter()
        first_result(problem, steps)
        seconds.append(time.perf_counter() - start)
    return (seconds[1] - seconds[0]) / ((LONG - 1) * num_steps)
