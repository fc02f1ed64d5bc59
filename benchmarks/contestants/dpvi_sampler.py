"""Our Poisson sampler alone, as a fit draws: ChaCha words of a whole chunk in one call, then exact positions."""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness.problem import Problem

from dpvi.backend.compiling import plain_fusions
from dpvi.mechanism.rng import root_key, step_words, streams
from dpvi.records.sampling import poisson_sampler, positions
from dpvi.run.program.chunk import longest_chunk


@functools.cache
def compiled(problem: Problem) -> Any:
    """``draws(steps)``: the positions of the first pass of each step, shape (slots, len(steps))."""
    sampler = poisson_sampler(problem.num_records, problem.sampling_rate)
    sampling = streams(root_key(0)).sampling

    def draws(steps: jax.Array) -> jax.Array:
        def words(refining: bool) -> jax.Array:
            return step_words(sampling, steps, sampler.words_per_pass, part=int(refining))

        return positions(sampler, words, jnp.zeros((), jnp.int32))

    return jax.jit(draws, compiler_options=plain_fusions())  # as in a fit


def first_result(problem: Problem, num_steps: int) -> int:
    """Draw for at least ``num_steps`` steps, and say for how many."""
    draws, sampler = compiled(problem), poisson_sampler(problem.num_records, problem.sampling_rate)
    drawn_bytes = 4 * (sampler.words_per_pass + sampler.slots)  # words and positions
    chunk = longest_chunk(drawn_bytes, drawn_bytes)
    with jax.enable_x64(True):  # as in a fit, whose noise needs it
        for start in range(0, num_steps, chunk):
            draws(np.arange(start, start + chunk, dtype=np.uint32)).block_until_ready()
    return -(-num_steps // chunk) * chunk


def run(problem: Problem, num_steps: int) -> float:
    """Seconds per draw."""
    start = time.perf_counter()
    drawn = first_result(problem, num_steps)
    return (time.perf_counter() - start) / drawn
