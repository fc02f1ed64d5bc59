"""Drawing Poisson batches as a run does, pass after pass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.mechanism.rng import root_key, step_words, streams
from dpvi.records.sampling import PoissonSampler, is_complete, last_drawn, positions

STREAM_SEED = 11


def words_of(sampler: PoissonSampler, steps: jax.Array, index: int | jax.Array = 0, stream: jax.Array | None = None):
    """The words of one pass of each step, as a run draws them."""
    stream = streams(root_key(STREAM_SEED)).sampling if stream is None else stream
    return lambda refining: step_words(stream, steps, sampler.words_per_pass, part=2 * index + int(refining))


def draw_batches(sampler: PoissonSampler, num_steps: int, seed: int = STREAM_SEED) -> np.ndarray:
    """Inclusion of every record in every step, (steps, records), in as many passes as the draws need."""
    end = sampler.num_records
    included = np.zeros((num_steps, end + 1), int)
    start, unfinished, index = jnp.zeros(num_steps, jnp.int32), np.ones(num_steps, bool), 0
    steps, stream = jnp.arange(num_steps), streams(root_key(seed)).sampling
    draw = jax.jit(lambda start, index: positions(sampler, words_of(sampler, steps, index, stream), start))

    while np.any(unfinished):
        drawn = np.asarray(draw(start, jnp.asarray(index, jnp.uint32)))
        assert drawn.shape[0] == sampler.slots
        assert np.all(drawn[sampler.physical_size :] == end)  # slots that fill up a tile stay empty
        check_order(drawn[:, unfinished], np.asarray(start)[unfinished], end)
        for row in drawn:
            included[np.arange(num_steps)[unfinished], row[unfinished]] += 1
        last = np.asarray(last_drawn(sampler, drawn))
        unfinished &= ~np.asarray(is_complete(sampler, last))
        start, index = jnp.asarray(np.where(unfinished, last + 1, 0).astype(np.int32)), index + 1
    assert included[:, :end].max() <= 1  # nobody twice
    return included[:, :end]


def check_order(drawn: np.ndarray, start: np.ndarray, end: int) -> None:
    """Positions rise strictly from the start on until they reach the end marker, and stay there."""
    assert drawn.dtype == np.int32
    assert np.all(drawn[0] >= start)
    assert drawn.max() <= end
    before, after = drawn[:-1].astype(np.int64), drawn[1:].astype(np.int64)
    assert np.all((after > before) | ((before == end) & (after == end)))
