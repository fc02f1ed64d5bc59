"""The hand-written Poisson sampler alone; draws are independent of each other, so they are made in one ``vmap``."""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
from harness.problem import Problem

from contestants.hand_written import poisson_batch


@functools.cache
def compiled(problem: Problem, num_draws: int) -> Any:
    def draws(key: jax.Array) -> Any:
        return jax.vmap(lambda one: poisson_batch(one, problem))(jax.random.split(key, num_draws))

    return jax.jit(draws)


def first_result(problem: Problem, num_steps: int) -> Any:
    return jax.block_until_ready(compiled(problem, num_steps)(jax.random.key(0)))


def run(problem: Problem, num_steps: int) -> float:
    """Seconds per draw."""
    start = time.perf_counter()
    first_result(problem, num_steps)
    return (time.perf_counter() - start) / num_steps
