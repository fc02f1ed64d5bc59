"""The yardstick of many fits: the hand-written private step under ``vmap``, for this one model.

The mechanism is that of :mod:`contestants.hand_written`: Poisson batch, per-record score, clip, sum, noise, aligned
gradient of the mean field, Adam, and a trace of iterates, query points and noisy sums on the host. The same shortcuts:
threefry in place of a cipher, float32 gaps, a draw beyond the physical batch is cut off, non-finite scores are not
looked for. ``draws`` says where random numbers come from: ``ahead`` of the scan as in a single fit, or ``inside`` of
it; ``spread`` lays the fits over all devices.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from harness.problem import Problem
from harness.studies import Study, data_sets

from contestants.hand_written import FIRST_SCALE, clipped_sum, poisson_batch

SCORE = "vmap_grad"


def make_fit(problem: Problem, num_steps: int, draws: str) -> Any:
    """``fit(key, x, y) -> (final parameters, (location, scale, query point, noisy sum) per step)`` of one data set."""
    optimizer = optax.adam(problem.learning_rate)
    noise_scale = problem.noise_multiplier * problem.clip_norm

    def draw(key: jax.Array) -> tuple[jax.Array, ...]:
        batch_key, normal_key = jax.random.split(key)
        base, noise = jax.random.normal(normal_key, (2, problem.dimension))
        return (*poisson_batch(batch_key, problem), base, noise)

    def fit(key: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        def step(state: Any, drawn: Any) -> tuple[Any, tuple[jax.Array, ...]]:
            (location, raw_scale), optimizer_state = state
            index, mask, base, noise = draw(drawn) if draws == "inside" else drawn
            scale, slope = jax.nn.softplus(raw_scale), jax.nn.sigmoid(raw_scale)
            z = location + scale * base
            noisy_sum = clipped_sum(z, x[index], y[index], mask, problem.clip_norm, SCORE) + noise_scale * noise
            gradient = noisy_sum / problem.sampling_rate - z
            descent = (-gradient, -slope * (gradient * base + 1 / scale))
            updates, optimizer_state = optimizer.update(descent, optimizer_state)
            parameters = optax.apply_updates((location, raw_scale), updates)
            return (parameters, optimizer_state), (location, raw_scale, z, noisy_sum)

        parameters = (jnp.zeros(problem.dimension), jnp.full(problem.dimension, FIRST_SCALE))
        keys = jax.random.split(key, num_steps)
        drawn = keys if draws == "inside" else jax.vmap(draw)(keys)
        return jax.lax.scan(step, (parameters, optimizer.init(parameters)), drawn)

    return fit


def run(study: Study, draws: str, spread: bool) -> None:
    """All fits and their traces on the host, compilation included."""
    x, y = data_sets(study)
    many = jax.vmap(make_fit(study.problem, study.num_steps, draws))
    if spread:
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("fits",))
        fits = jax.sharding.PartitionSpec("fits")
        many = jax.shard_map(many, mesh=mesh, in_specs=fits, out_specs=fits, check_vma=False)
    (parameters, _), trace = jax.jit(many)(jax.random.split(jax.random.key(0), study.num_sets), x, y)
    jax.tree.map(np.asarray, (parameters, trace))
