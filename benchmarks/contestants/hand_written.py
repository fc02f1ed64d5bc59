"""The yardstick: the same private step, written by hand in plain JAX for this one model.

Poisson batch, per-record score, clip, sum, noise, aligned gradient of the mean field, Adam; one jitted ``lax.scan``
that keeps iterates, query points and noisy sums. What makes it easier than a library's step: all random numbers are
threefry and drawn before the scan, gaps are float32, the rare draw beyond the physical batch (4 standard deviations)
is cut off, non-finite scores are not looked for, and ``score="closed_form"`` never stores a per-record gradient.
"""

from __future__ import annotations

import functools
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import optax
from harness.problem import Problem, records

FIRST_SCALE = -2.0


def poisson_batch(key: jax.Array, problem: Problem) -> tuple[jax.Array, jax.Array]:
    """Indices and mask of a Poisson batch in O(sampling_rate * num_records), by geometric gaps."""
    uniform = jax.random.uniform(key, (problem.physical_batch,), minval=jnp.finfo(jnp.float32).tiny)
    gap = jnp.floor(jnp.log(uniform) / math.log1p(-problem.sampling_rate)).astype(jnp.int32)
    index = jnp.cumsum(gap + 1) - 1
    inside = index < problem.num_records
    return jnp.where(inside, index, 0), inside


def log_likelihood(z: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    logit = x @ z
    return y * logit - jax.nn.softplus(logit)


def clipped_sum(z: jax.Array, x: jax.Array, y: jax.Array, mask: jax.Array, clip_norm: float, score: str) -> jax.Array:
    """Sum over the batch of the scores ``∇_z log p(y | x, z)``, each clipped to ``clip_norm``."""
    if score == "closed_form":
        residual = y - jax.nn.sigmoid(x @ z)
        norm = jnp.abs(residual) * jnp.linalg.norm(x, axis=1)
        return (residual * jnp.where(mask, jnp.minimum(1.0, clip_norm / norm), 0.0)) @ x
    scores = jax.vmap(jax.grad(log_likelihood), (None, 0, 0))(z, x, y)
    norm = jnp.linalg.norm(scores, axis=1)
    return jnp.where(mask, jnp.minimum(1.0, clip_norm / norm), 0.0) @ scores


def make_fit(problem: Problem, num_steps: int, score: str, draws: str = "ahead") -> Any:
    """``fit(key, x, y) -> (final state, (location, scale, query point, noisy sum) per step)``.

    ``draws`` says where random numbers come from: ``ahead`` of the scan, or ``inside`` of it.
    """
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
            noisy_sum = clipped_sum(z, x[index], y[index], mask, problem.clip_norm, score) + noise_scale * noise
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


@functools.cache
def compiled(problem: Problem, num_steps: int, score: str) -> Any:
    return jax.jit(make_fit(problem, num_steps, score))


@functools.cache
def device_records(problem: Problem) -> tuple[jax.Array, jax.Array]:
    x, y = records(problem)
    return jnp.asarray(x), jnp.asarray(y)


def first_result(problem: Problem, num_steps: int, score: str = "vmap_grad") -> Any:
    return jax.block_until_ready(compiled(problem, num_steps, score)(jax.random.key(0), *device_records(problem)))


def run(problem: Problem, num_steps: int, score: str = "vmap_grad") -> float:
    """Seconds per step of one whole fit; compiled by the first call."""
    start = time.perf_counter()
    first_result(problem, num_steps, score)
    return (time.perf_counter() - start) / num_steps
