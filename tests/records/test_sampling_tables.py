"""The sampler's alias tables: the geometric law in exact arithmetic, and look-ups in words of 32 bits."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.alias_tables import columns_of, walker

from dpvi.records.sampling import (
    MAX_RECORDS,
    AliasTable,
    PoissonSampler,
    _alias_columns,
    _alias_table,
    _look_up,
    _rounded,
    poisson_sampler,
)


def outcomes(table: AliasTable) -> list[int]:
    """How many of the 2⁶⁴ pairs of words lead to each outcome."""
    capacity = 1 << (64 - table.columns_log2)
    thresholds, aliases = (leaf.tolist() for leaf in columns_of(table))
    assert len(thresholds) == 1 << table.columns_log2
    counts = [0] * len(thresholds)
    for column, (threshold, alias) in enumerate(zip(thresholds, aliases, strict=True)):
        assert 0 <= threshold < capacity
        counts[column] += threshold
        counts[alias] += capacity - threshold
    return counts


def geometric(ratio: Decimal, count: int) -> list[Decimal]:
    """ratio^g for g = 0, …, count."""
    powers = [Decimal(1)]
    for _ in range(count):
        powers.append(powers[-1] * ratio)
    return powers


def check_tables(num_records: int, sampling_rate: float) -> None:
    """Both halves of a gap have the probabilities of the geometric law to 2⁻⁶⁰, and these sum to one exactly."""
    sampler = poisson_sampler(num_records, sampling_rate)
    base = 1 << sampler.low_bits
    low, high = outcomes(sampler.low), outcomes(sampler.high)
    assert sum(low) == sum(high) == 2**64
    with localcontext() as context:
        context.prec = 200
        unit, error = Decimal(2) ** -64, Decimal(2) ** -60
        powers = geometric(1 - Decimal(sampling_rate), base)  # Decimal(float) is exact
        beyond, block = 1 - powers[base], powers[base]
        for value, count in enumerate(low):
            exact = (powers[value] - powers[value + 1]) / beyond if value < base else Decimal(0)
            assert abs(count * unit - exact) <= error
        blocks = geometric(block, len(high))
        used = [value for value, count in enumerate(high) if count]
        last = max(used)
        for value, count in enumerate(high[:last]):
            assert abs(count * unit - (blocks[value] - blocks[value + 1])) <= error
        assert abs(high[last] * unit - blocks[last]) <= error  # "at least"
        # where the last entry stands for longer gaps, these have left the data or do not happen
        assert last * base >= num_records or blocks[last + 1] <= error


@pytest.mark.parametrize(
    ("num_records", "sampling_rate"),
    [
        (1, 0.5),
        (1, 1e-9),
        (2, 0.5),
        (2, 0.999),
        (1000, 1.0),
        (1000, 1e-12),
        (1000, 1 - 2.0**-53),
        (30_000, 0.01),
        (10**7, 0.5),
        (10**7, 1e-5),
        (10**7, 1e-18),
        (MAX_RECORDS, 2.0**-30),
    ],
)
def test_tables_hold_the_geometric_law(num_records, sampling_rate):
    check_tables(num_records, sampling_rate)


@settings(max_examples=30)
@given(num_records=st.integers(1, 3000), sampling_rate=st.floats(1e-15, 1.0))
def test_tables_hold_the_geometric_law_everywhere(num_records, sampling_rate):
    check_tables(num_records, sampling_rate)


def gap_probabilities(sampler: PoissonSampler, count: int) -> list[Fraction]:
    """P(G = g) for g < count, as the tables have it."""
    low, high = outcomes(sampler.low), outcomes(sampler.high)
    base = 1 << sampler.low_bits
    return [Fraction(high[g // base] * low[g % base], 2**128) for g in range(count)]


def inclusion_probabilities(gap_law: list[Fraction]) -> list[Fraction]:
    """The renewal equation: record i is drawn after a gap of g if record i − 1 − g was, or from the start."""
    included: list[Fraction] = []
    for i in range(len(gap_law)):
        included.append(gap_law[i] + sum(gap_law[g] * included[i - 1 - g] for g in range(i)))
    return included


@pytest.mark.parametrize("sampling_rate", [0.5, 0.1, 1e-3, 1e-10])
def test_every_record_is_included_with_the_same_exact_probability(sampling_rate):
    """Pairs follow: the walk starts anew at every drawn record, so P(i and j) = P(i) P(j − i − 1)."""
    num_records = 40
    law = gap_probabilities(poisson_sampler(num_records, sampling_rate), num_records)
    for probability in inclusion_probabilities(law):
        assert abs(probability - Fraction(sampling_rate)) <= Fraction(num_records, 2**60)
    # the named wrong answer: gaps that start at one never draw the first record
    assert inclusion_probabilities([Fraction(0), *law[:-1]])[0] == 0


def test_a_float32_probability_is_not_exact():
    """What integer thresholds are for: inversion of a 23-bit uniform misses κ by far more than 2⁻⁶⁰."""
    for sampling_rate in (0.1, 1e-3, 1e-10):
        reachable = Fraction(math.ceil(sampling_rate * 2**23), 2**23)
        assert abs(reachable - Fraction(sampling_rate)) > Fraction(1, 2**40)


# --- look-ups --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def precision(request):
    with jax.enable_x64(request.param):
        yield request.param


def check_look_ups(table: AliasTable, thresholds: np.ndarray, aliases: np.ndarray) -> None:
    """Look-ups are those of Walker's columns on 64 bits, on random words and just below, at and above thresholds."""
    rest_bits = np.uint64(64 - table.columns_log2)
    columns = np.arange(1 << table.columns_log2, dtype=np.uint64)
    first, last = columns << rest_bits, (columns << rest_bits) + np.uint64((1 << int(rest_bits)) - 1)
    limit = first + thresholds  # of the last column it may be 2⁶⁴, which is zero here: one more word at the edge
    steps = np.array([0, 1, 2**32, -1, -(2**32)], np.int64).astype(np.uint64)
    random = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64)
    words = np.concatenate([random, first, last, (limit[:, None] + steps).ravel()])
    high, low = (words >> np.uint64(32)).astype(np.uint32), words.astype(np.uint32)
    expected = walker(thresholds, aliases, words)
    found, undecided = _look_up(table, jnp.asarray(high), jnp.asarray(low))
    np.testing.assert_array_equal(np.asarray(found), expected)
    # where 32 bits are said to decide, they do, whatever follows
    unrefined, _ = _look_up(table, jnp.asarray(high), None)
    decided = ~np.asarray(undecided)
    assert np.mean(decided[: random.size]) > 0.999
    np.testing.assert_array_equal(np.asarray(unrefined)[decided], expected[decided])
    # the named wrong answer: 32 bits do not decide everything
    if np.any(thresholds.astype(np.uint32) > 0):
        assert np.any(np.asarray(unrefined) != expected)


@pytest.mark.parametrize(
    ("num_records", "sampling_rate", "most_columns_log2"),
    [(1, 0.3, 1), (1, 1e-9, 1), (2, 0.5, 2), (300, 0.05, 5), (10**8, 3e-6, 12), (MAX_RECORDS, 2.0**-30, 16)],
)
def test_words_are_compared_with_thresholds_exactly(precision, num_records, sampling_rate, most_columns_log2):
    sampler = poisson_sampler(num_records, sampling_rate)
    assert max(sampler.low.columns_log2, sampler.high.columns_log2) == most_columns_log2
    for table in (sampler.low, sampler.high):
        check_look_ups(table, *columns_of(table))


@settings(max_examples=30, deadline=None)
@given(weights=st.lists(st.integers(0, 2**70), min_size=1, max_size=9).filter(any))
@example(weights=[1])
@example(weights=[1, 1])  # columns that always keep their value, whose threshold of 2⁶³ has no place in the table
@example(weights=[1, 1, 1, 1, 0])
@example(weights=[2**70, 1, 1])
@example(weights=[2**63 + 1, 2**63 - 1])
def test_packed_tables_are_the_columns_they_are_packed_from(weights):
    table = _alias_table(weights)
    thresholds, aliases = _alias_columns(_rounded(weights), table.columns_log2)
    check_look_ups(table, np.array(thresholds, np.uint64), np.array(aliases, np.uint64))
    assert outcomes(table)[: len(weights)] == _rounded(weights)
