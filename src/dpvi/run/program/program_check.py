"""Whether the program that a run compiled keeps records apart: tried on simulated ones before it reads a record.

What a record adds to a sum must be a function of that record alone, bit for bit, and no longer than the clip norm. That
is easily written in Python, and then a compiler has its say. It may compute the last rows of a product by other
instructions than the first, choose an algorithm by the number of rows, or, as jaxlib 0.10.2 to 0.11.2 do on processors,
give every record of a large batch the gradient of one of them. So the compiled program itself is tried, for this model,
plan and machine:

1. Each of a few simulated records, ill-conditioned ones among them, is given to the program alone. Noise is an argument
   of the program, so it can be chosen: minus what was read so far, until nothing is left, reads what the record adds to
   the last bit.
2. Many copies of them are given in many arrangements: all slots full, some left out, neighbours exchanged. With minus
   the sum of what they add alone as noise, nothing must be left, in any coordinate.
3. All slots are filled with different records, of sizes from a hundredth to a thousand. Moved to other slots, and cut
   into two parts, they must have the same sum.

Nothing here looks at the data of a run but at its shapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared.validation import CompilerError, PrivacyWarning
from dpvi.mechanism.gaussian import is_unbounded, power_of_two_above
from dpvi.models.base import GenerativeModel
from dpvi.models.simulate import ill_conditioned, of_all_sizes, responded
from dpvi.records.sharding import Records
from dpvi.run.program.chunk import Ran
from dpvi.run.program.draws import Draws
from dpvi.run.program.step import Algorithm, Noise, State, clip_norms_of, sizes_of

_ARRANGEMENTS = (1.0, 0.97, 0.9, 0.5, 0.1)  # share of the slots that are full
_SHIFTS = (7, 1)  # slots; a few, because kernels take a few at a time
_LARGE = 2**16  # parameters
_VACUOUS = (
    "The compiled program could not be tried: none of the simulated records adds anything to a sum at the point of the "
    "trial. Whether it keeps records apart is not known; begin at a place where the model's density is finite, with "
    "initial_location=."
)
_MOST_READINGS = 8  # a float32 shows 24 binary digits of a sum at a time


class Program:
    """The compiled steps of a chunk, tried before they first read a record.

    Parameters
    ----------
    chunk
        From :func:`~dpvi.run.program.chunk.make_chunk`, for one run or for several side by side.
    algorithm, careful
        What it was made of.
    lanes, same_records
        As those of :class:`~dpvi.run.program.loop.Run`.
    """

    def __init__(
        self,
        chunk: Callable[..., Ran],
        algorithm: Algorithm,
        careful: bool,
        lanes: int | None = None,
        same_records: bool = False,
    ) -> None:
        self._program = jax.jit(chunk)
        self._algorithm = algorithm
        self._careful = careful
        self._has_lanes = lanes is not None and not same_records
        self._tried: set[tuple[Any, ...]] = set()
        self.lower = self._program.lower

    def __call__(self, state: State, records: Records, *arguments: Any) -> Ran:
        # with a query, or arrays that are bound to a device, it is another program
        leaves = jax.tree.leaves((state, records, arguments))
        kind = arguments[4] is None, *(getattr(leaf, "committed", None) for leaf in leaves)
        if kind not in self._tried and not is_unbounded(self._algorithm.plan.clip_norm):
            _Trial(self._program, self._algorithm, self._careful, self._has_lanes, state, records, arguments).check()
        self._tried.add(kind)
        return self._program(state, records, *arguments)


class _Slots(NamedTuple):
    """Which simulated record every row of every shard holds, and whether it is drawn; both are (shards, rows)."""

    which: np.ndarray
    taken: np.ndarray


class _Trial:
    """One program, and experiments in the shapes of the arguments that it is about to be called with."""

    def __init__(
        self,
        program: Callable[..., Ran],
        algorithm: Algorithm,
        further_passes: bool,
        has_lanes: bool,
        state: State,
        records: Records,
        arguments: tuple[Any, ...],
    ) -> None:
        self._program, self._algorithm, self._records = program, algorithm, records
        self._further_passes = further_passes
        self._streams, self._draws, self._noise, base, query, *ends = arguments
        self._rng = np.random.default_rng(0)
        # the program's own points may be zero, where products of records and parameters show nothing
        self._state = state._replace(xi=self._beside(state.xi, 0.05))
        point = None if query is None else self._beside(query, 0.5)
        self._rest = (base, point, *((0, 1) if ends else ()))
        self._size = sizes_of(algorithm).release
        norms = clip_norms_of(
            algorithm, None if state.clip_norm is None else _first_copy(state.clip_norm).reshape(-1)[0]
        )
        self._norms = np.asarray(norms, np.float64)
        self._unit = power_of_two_above(self._norms) * 2.0**-algorithm.bits
        self._axis = int(has_lanes)  # of records
        self._shards = 1 if algorithm.shards is None else len(algorithm.shards.bounds) - 1
        # a program of many steps, or of many parameters, takes as long as a hundred others: a second is enough
        self._few = not ends or self._size > _LARGE
        kinds = ill_conditioned(self._structure(), self._few)
        self._count = len(jax.tree.leaves(kinds)[0])
        # a pass of one record is the last one only where that is the last of all: then rows are needed up to there
        self._last_only = further_passes and algorithm.sampler.physical_size == 1
        self._rows = self._rows_held() if self._last_only else min(algorithm.slots, self._rows_held())
        others = of_all_sizes(self._structure(), self._shards * self._rows, self._rng)
        self._simulated = jax.tree.map(lambda *parts: np.concatenate(parts), kinds, others)
        if isinstance(algorithm.model, GenerativeModel):  # responses that lie in their support, or nothing is added
            with jax.numpy_dtype_promotion("standard"):
                self._simulated = responded(algorithm.model, jnp.zeros(algorithm.model.dimension), self._simulated)
        self._which = self._rng.integers(self._count, size=(self._shards, self._rows))
        self._which.reshape(-1)[: self._count] = np.arange(self._count)
        self._exchanged = (self._which + self._rng.integers(1, self._count, self._which.shape)) % self._count
        self._placed: list[tuple[np.ndarray, Any]] = []  # rows are large, and needed again

    def check(self) -> None:
        """Raise a :class:`~dpvi.declared.validation.CompilerError` where records are not kept apart."""
        alone = np.stack([self._read(self._only(record)) for record in range(self._count)])
        for added in alone:
            self._check_norms(added)
        if not np.any(alone):
            warnings.warn(_VACUOUS, PrivacyWarning, stacklevel=2)
        if not self._last_only:
            self._check_slots()
        for number, share in enumerate(_ARRANGEMENTS[:2] if self._few else _ARRANGEMENTS):
            # a program that gives all records what one of them adds would be consistent with itself on the same rows
            slots = self._arranged(share, self._which if number % 2 else self._exchanged)
            numbers = np.bincount(slots.which[slots.taken], minlength=self._count)
            self._check_nothing_left(slots, -np.tensordot(numbers, alone, 1))

    def _check_slots(self) -> None:
        """Different records in all slots have the same sum in other slots, and in two parts."""
        different = self._count + np.arange(self._which.size).reshape(self._which.shape)
        every = self._arranged(1.0, different)
        total, flat = self._read(every), np.flatnonzero(every.taken)
        for shift in _SHIFTS[:1] if self._few else _SHIFTS:
            moved = different.copy()
            moved.reshape(-1)[flat] = np.roll(different.reshape(-1)[flat], shift)
            self._check_nothing_left(every._replace(which=moved), -total)
        if not (self._few or self._takes_shards):
            before = np.arange(different.size).reshape(different.shape) < flat[len(flat) // 2]
            first, second = (every._replace(taken=every.taken & part) for part in (before, ~before))
            self._check_nothing_left(second, self._read(first) - total)

    def _check_nothing_left(self, slots: _Slots, target: np.ndarray) -> None:
        if np.any(self._run(slots, target)):
            raise CompilerError(failed_trial("what a record adds to a sum depends on the records beside it"))

    def _check_norms(self, added: np.ndarray) -> None:
        """Exactly: whole numbers are squared in halves, of which no sum overflows, and C² is a fraction."""
        norms = np.broadcast_to(self._norms, added.shape[-1:])
        for clip_norm in np.unique(norms):
            bound = Fraction(clip_norm) / Fraction(float(power_of_two_above(clip_norm))) * 2**self._algorithm.bits
            for lane in added.reshape(-1, self._size)[:, norms == clip_norm]:
                high, low = lane >> 20, lane & (2**20 - 1)
                square = (_dot(high, high) << 40) + (_dot(high, low) << 21) + _dot(low, low)
                if square > bound**2:
                    raise CompilerError(failed_trial("what one record adds to a sum is longer than the clip norm"))

    def _read(self, slots: _Slots) -> np.ndarray:
        """What the records of ``slots`` add, ([lanes,] release) int64."""
        total = self._run(slots, np.int64(0))
        for _ in range(_MOST_READINGS):
            left = self._run(slots, -total)
            if not np.any(left):
                return total
            total = total + left
        raise CompilerError(failed_trial("two runs over the same record differ"))

    def _run(self, slots: _Slots, target: Any) -> np.ndarray:
        """Sum of the records of ``slots`` plus ``target``, in units, as far as a float holds it."""
        share = self._norms / self._unit
        multiplier = _reciprocal(float(np.max(share)))
        first = (target + 0.5) / (multiplier * share)  # the half is cut off again
        with jax.enable_x64(True):
            noise = self._first_step(np.broadcast_to(first, (*self._draws.noise.shape[:-2], self._size)))
            level = Noise(_like(multiplier, self._noise.of_sum), _like(0.0, self._noise.of_count))
            draws = self._drawn(slots, noise)
        ran = self._program(self._state, self._held(slots), self._streams, draws, level, *self._rest)
        released = np.asarray(_first_copy(ran.rows.noisy_sum))[..., 0, :]
        return np.rint(released.astype(np.float64) / self._unit).astype(np.int64)

    def _only(self, record: int) -> _Slots:
        if self._takes_shards:
            which = np.full((self._shards, self._rows), record)
            return _Slots(which, np.arange(which.size).reshape(which.shape) == 0)
        if self._last_only:
            which = np.full(self._which.shape, record)
            return _Slots(which, np.arange(which.size).reshape(which.shape) == self._algorithm.sampler.num_records - 1)
        return _Slots(self._which, np.arange(self._which.size).reshape(self._which.shape) == record)

    def _arranged(self, share: float, which: np.ndarray) -> _Slots:
        shape, rng = which.shape, self._rng
        if self._algorithm.sampler.takes_all:  # the first rows of every shard, or some rows of the only one
            length = np.ceil(share * self._rows * (1 if share == 1 else rng.uniform(0.9, 1, (self._shards, 1))))
            length = np.broadcast_to(length, (self._shards, 1))
            first = 0 if self._takes_shards else rng.integers(self._rows - length[0, 0] + 1)
            row = np.broadcast_to(np.arange(self._rows), shape)
            return _Slots(which, (row >= first) & (row < first + length))
        if self._last_only:
            return self._only(int(rng.integers(self._count)))
        taken = rng.uniform(size=shape) < share
        # a pass draws so many from all shards, and no other pass follows where its last position is void
        most = self._algorithm.sampler.physical_size - self._further_passes
        return _Slots(which, taken & (np.cumsum(taken).reshape(shape) <= most))

    def _bounds(self, slots: _Slots) -> np.ndarray:
        """Of the records that are there; where a single device takes all, of those that it takes."""
        if not self._algorithm.sampler.takes_all:
            return np.arange(self._shards + 1, dtype=np.int32) * self._rows
        first = 0 if self._takes_shards else int(np.argmax(slots.taken))
        return first + np.concatenate([[0], np.cumsum(slots.taken.sum(axis=1))]).astype(np.int32)

    @property
    def _takes_shards(self) -> bool:
        """Whether every device takes the first rows of its shard: then rows are exchanged, for none can be left out."""
        return self._algorithm.sampler.takes_all and self._algorithm.shards is not None

    def _held(self, slots: _Slots) -> Records:
        """Simulated records where the program reads them."""

        def rows(leaf: jax.Array, simulated: np.ndarray) -> jax.Array:
            filled = np.zeros((self._shards, self._rows_held(), *simulated.shape[1:]), leaf.dtype)
            filled[:, : self._rows] = simulated[slots.which]
            return _like(filled.reshape(-1, *simulated.shape[1:]), leaf)

        bounds = _like(self._bounds(slots), self._records.bounds)
        if self._records.rows is None:
            return Records(None, bounds)
        held = next((held for which, held in self._placed if which is slots.which), None)
        if held is None:
            held = jax.tree.map(rows, self._records.rows, self._simulated)
            self._placed = [*self._placed[-1:], (slots.which, held)]
        return Records(held, bounds)

    def _drawn(self, slots: _Slots, noise: jax.Array) -> Draws:
        draws = self._draws
        eta = np.random.default_rng(1).normal(size=draws.eta.shape[-2:]).astype(draws.eta.dtype)
        positions = np.full(
            draws.positions.shape[-1], max(self._bounds(slots)[-1], self._algorithm.sampler.num_records)
        )
        if positions.size:
            sampled = np.flatnonzero(slots.taken)  # shards have as many rows each, so these are numbers of records
            positions[: sampled.size] = sampled
        batch = draws.batch
        if batch is not None:
            batch = jax.tree.map(lambda leaf, simulated: self._batch(slots, leaf, simulated), batch, self._simulated)
        positions = _like(positions.astype(np.int32), draws.positions)
        return Draws(positions, noise, _like(eta, draws.eta), batch)

    def _first_step(self, normals: np.ndarray) -> jax.Array:
        """Noise of a chunk whose first step has these; put together on the device, for a network has many steps."""
        model = self._draws.noise
        if not model.committed:
            return _padded(jnp.asarray(normals), model.shape)
        noise = np.zeros(model.shape)
        noise[..., 0, : self._size] = normals
        return _like(noise, model)

    def _batch(self, slots: _Slots, leaf: jax.Array, simulated: np.ndarray) -> jax.Array:
        """What a feed would have read: a device's own records after each other, then any."""
        which = np.zeros((self._shards, leaf.shape[1] // self._shards), int)
        for shard, (row, taken) in enumerate(zip(slots.which, slots.taken, strict=True)):
            which[shard, : taken.sum()] = row[taken]
        return _like(simulated[which.reshape(-1)].astype(leaf.dtype), leaf)

    def _structure(self) -> Any:
        """Of one record."""
        if self._records.rows is None:
            assert self._algorithm.feed is not None
            return self._algorithm.feed.structure
        axes = self._axis + 1
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[axes:], leaf.dtype), self._records.rows)

    def _rows_held(self) -> int:
        """Rows of a shard."""
        if self._records.rows is None:
            return self._algorithm.slots
        return jax.tree.leaves(self._records.rows)[0].shape[self._axis] // self._shards

    def _beside(self, point: jax.Array, by: float) -> jax.Array:
        step = by * self._rng.normal(size=point.shape[-1:])
        return _like(np.asarray(_first_copy(point)) + step.astype(point.dtype), point)


@partial(jax.jit, static_argnums=1)
def _padded(first: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.zeros(shape, first.dtype).at[..., 0, : first.shape[-1]].set(first)


def _like(array: Any, model: jax.Array) -> jax.Array:
    """``array`` in the shape of ``model`` and on its devices: else the program would be compiled again for it."""
    array = np.broadcast_to(array, model.shape)
    if not model.committed:
        return jnp.asarray(array)
    return jax.make_array_from_callback(model.shape, model.sharding, lambda index: array[index])


def _first_copy(array: jax.Array) -> Any:
    return array if array.is_fully_addressable else array.addressable_data(0)


def _dot(left: np.ndarray, right: np.ndarray) -> int:
    return int(np.sum(left * right))


def _reciprocal(share: float) -> float:
    """A number whose product with ``share`` rounds to 1."""
    return next(
        each for each in (1 / share, np.nextafter(1 / share, 2), np.nextafter(1 / share, 0)) if each * share == 1
    )


def failed_trial(what: str) -> str:
    """The sentence of a :class:`~dpvi.declared.validation.CompilerError`."""
    return (
        f"The program that JAX {jax.__version__} compiled for this model, plan and machine was tried on simulated "
        f"records and failed: {what}, so that no bound on one record's influence holds. No record was read. Another "
        "version of JAX may help; on processors, the environment variable "
        "XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= set before Python starts; or a model with fewer products "
        "of matrices."
    )
