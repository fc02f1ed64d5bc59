"""The shipped mechanism on canaries: the one place where an audit meets it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpvi.declared.plan import HISTOGRAMS, Plan
from dpvi.families import MeanField
from dpvi.gradients import Aligned
from dpvi.mechanism.histogram import noisy_histograms
from dpvi.mechanism.rng import histogram_stream, root_key, streams
from dpvi.models.functions import FunctionModel, from_functions
from dpvi.records.arrays import filled_up
from dpvi.records.sampling import poisson_sampler, whole_tiles
from dpvi.records.sharding import Records
from dpvi.run.program.draws import compiled_draws
from dpvi.run.program.step import Algorithm, noise_of, private_step, sizes_of


class NoisySums(Protocol):
    """:func:`noisy_sums`, or what stands in for it where a fault is planted."""

    def __call__(
        self, plan: Plan, releases: np.ndarray, seed: int | None, num_trials: int, num_steps: int
    ) -> np.ndarray: ...


class NoisyCounts(Protocol):
    """:func:`noisy_counts`, or what stands in for it."""

    def __call__(self, plan: Plan, covariates: np.ndarray, seed: int | None) -> np.ndarray: ...


def linear_model(dimension: int) -> FunctionModel:
    """A model whose records *are* their release: the score of ``record @ z`` is the record, wherever z is."""
    return from_functions(lambda z: -0.5 * jnp.sum(z**2), lambda z, record: record @ z, dimension)


def noisy_sums(plan: Plan, releases: np.ndarray, seed: int | None, num_trials: int, num_steps: int) -> np.ndarray:
    """What a step releases of records with these ``releases``, again and again: (num_trials, num_steps, r).

    All of a step runs as in a fit (:func:`dpvi.run.program.step.private_step`): Poisson sampling, clipping, summing,
    noise. The randomness of a step is a function of (key, stream, number of the step), so steps with different numbers
    are independent, and every trial has numbers of its own under a key from the operating system, or from ``seed``.
    """
    size, dtype = num_trials * num_steps, jnp.zeros(()).dtype
    drawing, stepping = _programs(plan, *releases.shape, size, dtype)
    with jax.enable_x64(True):
        draws, complete = drawing(streams(root_key(seed)), np.arange(size, dtype=np.uint32))
    assert np.all(np.asarray(complete)), "one pass holds all records of an audit"
    rows = jnp.asarray(filled_up(releases, whole_tiles(len(releases))), dtype)
    rows = stepping(Records(rows, jnp.asarray((0, len(releases)), jnp.int32)), draws)
    return np.asarray(rows, np.float64).reshape(num_trials, num_steps, -1)


@lru_cache(maxsize=4)
def _programs(plan: Plan, num_records: int, release_size: int, size: int, dtype: Any) -> tuple[Any, Any]:
    del size  # programs of one size are compiled once; many sizes are not kept
    sampler = poisson_sampler(num_records, plan.sampling_rate)
    # room for all records, so that no draw needs another pass
    sampler = sampler._replace(physical_size=max(sampler.physical_size, num_records))
    algorithm = Algorithm(linear_model(release_size), MeanField(), Aligned(), optax.sgd(0.0), plan, sampler)
    sizes, query = sizes_of(algorithm), jnp.zeros(release_size, dtype)
    state = algorithm.initial(query)

    noise = noise_of(algorithm)

    def step(records: Records, drawn: Any) -> jax.Array:
        return private_step(algorithm, records, state, drawn, noise, None, query)[1].noisy_sum

    drawing = compiled_draws(sampler, sizes.noise, (1, sizes.base), dtype)
    return drawing, jax.jit(jax.vmap(step, (None, 0)))


def noisy_counts(plan: Plan, covariates: np.ndarray, seed: int | None) -> np.ndarray:
    """The histograms that a fit releases of records with these covariates, one row each."""
    columns: Sequence[Any] = plan.covariates or ()
    return noisy_histograms(columns, [[covariates]], plan.release(HISTOGRAMS), histogram_stream(root_key(seed)))
