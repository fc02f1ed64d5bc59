"""What drawing batches costs: exact Poisson batches beside ``jax.random.choice`` (Table 3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dpvi.mechanism.rng import root_key, step_words, streams
from dpvi.records.sampling import poisson_sampler, positions
from experiments.vae.settings import Settings
from experiments.vae.timing import seconds


def _poisson(settings: Settings) -> Callable[[], jax.Array]:
    """Positions of ``sampler_steps`` batches, as a chunk of a run draws them: ChaCha20, every record independently."""
    sampler = poisson_sampler(settings.num_records, settings.sampling_rate)
    steps = jnp.arange(settings.sampler_steps, dtype=jnp.uint32)

    @jax.jit
    def draw(stream: jax.Array) -> jax.Array:
        def words(refining: bool) -> jax.Array:
            return step_words(stream, steps, sampler.words_per_pass, part=int(refining))

        return positions(sampler, words, jnp.zeros((), jnp.int32))

    return partial(draw, streams(root_key(0)).sampling)


def _choice(settings: Settings) -> Callable[[], jax.Array]:
    """As many batches of fixed size without replacement, one per turn of a loop, as d3p's comparison draws them."""

    @jax.jit
    def draw(key: jax.Array) -> jax.Array:
        def one(each: jax.Array) -> jax.Array:
            return jax.random.choice(each, settings.num_records, (settings.batch_size,), replace=False)

        return jax.lax.map(one, jax.random.split(key, settings.sampler_steps))

    return partial(draw, jax.random.key(0))


def measure_samplers(settings: Settings) -> dict[str, Any]:
    """Seconds that an epoch of batches takes to draw, by each sampler."""
    steps_per_epoch = 1 / settings.sampling_rate
    return {
        name: {"seconds_per_epoch": seconds(sampler) / settings.sampler_steps * steps_per_epoch}
        for name, sampler in (("Poisson, exact", _poisson(settings)), ("jax.random.choice", _choice(settings)))
    }
