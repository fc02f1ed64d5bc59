"""Our Poisson sampler alone, as a fit draws: ChaCha words of a whole chunk in one call, then exact positions."""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness.problem import Problem

from dpvi.data.sampling import poisson_sampler, positions
from dpvi.mechanism.rng import root_key, step_words, streams

CHUNK = 1000  # about the chunk of a fit


@functools.cache
def compiled(problem: Problem) -> Any:
    """``draws(steps)``: the positions of the first pass of each step, shape (physical size, len(steps))."""
    sampler = poisson_sampler(problem.num_records, problem.sampling_rate)
    sampling = streams(root_key(0)).sampling

    def draws(steps: jax.Array) -> jax.Array:
        def words(refining: bool) -> jax.Array:
            return step_words(sampling, steps, sampler.words_per_pass, part=int(refining))

        return positions(sampler, words, jnp.zeros((), jnp.int32))

    return jax.jit(draws)


def first_result(problem: Problem, num_steps: int) -> None:
    draws = compiled(problem)
    with jax.enable_x64(True):  # as in a fit, whose noise needs it
        for start in range(0, num_steps, CHUNK):
            draws(np.arange(start, start + CHUNK, dtype=np.uint32)).block_until_ready()


def run(problem: Problem, num_steps: int) -> float:
    """Seconds per draw; ``num_steps`` has to be a multiple of the chunk."""
    start = time.perf_counter()
    first_result(problem, num_steps)
    return (time.perf_counter() - start) / num_steps
