"""Exact Poisson batches at a cost of O(κN): the gaps between sampled records, drawn by integer arithmetic.

Under Poisson sampling each record enters a step independently with probability κ, so the numbers of records skipped
between two sampled ones are independent geometric variables, P(G = g) = κ (1 − κ)^g. Walking from gap to gap touches
only the records that are drawn.

The binary digits of a geometric variable are independent (G = bH + R with b a power of two has R and H independent,
R a truncated geometric with ratio 1 − κ and H a geometric with ratio (1 − κ)^b). So the low and the high half of a
gap are drawn separately, each from an alias table whose weights are 64-bit integers computed in exact arithmetic.
No floating-point number takes part in the draw: the probability of every half is right to 2⁻⁶⁴. The first 32 bits
decide nearly every draw. A step in which one is still open has a spare word for it; the other 32 bits of all draws are
made only for a chunk of steps in which that is not enough.

A pass has a fixed physical size, so that one compiled program serves every step. A draw that needs more takes
another pass; nothing is truncated, and nothing depends on the order of the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WORDS_PER_GAP = 2
MAX_RECORDS = 2**30  # positions are int32 and must not overflow when a gap is added to one
_WEIGHT_BITS = 64
_PRECISION = 256  # bits of the fixed-point arithmetic behind the weights
_SMALLEST_RATE = 2.0**-128  # half of those bits are left for the weights themselves


class AliasTable(NamedTuple):
    """Walker's alias method on integers: entry i keeps its own value below the threshold, else ``alias[i]``.

    ``threshold`` counts out of 2^(64 − columns_log2) and is split into two 32-bit words.
    """

    threshold_high: jax.Array
    threshold_low: jax.Array
    alias: jax.Array
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


def pass_size(num_records: int, sampling_rate: float, max_size: int | None = None) -> int:
    """Slots of a pass: four standard deviations of the batch size above its mean, at most ``max_size``."""
    expected = sampling_rate * num_records
    size = min(num_records, math.ceil(expected + 4 * math.sqrt(expected)) + 1)
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
    columns, capacity = 1 << columns_log2, 1 << (_WEIGHT_BITS - columns_log2)
    total, cumulative, previous, remaining = sum(weights), 0, 0, []
    for weight in weights:  # rounding the cumulative sums keeps the total exact
        cumulative += weight
        rounded = (cumulative << _WEIGHT_BITS) // total
        remaining.append(rounded - previous)
        previous = rounded
    remaining += [0] * (columns - len(weights))
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
    words = np.array([(t >> 32, t & 0xFFFFFFFF) for t in threshold], dtype=np.uint32)
    return AliasTable(jnp.asarray(words[:, 0]), jnp.asarray(words[:, 1]), jnp.asarray(alias, jnp.int32), columns_log2)


# words(False) gives the words that decide a pass, words(True) as many others that refine them
Words = Callable[[bool], jax.Array]


def _compare(table: AliasTable, word: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The column that ``word`` selects, what is left of the word, and what that has to stay below."""
    shift = np.uint32(32 - table.columns_log2)
    column = (word >> shift).astype(jnp.int32)
    rest = word & ((np.uint32(1) << shift) - np.uint32(1))
    return column, rest, table.threshold_high[column]


def _look_up(table: AliasTable, word: jax.Array, refinement: jax.Array | None) -> jax.Array:
    """One half of each gap."""
    column, rest, threshold = _compare(table, word)
    keep = rest < threshold
    if refinement is not None:
        keep = keep | ((rest == threshold) & (refinement < table.threshold_low[column]))
    return jnp.where(keep, column, table.alias[column])


def gaps(sampler: PoissonSampler, words: Words) -> jax.Array:
    """Gaps from random words of shape (words_per_pass, ...): int32 of shape (physical_size, ...)."""
    first = words(False)
    deciding, spare = _by_gap(sampler, first), first[-1]

    def combine(low_refinement: jax.Array | None, high_refinement: jax.Array | None) -> jax.Array:
        low = _look_up(sampler.low, deciding[0], low_refinement)
        return (_look_up(sampler.high, deciding[1], high_refinement) << sampler.low_bits) + low

    def refined() -> jax.Array:
        return combine(*_by_gap(sampler, words(True)))

    # the spare word settles one open draw of a step; two of them must not share it
    open_draws = jnp.max(_num_undecided(sampler.low, deciding[0]) + _num_undecided(sampler.high, deciding[1]))
    branches = (lambda: combine(None, None), lambda: combine(spare, spare), refined)
    return jax.lax.switch(jnp.minimum(open_draws, 2), branches)


def _by_gap(sampler: PoissonSampler, words: jax.Array) -> jax.Array:
    """One word per half of each gap, (2, physical_size, ...)."""
    return words[:-1].reshape(WORDS_PER_GAP, sampler.physical_size, *words.shape[1:])


def _num_undecided(table: AliasTable, word: jax.Array) -> jax.Array:
    _, rest, threshold = _compare(table, word)
    return jnp.sum(rest == threshold, axis=0, dtype=jnp.int32)


def positions(sampler: PoissonSampler, words: Words, start: jax.Array) -> jax.Array:
    """The next ``physical_size`` sampled positions at or after ``start``, increasing; those ≥ num_records are void.

    ``words`` gives arrays of shape (words_per_pass, ...), the result is (physical_size, ...). The draw is complete
    when the last position is at least ``num_records - 1``; otherwise another pass starts at the last position plus one.
    """
    end = np.int32(sampler.num_records)
    if sampler.certain:
        shape = jax.eval_shape(lambda: words(False)).shape[1:]
        every = jnp.arange(sampler.physical_size, dtype=jnp.int32).reshape(-1, *[1] * len(shape))
        return jnp.minimum(start + jnp.broadcast_to(every, (sampler.physical_size, *shape)), end)
    strides = jnp.minimum(gaps(sampler, words) + 1, end + 1)
    return jnp.minimum(start + _saturating_sums(strides, sampler.num_records + 1) - 1, end)


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
