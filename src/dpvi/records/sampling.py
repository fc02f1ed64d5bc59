"""Exact Poisson batches at a cost of O(κN): the gaps between sampled records, drawn by integer arithmetic.

Under Poisson sampling each record enters a step independently with probability κ, so the numbers of records skipped
between two sampled ones are independent geometric variables, P(G = g) = κ (1 − κ)^g. Walking from gap to gap touches
only the records that are drawn.

The binary digits of a geometric variable are independent (G = bH + R with b a power of two has R and H independent,
R a truncated geometric with ratio 1 − κ and H a geometric with ratio (1 − κ)^b). So the low and the high half of a
gap are drawn separately, each from an alias table whose weights are 64-bit integers computed in exact arithmetic.
No floating-point number takes part in the draw: the probability of every half is right to 2⁻⁶⁴. The first 32 bits
decide nearly every draw. A step in which one is still open has a spare word for it; other 32 bits are made only where
two are open in one step. The larger the tables the more often a draw is open, so settling one costs next to nothing.

A pass has a fixed physical size, so that one compiled program serves every step. A draw that needs more takes
another pass; nothing is truncated, and nothing depends on the order of the records.

A batch has a multiple of 64 slots, those beyond the physical size always empty: compilers compute the last few rows of
a product by other instructions, which round otherwise, and what a record adds must not depend on its slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.backend.compiling import compiled_apart

WORDS_PER_GAP = 2
TILE = 64  # slots come in multiples of it
MAX_SLOTS = 2**22  # float64 holds the exact sum of as many whole numbers (mechanism/gaussian.py)
MAX_RECORDS = 2**30  # positions are int32 and must not overflow when a gap is added to one
_WEIGHT_BITS = 64
_PRECISION = 256  # bits of the fixed-point arithmetic behind the weights
_SMALLEST_RATE = 2.0**-128  # half of those bits are left for the weights themselves


class AliasTable(NamedTuple):
    """Walker's alias method on integers: column i keeps its own value i below its threshold, else it gives its alias.

    A threshold counts out of 2^(64 − columns_log2). Its bits above the lower 32 and the alias share one word,
    ``entry = (threshold >> 32) << columns_log2 | alias``: a draw then reads one word, of a table that fits into a
    processor's nearest cache. ``threshold_low``, the other 32 bits, are for draws that these leave open. A column that
    always keeps its value is its own alias and needs no threshold; 2^(64 − columns_log2) itself would not fit.
    """

    entry: jax.Array
    threshold_low: jax.Array
    columns_log2: int


class PoissonSampler(NamedTuple):
    """Tables and sizes for Poisson batches of ``num_records`` records at one sampling rate."""

    num_records: int
    physical_size: int
    low_bits: int
    low: AliasTable
    high: AliasTable
    certain: bool  # sampling rate 1: every record, no randomness needed

    @property
    def slots(self) -> int:
        """Slots of a pass: those that may hold a record, and empty ones."""
        return whole_tiles(self.physical_size)

    @property
    def takes_all(self) -> bool:
        """Whether every pass is the whole of the data, so that nothing has to be drawn or gathered."""
        return self.certain and self.physical_size == self.num_records

    @property
    def words_per_pass(self) -> int:
        """Random words that decide one pass, with one to spare, unless it has to be refined with as many again."""
        return 0 if self.certain else WORDS_PER_GAP * self.physical_size + 1


@lru_cache(maxsize=16)
def poisson_sampler(num_records: int, sampling_rate: float, max_physical_size: int | None = None) -> PoissonSampler:
    """Prepare exact Poisson sampling; see the module's text for the method.

    Parameters
    ----------
    num_records
        Number of records, at least 1.
    sampling_rate
        κ ∈ (0, 1].
    max_physical_size
        Bound on the slots of one pass, to bound memory. Without it a pass covers four standard deviations of the
        batch size above its mean, so a second one is needed about once in thirty thousand steps. The physical size
        changes time and memory only, never the mechanism.
    """
    if num_records > MAX_RECORDS:
        raise ValueError("One sampler walks at most 2^30 records; there are more.")
    if sampling_rate < _SMALLEST_RATE:
        raise ValueError(
            f"sampling_rate is {sampling_rate:g}, at which no record would ever be sampled; take a larger one."
        )
    physical_size = pass_size(num_records, sampling_rate, max_physical_size)
    one = 1 << _PRECISION
    # sampling_rate is a float, hence a ratio of integers: its complement is exact here
    numerator, denominator = float(sampling_rate).as_integer_ratio()
    ratio = one - (one * numerator) // denominator
    # beyond this many records a gap has probability below 2^-64, or has left the data anyway
    longest = min(num_records, math.ceil(_WEIGHT_BITS * math.log(2) / sampling_rate))
    low_bits = max(1, math.ceil(math.log2(max(longest, 2)) / 2))
    base = 1 << low_bits
    num_high = longest // base + 2
    low_weights, block_ratio = _geometric_weights(ratio, base)
    high_weights, tail = _geometric_weights(block_ratio, num_high)
    high_weights[-1] += tail  # the last entry means "at least": either way past the end of the data
    return PoissonSampler(
        num_records=num_records,
        physical_size=physical_size,
        low_bits=low_bits,
        low=_alias_table(low_weights),
        high=_alias_table(high_weights),
        certain=sampling_rate == 1,
    )


def whole_tiles(size: int) -> int:
    """``size``, rounded up to a multiple of :data:`TILE`."""
    return -(-size // TILE) * TILE


def pass_size(num_records: int, sampling_rate: float, max_size: int | None = None) -> int:
    """Records of a pass: four standard deviations of the batch size above its mean, at most ``max_size``."""
    expected = sampling_rate * num_records
    size = min(num_records, math.ceil(expected + 4 * math.sqrt(expected)) + 1, MAX_SLOTS)
    return size if max_size is None else max(1, min(size, max_size))


def _geometric_weights(ratio: int, count: int) -> tuple[list[int], int]:
    """ratio^0, …, ratio^(count−1) times (1 − ratio), and ratio^count, all in fixed point."""
    one = 1 << _PRECISION
    power, weights = one, []
    for _ in range(count):
        following = (power * ratio) >> _PRECISION
        weights.append(power - following)
        power = following
    return weights, power


def _alias_table(weights: list[int]) -> AliasTable:
    """Build the table for probabilities proportional to ``weights``, rounded to multiples of 2⁻⁶⁴."""
    columns_log2 = max(1, math.ceil(math.log2(len(weights))))
    threshold, alias = _alias_columns(_rounded(weights), columns_log2)
    entry = [
        (0 if other == column else (limit >> 32) << columns_log2) | other
        for column, (limit, other) in enumerate(zip(threshold, alias, strict=True))
    ]
    low = [limit & 0xFFFFFFFF for limit in threshold]
    return AliasTable(jnp.asarray(entry, jnp.uint32), jnp.asarray(low, jnp.uint32), columns_log2)


def _rounded(weights: list[int]) -> list[int]:
    """``weights`` scaled to integers that sum to 2⁶⁴: rounding the cumulative sums keeps the total exact."""
    total, cumulative, previous, rounded = sum(weights), 0, 0, []
    for weight in weights:
        cumulative += weight
        scaled = (cumulative << _WEIGHT_BITS) // total
        rounded.append(scaled - previous)
        previous = scaled
    return rounded


def _alias_columns(weights: list[int], columns_log2: int) -> tuple[list[int], list[int]]:
    """Threshold and alias of every column, for ``weights`` that sum to 2⁶⁴."""
    columns, capacity = 1 << columns_log2, 1 << (_WEIGHT_BITS - columns_log2)
    remaining = weights + [0] * (columns - len(weights))
    alias, threshold = list(range(columns)), [capacity] * columns
    small = [i for i, weight in enumerate(remaining) if weight < capacity]
    large = [i for i, weight in enumerate(remaining) if weight > capacity]
    while small:
        poor, rich = small.pop(), large[-1]
        threshold[poor], alias[poor] = remaining[poor], rich
        remaining[rich] -= capacity - remaining[poor]
        if remaining[rich] <= capacity:
            large.pop()
            if remaining[rich] < capacity:
                small.append(rich)
    return threshold, alias


# words(False) gives the words that decide a pass, words(True) as many others that refine them
Words = Callable[[bool], jax.Array]


def _look_up(table: AliasTable, word: jax.Array, refinement: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """One half of each gap, and whether its word leaves it open to the ``refinement``; without one it is the alias."""
    bits, rest_bits = np.uint32(table.columns_log2), np.uint32(32 - table.columns_log2)
    column = word >> rest_bits
    rest = word & np.uint32((1 << rest_bits) - 1)
    entry = _read(table.entry, column)
    threshold, alias = entry >> bits, entry & np.uint32((1 << bits) - 1)
    keep, undecided = rest < threshold, rest == threshold
    if refinement is not None:
        keep = keep | (undecided & (refinement < _read(table.threshold_low, column)))
    return jnp.where(keep, column, alias).astype(jnp.int32), undecided


def _read(leaf: jax.Array, column: jax.Array) -> jax.Array:
    return leaf.at[column].get(mode="promise_in_bounds")  # a table has a column for all values of as many bits


def _combine(
    sampler: PoissonSampler, words: jax.Array, refinement: jax.Array | tuple[None, None] = (None, None)
) -> tuple[jax.Array, jax.Array]:
    """Gaps from the words of their halves, (2, ...), and how many halves of each these leave open."""
    low, low_undecided = _look_up(sampler.low, words[0], refinement[0])
    high, high_undecided = _look_up(sampler.high, words[1], refinement[1])
    return (high << sampler.low_bits) + low, low_undecided.astype(jnp.int32) + high_undecided.astype(jnp.int32)


def gaps(sampler: PoissonSampler, words: Words) -> jax.Array:
    """Gaps from random words of shape (words_per_pass, ...): int32 of shape (physical_size, ...).

    What a step draws depends on its own words alone, not on those of steps beside it.
    """
    first = words(False)
    marked = _marked_gaps(sampler, first)
    num_undecided = -jnp.sum(jnp.minimum(marked, 0), axis=0, dtype=jnp.int32)

    def settled() -> jax.Array:
        slots = jax.lax.broadcasted_iota(jnp.int32, marked.shape, 0)
        # a step has at most one open gap, and where it has none the first is looked up again to no effect
        slot = jnp.sum(jnp.where(marked < 0, slots, 0), axis=0, keepdims=True, dtype=jnp.int32)
        open_words = jnp.take_along_axis(_by_gap(sampler, first), slot[None], axis=1)
        gap, _ = _combine(sampler, open_words, jnp.stack([first[-1:], first[-1:]]))
        return jnp.put_along_axis(marked, slot, gap, axis=0, inplace=False)

    def refined() -> jax.Array:
        # the spare word settles one open draw of a step; two of them must not share it
        refinement = jnp.where(num_undecided < 2, first[-1], _by_gap(sampler, words(True)))
        return _combine(sampler, _by_gap(sampler, first), refinement)[0]

    return jax.lax.switch(jnp.minimum(jnp.max(num_undecided), 2), (lambda: marked, settled, refined))


def _marked_gaps(sampler: PoissonSampler, words: jax.Array) -> jax.Array:
    """Gaps, and in the place of one that ``words`` leave open minus the number of its undecided halves, −1 or −2."""

    def mark(words: jax.Array) -> jax.Array:
        gap, num_undecided = _combine(sampler, _by_gap(sampler, words))
        return jnp.where(num_undecided == 0, gap, -num_undecided)

    # merged with the loop that makes the words, it would find each of them by a division, as long as the look-up
    return compiled_apart(mark)(words)


def _by_gap(sampler: PoissonSampler, words: jax.Array) -> jax.Array:
    """One word per half of each gap, (2, physical_size, ...)."""
    return words[:-1].reshape(WORDS_PER_GAP, sampler.physical_size, *words.shape[1:])


def positions(sampler: PoissonSampler, words: Words, start: jax.Array) -> jax.Array:
    """The next ``physical_size`` sampled positions at or after ``start``, increasing; those ≥ num_records are void.

    ``words`` gives arrays of shape (words_per_pass, ...), the result is (slots, ...), void where slots stay empty. The
    draw is complete when :func:`last_drawn` is at least ``num_records - 1``; otherwise another pass starts behind it.
    """
    end = np.int32(sampler.num_records)
    if sampler.certain:
        shape = jax.eval_shape(lambda: words(False)).shape[1:]
        every = jnp.arange(sampler.physical_size, dtype=jnp.int32).reshape(-1, *[1] * len(shape))
        found = jnp.minimum(start + jnp.broadcast_to(every, (sampler.physical_size, *shape)), end)
    else:
        strides = jnp.minimum(gaps(sampler, words) + 1, end + 1)
        found = jnp.minimum(start + _saturating_sums(strides, sampler.num_records + 1) - 1, end)
    empty = [(0, sampler.slots - sampler.physical_size), *[(0, 0)] * (found.ndim - 1)]
    return jnp.pad(found, empty, constant_values=end)


def last_drawn(sampler: PoissonSampler, found: jax.Array) -> jax.Array:
    """The last of the positions that a pass drew, without the slots that stay empty."""
    return found[sampler.physical_size - 1]


def _saturating_sums(strides: jax.Array, cap: int) -> jax.Array:
    """Running sums along the first axis that stop at ``cap``, so that int32 never overflows."""

    def add(a: jax.Array, b: jax.Array) -> jax.Array:
        return a + jnp.minimum(b, cap - a)  # min(a + b, cap) would overflow where both are near 2^30

    def step(total: jax.Array, stride: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = add(total, stride)
        return total, total

    def walk(strides: jax.Array) -> jax.Array:
        return jax.lax.scan(step, jnp.zeros_like(strides[0]), strides)[1]

    # A CPU walks all steps of a chunk abreast, six times faster than a tree; an accelerator needs the tree.
    return jax.lax.platform_dependent(strides, cpu=walk, default=lambda s: jax.lax.associative_scan(add, s, axis=0))


def is_complete(sampler: PoissonSampler, last_position: jax.Array) -> jax.Array:
    """Whether a pass that ended at ``last_position`` left no record undecided."""
    return last_position >= sampler.num_records - 1
