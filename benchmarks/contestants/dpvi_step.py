"""Our step as a user runs it: aligned gradients, mean field, ChaCha noise, exact Poisson sampling, Adam.

``first_result`` is the whole of a user's wait, plan and model check included. ``run`` times the compiled run that
``dpvi.fit`` makes, called again: every step of the plan with its randomness, its trace and its block sums.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from harness.problem import Problem, records

import dpvi
from dpvi.mechanism.rng import root_key, streams
from dpvi.models.numpyro import NumPyroModel
from dpvi.records.arrays import structure_of
from dpvi.records.sampling import poisson_sampler
from dpvi.run.placement.placement import bring_in, place
from dpvi.run.program.loop import Run
from dpvi.run.program.step import Algorithm


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
def compiled(problem: Problem, num_steps: int) -> Callable[[], Any]:
    """``fit`` without its fixed part: check, tracing and compilation happen here, once."""
    rows = bring_in(records(problem), None)
    structure = structure_of(rows.held)
    algorithm = Algorithm(
        model=NumPyroModel(model, structure),
        family=dpvi.MeanField(),
        estimator=dpvi.Aligned(),
        optimizer=optax.adam(problem.learning_rate),
        plan=make_plan(problem, num_steps),
        sampler=poisson_sampler(rows.num_records, problem.sampling_rate),
    )
    algorithm, placed = place(rows, algorithm, structure)
    state = algorithm.initial(jnp.zeros(problem.dimension))
    fit = functools.partial(Run(algorithm), placed.records, streams(root_key(0)), state)
    fit()
    return fit


def run(problem: Problem, num_steps: int) -> float:
    """Seconds per step of one whole run; compiled by the first call."""
    return seconds_per_step(compiled(problem, num_steps), num_steps)


def seconds_per_step(fit: Callable[[], Any], num_steps: int) -> float:
    """Of one call of a compiled run."""
    start = time.perf_counter()
    fit()
    return (time.perf_counter() - start) / num_steps
