"""Poisson batches: exact tables, exact inclusion, and tests that a biased sampler fails."""

from __future__ import annotations

import functools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches import check_order, draw_batches, words_of
from support.statistics import assert_frequencies, assert_rates, assert_variance, tolerance

from dpvi.data.sampling import (
    MAX_RECORDS,
    AliasTable,
    PoissonSampler,
    _look_up,
    gaps,
    is_complete,
    poisson_sampler,
    positions,
)


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def precision(request):
    with jax.enable_x64(request.param):
        yield request.param


# --- the tables, in exact arithmetic -------------------------------------------------------------------------------


def outcomes(table: AliasTable) -> list[int]:
    """How many of the 2⁶⁴ pairs of words lead to each outcome."""
    capacity = 1 << (64 - table.columns_log2)
    highs, lows, aliases = (np.asarray(leaf).tolist() for leaf in table[:3])
    assert len(highs) == 1 << table.columns_log2
    counts = [0] * len(highs)
    for column, (high, low, alias) in enumerate(zip(highs, lows, aliases, strict=True)):
        threshold = (high << 32) | low
        assert 0 <= threshold <= capacity
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


# --- from words to gaps --------------------------------------------------------------------------------------------


def on_host(table: AliasTable) -> AliasTable:
    return AliasTable(*(np.asarray(leaf) for leaf in table[:3]), table.columns_log2)


def looked_up(table: AliasTable, high: int, low: int) -> int:
    """The table by Python integers: the top bits choose the column, the rest is compared with the threshold."""
    word = (high << 32) | low
    column, rest = word >> (64 - table.columns_log2), word & ((1 << (64 - table.columns_log2)) - 1)
    threshold = (int(table.threshold_high[column]) << 32) | int(table.threshold_low[column])
    return column if rest < threshold else int(table.alias[column])


@pytest.mark.parametrize(("num_records", "sampling_rate"), [(1, 0.3), (300, 0.05)])
def test_words_are_compared_with_thresholds_exactly(precision, num_records, sampling_rate):
    sampler = poisson_sampler(num_records, sampling_rate)
    for table in (sampler.low, sampler.high):
        table = on_host(table)
        words = set(np.random.default_rng(0).integers(0, 2**64, 50, dtype=np.uint64).tolist())
        for column in range(1 << table.columns_log2):  # just below, at and above every threshold
            first = column << (64 - table.columns_log2)
            threshold = first + ((int(table.threshold_high[column]) << 32) | int(table.threshold_low[column]))
            words |= {first, threshold - 1, threshold, threshold + 1, threshold + 2**32, threshold - 2**32}
        words = sorted(word for word in words if 0 <= word < 2**64)
        high, low = (np.array([each >> 32 for each in words], np.uint32), np.array(words, np.uint64).astype(np.uint32))
        found = _look_up(
            AliasTable(*map(jnp.asarray, table[:3]), table.columns_log2), jnp.asarray(high), jnp.asarray(low)
        )
        expected = [looked_up(table, int(h), int(w)) for h, w in zip(high, low, strict=True)]
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_gaps_follow_the_geometric_law(precision):
    sampling_rate = 0.01
    sampler = poisson_sampler(10**7, sampling_rate)
    drawn = gaps(sampler, words_of(sampler, jnp.arange(1)))
    assert drawn.dtype == jnp.int32
    assert drawn.shape == (sampler.physical_size, 1)
    drawn = np.asarray(drawn)[:, 0]
    edges = np.array([*range(20), *range(20, 600, 20)])
    survival = np.append((1 - sampling_rate) ** edges, 0.0)
    law = survival[:-1] - survival[1:]

    def frequencies(gaps):
        return np.bincount(np.digitize(gaps, edges), minlength=edges.size + 1)[1:]

    assert_frequencies(frequencies(drawn), law)
    assert_frequencies(np.bincount(drawn % 4, minlength=4), (1 - sampling_rate) ** np.arange(4))
    wrong_answers = {
        "one too long": drawn + 1,
        "one too short": np.maximum(drawn - 1, 0),
        "a rate 2 % too high": np.floor(drawn / 1.02).astype(int),
    }
    for wrong in wrong_answers.values():
        with pytest.raises(AssertionError):
            assert_frequencies(frequencies(wrong), law)


# --- batches -------------------------------------------------------------------------------------------------------


def check_poisson(included: np.ndarray, sampling_rate: float) -> None:
    """The shared assertion: inclusion of every record, joint inclusion of every pair, spread of the batch size."""
    num_steps, num_records = included.shape
    assert_rates(included.sum(axis=0), num_steps, np.full(num_records, sampling_rate))
    first, second = np.triu_indices(num_records, 1)
    if first.size:
        joint = (included.T @ included)[first, second]
        assert_rates(joint, num_steps, np.full(first.size, sampling_rate**2))
    assert_variance(included.sum(axis=1), num_records * sampling_rate * (1 - sampling_rate))


@pytest.mark.parametrize("max_physical_size", [None, 3, 1])
def test_batches_are_poisson(precision, max_physical_size):
    sampler = poisson_sampler(10, 0.3, max_physical_size)
    assert sampler.physical_size == (max_physical_size or 10)
    check_poisson(draw_batches(sampler, 20_000), 0.3)


@pytest.mark.parametrize(
    ("num_records", "sampling_rate", "max_physical_size"), [(1, 0.2, None), (2, 0.5, 1), (60, 0.05, None), (60, 0.9, 8)]
)
def test_batches_of_other_shapes_are_poisson(num_records, sampling_rate, max_physical_size):
    check_poisson(draw_batches(poisson_sampler(num_records, sampling_rate, max_physical_size), 20_000), sampling_rate)


def biased_batches(name: str, num_steps: int = 20_000, num_records: int = 10, sampling_rate: float = 0.3) -> np.ndarray:
    generator = np.random.default_rng(5)
    poisson = (generator.random((num_steps, num_records)) < sampling_rate).astype(int)
    if name == "fixed size":
        order = np.argsort(generator.random((num_steps, num_records)), axis=1)
        return (order < round(sampling_rate * num_records)).astype(int)
    if name == "never the first record":
        poisson[:, 0] = 0
    if name == "never the last record":
        poisson[:, -1] = 0
    if name == "truncated at a physical size of four":
        poisson[np.cumsum(poisson, axis=1) > 4] = 0
    if name == "neighbours together":
        poisson[:, 1] = poisson[:, 0]
    if name == "a rate 5 % too high":
        return (generator.random((num_steps, num_records)) < 1.05 * sampling_rate).astype(int)
    return poisson


def test_an_honest_sampler_passes_the_same_assertion():
    check_poisson(biased_batches("honest"), 0.3)


@pytest.mark.parametrize(
    "name",
    [
        "fixed size",
        "never the first record",
        "never the last record",
        "truncated at a physical size of four",
        "neighbours together",
        "a rate 5 % too high",
    ],
)
def test_a_biased_sampler_fails_the_same_assertion(name):
    with pytest.raises(AssertionError, match="standard errors"):
        check_poisson(biased_batches(name), 0.3)


def test_fixed_size_batches_fail_by_their_pairs_alone():
    included = biased_batches("fixed size")
    assert_rates(included.sum(axis=0), len(included), np.full(10, 0.3))  # inclusion rates cannot tell
    first, second = np.triu_indices(10, 1)
    with pytest.raises(AssertionError):
        assert_rates((included.T @ included)[first, second], len(included), np.full(first.size, 0.09))


def test_the_draw_does_not_depend_on_how_steps_are_grouped():
    sampler, start = poisson_sampler(500, 0.05), jnp.zeros((), jnp.int32)
    together = positions(sampler, words_of(sampler, jnp.arange(10)), start)
    alone = positions(sampler, words_of(sampler, jnp.arange(5, 6)), start)
    np.testing.assert_array_equal(np.asarray(together)[:, 5], np.asarray(alone)[:, 0])


@pytest.mark.parametrize("half", ["low", "high"])
@pytest.mark.parametrize("num_ties", [1, 2])
def test_an_undecided_half_is_settled_by_the_spare_word_and_two_by_refinement(precision, half, num_ties):
    sampler = poisson_sampler(1000, 0.1)
    size, table = sampler.physical_size, on_host(getattr(sampler, half))
    column = int(np.flatnonzero((table.threshold_low > 0) & (table.alias != np.arange(table.alias.size)))[0])
    tie = (column << (32 - table.columns_log2)) + int(table.threshold_high[column])
    threshold = int(table.threshold_low[column])
    others = np.random.default_rng(2).integers(0, 2**32, (2 * size + 1, 1), dtype=np.uint32)
    slot = 0 if half == "low" else size  # the first gap's word of this half

    def drawn(ties: int, settling: int, ignored: int) -> np.ndarray:
        """Gaps where the words that should settle ties hold ``settling``, and the others ``ignored``."""
        spare, refining = (settling, ignored) if num_ties == 1 else (ignored, settling)
        first = jnp.asarray(others).at[slot : slot + ties, 0].set(tie).at[-1, 0].set(spare)
        return np.asarray(gaps(sampler, lambda refine: jnp.full_like(first, refining) if refine else first))

    decided = drawn(0, 0, 0)
    before, after = drawn(num_ties, threshold - 1, threshold), drawn(num_ties, threshold, threshold - 1)
    base = 1 << sampler.low_bits
    shares = {"low": lambda gap: gap % base, "high": lambda gap: gap // base}
    assert np.all(shares.pop(half)(before[:num_ties]) == column)
    assert np.all(before[:num_ties] != after[:num_ties])
    (other,) = shares.values()
    np.testing.assert_array_equal(other(before), other(decided))
    np.testing.assert_array_equal(other(after), other(decided))
    # where the first 32 bits decide, the others do not matter, not even in a neighbour's company
    np.testing.assert_array_equal(before[num_ties:], decided[num_ties:])
    np.testing.assert_array_equal(after[num_ties:], decided[num_ties:])


# --- edges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_records", [1, 2, 7])
@pytest.mark.parametrize("max_physical_size", [None, 1, 3])
def test_rate_one_takes_every_record_without_randomness(precision, num_records, max_physical_size):
    sampler = poisson_sampler(num_records, 1.0, max_physical_size)
    assert sampler.certain
    assert sampler.words_per_pass == 0
    np.testing.assert_array_equal(draw_batches(sampler, 3), 1)


def test_empty_batches_happen_at_their_rate():
    included = draw_batches(poisson_sampler(20, 0.05), 5000)
    assert_rates(np.sum(included.sum(axis=1) == 0), 5000, 0.95**20)
    nobody = draw_batches(poisson_sampler(20, 1e-12), 100)
    assert nobody.sum() == 0


@functools.cache
def walk_of(num_records: int, expected: int):
    """A sampler and its compiled walk from words and a start."""
    sampler = poisson_sampler(num_records, expected / num_records)
    return sampler, jax.jit(lambda words, start: positions(sampler, lambda refining: words[int(refining)], start))


@pytest.mark.parametrize(("num_records", "expected"), [(MAX_RECORDS, 1), (MAX_RECORDS - 1, 1), (MAX_RECORDS, 30)])
def test_positions_never_overflow(precision, num_records, expected):
    """2³⁰ records are the most: two saturated sums, or a start and a stride, would pass 2³¹."""
    sampler, walk = walk_of(num_records, expected)
    source = words_of(sampler, jnp.arange(1000))
    words = jnp.stack([source(False), source(True)])
    for start in (0, num_records // 2, num_records - 1):
        drawn = np.asarray(walk(words, jnp.asarray(start, jnp.int32)))
        check_order(drawn, np.full(1000, start), num_records)
        mean = expected * (num_records - start) / num_records
        sizes = np.sum(drawn < num_records, axis=0)
        assert abs(sizes.sum() - 1000 * mean) <= tolerance() * math.sqrt(1000 * mean) + 1
    for word in (0, 2**31, 2**32 - 1):
        for start in (0, num_records - 1):
            drawn = np.asarray(walk(jnp.full_like(words, word), jnp.asarray(start, jnp.int32)))
            check_order(drawn, np.full(1000, start), num_records)


def test_more_records_than_positions_are_refused():
    with pytest.raises(ValueError, match="at most 2\\^30 records"):
        poisson_sampler(MAX_RECORDS + 1, 0.01)


def test_the_physical_size_rarely_needs_a_second_pass():
    sampler = poisson_sampler(30_000, 0.01)
    expected = 300
    assert expected + 4 * math.sqrt(expected) <= sampler.physical_size <= expected + 4 * math.sqrt(expected) + 10
    assert poisson_sampler(30_000, 0.01, 50).physical_size == 50
    assert poisson_sampler(30_000, 0.01, 10**6).physical_size == sampler.physical_size
    assert poisson_sampler(5, 0.5).physical_size == 5


def test_a_pass_is_complete_when_no_record_is_left_undecided():
    sampler = poisson_sampler(100, 0.1)
    last = jnp.array([0, 98, 99, 100], jnp.int32)
    np.testing.assert_array_equal(np.asarray(is_complete(sampler, last)), [False, False, True, True])
