"""Our step over records on disk: a file of zeros that takes no space, read at the sampled rows.

``seconds`` are per step of a whole run, reading included; the operating system has the pages it read before in memory.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from harness.problem import Problem

import dpvi
from contestants.dpvi_step import make_plan, seconds_per_step
from dpvi.mechanism.rng import root_key, streams
from dpvi.models.functions import from_functions
from dpvi.records.arrays import structure_of
from dpvi.records.sampling import poisson_sampler
from dpvi.records.sources.mapped import as_source
from dpvi.run.placement.placement import bring_in, place
from dpvi.run.program.loop import Run
from dpvi.run.program.step import Algorithm

_FOLDER = tempfile.TemporaryDirectory(prefix="dpvi-scaling-")  # removed when the process ends


@functools.cache
def mapped(problem: Problem) -> np.memmap:
    path = Path(_FOLDER.name) / f"{problem.num_records}-{problem.dimension}.bin"
    path.touch()
    os.truncate(path, 4 * problem.dimension * problem.num_records)
    return np.memmap(path, np.float32, "r", shape=(problem.num_records, problem.dimension))


@functools.cache
def compiled(problem: Problem, num_steps: int) -> Callable[[], Any]:
    model = from_functions(
        log_prior=lambda z: -0.5 * jnp.sum(z**2),
        log_likelihood=lambda z, x: -jnp.logaddexp(0.0, -jnp.dot(x, z)),
        parameters=problem.dimension,
    )
    rows = bring_in(as_source(mapped(problem)), None)
    algorithm = Algorithm(
        model=model,
        family=dpvi.MeanField(),
        estimator=dpvi.Aligned(),
        optimizer=optax.adam(problem.learning_rate),
        plan=make_plan(problem, num_steps),
        sampler=poisson_sampler(rows.num_records, problem.sampling_rate),
    )
    structure = structure_of(rows.held.shapes)
    algorithm, placed = place(rows, algorithm, structure)
    state = algorithm.initial(jnp.zeros(problem.dimension))
    fit = functools.partial(Run(algorithm), placed.records, streams(root_key(0)), state)
    fit()
    return fit


def run(problem: Problem, num_steps: int) -> float:
    """Seconds per step of one whole run; compiled by the first call."""
    return seconds_per_step(compiled(problem, num_steps), num_steps)
