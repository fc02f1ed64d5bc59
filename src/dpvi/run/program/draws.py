"""The randomness of many steps, drawn in one call before the loop that uses it.

Inside the loop a cipher would cost half a step; over a whole chunk at once it runs on long vectors. It is traced in
64-bit mode, whatever the precision of the run, because noise needs 64-bit uniforms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpvi.backend.compiling import plain_fusions
from dpvi.mechanism.rng import NORMALS_PER_PART, Streams, step_normals, step_words
from dpvi.records.sampling import PoissonSampler, Words, is_complete, last_drawn, positions
from dpvi.records.sharding import Shards, one_window_is_enough
from dpvi.run.program.lanes import in_parts

_WORD_BYTES = 4
_CACHE_BYTES = 2**20  # of words of lanes side by side that are drawn at a time


class Draws(NamedTuple):
    """What one step draws; for a chunk, with a leading axis of steps, and before that one of lanes if there are any."""

    positions: jax.Array  # (slots,) int32: sampled records of the first pass; empty where all records are taken
    noise: jax.Array  # (r,) or more, float64: standard normals for the mechanism; the next is for a count
    eta: jax.Array  # (K, base): standard normals for the variational draw
    batch: Any = None  # (slots, …): the records at `positions`, where they were put together before the step


def make_draws(
    sampler: PoissonSampler,
    noise_size: int,
    eta_shape: tuple[int, int],
    dtype: jnp.dtype,
    shards: Shards | None = None,
) -> Callable[[Streams, jax.Array], tuple[Draws, jax.Array]]:
    """A function (streams, steps) -> (draws, whether one pass is enough for each); call it in 64-bit mode."""

    def draw(streams: Streams, steps: jax.Array) -> tuple[Draws, jax.Array]:
        sampled, complete = _sampled(sampler, streams.sampling, steps, shards)
        noise = _noise(streams.noise, steps, noise_size)
        return Draws(sampled, noise, _etas(streams.model, steps, eta_shape, dtype)), complete

    return draw


def _sampled(
    sampler: PoissonSampler, stream: jax.Array, steps: jax.Array, shards: Shards | None = None
) -> tuple[jax.Array, jax.Array]:
    """Positions, ([lanes,] steps, slots), and whether they are all of every step's, ([lanes])."""
    if sampler.takes_all:
        return jnp.zeros((*stream.shape, len(steps), 0), jnp.int32), jnp.ones(stream.shape, bool)
    if stream.ndim:
        # lanes are part of the arrays, not of a vmap: under vmap every branch of the sampler would be taken
        size = _WORD_BYTES * (sampler.words_per_pass + sampler.physical_size) * len(steps)
        return in_parts(lambda part: _first_pass(sampler, part, steps), (stream,), size, _CACHE_BYTES)
    return _first_pass(sampler, stream, steps, shards)


def _first_pass(
    sampler: PoissonSampler, stream: jax.Array, steps: jax.Array, shards: Shards | None = None
) -> tuple[jax.Array, jax.Array]:
    sampled = positions(sampler, _pass_words(sampler, stream, steps, 0), jnp.zeros((), jnp.int32))
    complete = jnp.all(is_complete(sampler, last_drawn(sampler, sampled)), axis=-1)
    if shards is not None:  # known of every device on each of them, so that all run the same program
        complete = complete & one_window_is_enough(shards, sampled)
    return jnp.moveaxis(sampled, 0, -1), complete


def _noise(stream: jax.Array, steps: jax.Array, num_normals: int) -> jax.Array:
    """Standard normals for the mechanism, ([lanes,] steps, num_normals or more)."""
    if not stream.ndim:
        return step_normals(stream, steps, num_normals)
    size = 4 * _WORD_BYTES * min(num_normals, NORMALS_PER_PART) * len(steps)
    return in_parts(lambda part: step_normals(part, steps, num_normals), (stream,), size, _CACHE_BYTES)


def _etas(stream: jax.Array, steps: jax.Array, shape: tuple[int, int], dtype: jnp.dtype) -> jax.Array:
    """Standard normals for the variational draws, ([lanes,] steps, *shape)."""

    def one(key: jax.Array, step: jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.fold_in(key, step), shape, dtype)

    of_steps = jax.vmap(one, (None, 0))
    return (jax.vmap(of_steps, (0, None)) if stream.ndim else of_steps)(stream, steps)


class _Same:
    """Anything as a key that equals nothing but itself."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, eq=False)
class CompiledDraws:
    """:func:`make_draws` as compiled programs, a few of which other runs share."""

    positions: Any
    noise_size: int
    eta_shape: tuple[int, int]
    dtype: jnp.dtype

    def __call__(self, streams: Streams, steps: Any) -> tuple[Draws, jax.Array]:
        (found, complete), noise, eta = (program(*arguments) for program, arguments in self._calls(streams, steps))
        return Draws(found, noise, eta), complete

    def lowered(self, streams: Streams, steps: Any) -> list[jax.stages.Lowered]:
        """The programs as they are before they are compiled."""
        return [program.lower(*arguments) for program, arguments in self._calls(streams, steps)]

    def _calls(self, streams: Streams, steps: Any) -> list[tuple[Any, tuple[Any, ...]]]:
        return [
            (self.positions, (streams.sampling, steps)),
            (_compiled_noise, (streams.noise, steps, self.noise_size)),
            (_compiled_etas, (streams.model, steps, self.eta_shape, self.dtype)),
        ]


def compiled_draws(
    sampler: PoissonSampler, noise_size: int, eta_shape: tuple[int, int], dtype: jnp.dtype
) -> CompiledDraws:
    """:func:`make_draws`, compiled: the same programs for the same arguments, so that other runs need not compile them.

    The cipher and the sampler take several times as long to compile as the steps of a small model, and they know
    nothing of it. Positions, noise and variational draws are a program each: together they would compile no faster,
    and a run on another number of records needs other positions only.
    :func:`~dpvi.records.sampling.poisson_sampler` gives the same sampler for the same numbers. The programs of a few
    samplers are kept.
    """
    return CompiledDraws(_compiled_positions(_Same(sampler)), noise_size, eta_shape, jnp.dtype(dtype))


@lru_cache(maxsize=8)
def _compiled_positions(sampler: _Same) -> Callable[[jax.Array, Any], tuple[jax.Array, jax.Array]]:
    return jax.jit(partial(_sampled, sampler.value), compiler_options=plain_fusions())  # the most there is to compile


_compiled_noise = jax.jit(_noise, static_argnums=2)
_compiled_etas = jax.jit(_etas, static_argnums=(2, 3))


def later_pass(
    sampler: PoissonSampler, sampling_stream: jax.Array, step: jax.Array, index: jax.Array, start: jax.Array
) -> jax.Array:
    """Positions of pass ``index`` ≥ 1 of a step, for the rare draw that outgrows the first pass."""
    return positions(sampler, _pass_words(sampler, sampling_stream, step[None], index), start)[:, 0]


def _pass_words(sampler: PoissonSampler, stream: jax.Array, steps: jax.Array, index: jax.Array | int) -> Words:
    """The words of pass ``index`` of each step, and those that refine them, from parts of their own."""

    def words(refining: bool) -> jax.Array:
        return step_words(stream, steps, sampler.words_per_pass, part=2 * index + int(refining))

    return words
