"""Time of a step by batch size (Figure 3) and memory of a step, private and not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.mechanism.rng import root_key, streams
from dpvi.run.fitting import start
from dpvi.run.program.chunk import make_chunk
from dpvi.run.program.draws import Draws, make_draws
from dpvi.run.program.loop import Run
from dpvi.run.program.step import State, noise_of, private_step, sizes_of
from experiments.vae.contestants import make_plan, not_private, prepared, svi
from experiments.vae.problem import Problem
from experiments.vae.settings import Settings
from experiments.vae.timing import seconds


def with_batch(settings: Settings, batch_size: int, num_steps: int) -> Settings:
    """The same study with other batches, ``num_steps`` of them."""
    return replace(settings, batch_size=batch_size, num_epochs=num_steps * batch_size / settings.num_records)


def step_seconds(problem: Problem, settings: Settings, batch_size: int) -> dict[str, Any]:
    """Seconds of a step by batch size; of the private one with its draws, but without what records the trace.

    Recording costs the same at every batch size; a few steps would show it larger than it is in a run.
    """
    changed = with_batch(settings, batch_size, settings.steps_per_batch_size)
    plain = not_private(problem, changed)
    plain(0)
    taken = {"not private": min(plain(seed).seconds for seed in (1, 2, 3)) / changed.num_steps}
    return {"batch_size": batch_size, "private": _private_step_seconds(problem, changed)} | taken


def _private_step_seconds(problem: Problem, settings: Settings) -> float:
    algorithm, records = prepared(problem, settings, make_plan(settings))
    layout, sizes, dtype = Run(algorithm).layout, sizes_of(algorithm), jnp.zeros(()).dtype
    draw = jax.jit(make_draws(algorithm.sampler, sizes.release, (1, sizes.base), dtype))
    chunk = jax.jit(make_chunk(algorithm, layout, careful=False))
    run_streams, noise = streams(root_key(0)), noise_of(algorithm)
    state = algorithm.initial(start(algorithm, None))
    length = layout.chunk_length

    def steps() -> State:
        after = state
        for base in range(0, settings.num_steps, length):
            with jax.enable_x64(True):
                draws, _ = draw(run_streams, np.arange(base, base + length, dtype=np.uint32))
            after = chunk(after, records, run_streams, draws, noise, base, None, 0, length).state
        return after

    return seconds(steps, 3) / (-(-settings.num_steps // length) * length)


def step_memory(problem: Problem, settings: Settings) -> dict[str, Any]:
    """Megabytes that a compiled step needs at once beside the images: arguments, results and temporary arrays.

    A private run holds the draws and rows of its chunks on top, whose size is bounded and does not grow with the batch.
    """
    changed = with_batch(settings, settings.memory_batch_size, 1)
    algorithm, records = prepared(problem, changed, make_plan(changed))
    sizes, dtype = sizes_of(algorithm), jnp.zeros(()).dtype
    shape = partial(jax.ShapeDtypeStruct, dtype=dtype)
    positions = jax.ShapeDtypeStruct((algorithm.sampler.slots,), jnp.int32)
    with jax.enable_x64(True):
        normals = jnp.zeros(sizes.noise, jnp.float64)
    drawn, noise = Draws(positions, normals, shape((1, sizes.base))), noise_of(algorithm)
    state = algorithm.initial(start(algorithm, None))
    step = jax.jit(lambda records, state, drawn: private_step(algorithm, records, state, drawn, noise, None, None))
    inference = svi(changed)
    batch = jnp.asarray(np.round(problem.train[: changed.batch_size]))
    with jax.numpy_dtype_promotion("standard"):
        plain_state = inference.init(jax.random.key(0), batch)
        plain = jax.jit(inference.update).lower(plain_state, batch)
    return {
        "batch_size": changed.batch_size,
        "private": _megabytes(step.lower(records, state, drawn), records),
        "not private": _megabytes(plain, None),
    }


def _megabytes(lowered: Any, left_out: Any) -> dict[str, float]:
    memory = lowered.compile().memory_analysis()
    arguments = memory.argument_size_in_bytes - sum(leaf.nbytes for leaf in jax.tree.leaves(left_out))
    peak = arguments + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return {"total": peak / 1e6, "temporary": memory.temp_size_in_bytes / 1e6}
