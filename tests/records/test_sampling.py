"""Poisson batches: gaps from words, exact inclusion, and tests that a biased sampler fails."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.alias_tables import columns_of, tie_of, walker
from support.batches import check_order, draw_batches, words_of
from support.statistics import assert_frequencies, assert_rates, assert_variance, tolerance

from dpvi.mechanism.gaussian import FORMED_BITS
from dpvi.records.sampling import (
    MAX_RECORDS,
    MAX_SLOTS,
    AliasTable,
    gaps,
    is_complete,
    last_drawn,
    poisson_sampler,
    positions,
    whole_tiles,
)


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def precision(request):
    with jax.enable_x64(request.param):
        yield request.param


# --- from words to gaps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_records", "expected"), [(20, 5), (10**6, 300), (MAX_RECORDS, 30)])
def test_gaps_are_those_of_64_bit_words(num_records, expected):
    """The numbers a seed gives: low halves first, then high ones, then a spare word that settles what is open."""
    sampler = poisson_sampler(num_records, expected / num_records)
    words = np.asarray(words_of(sampler, jnp.arange(200))(False)).astype(np.uint64)

    def half(table: AliasTable, words: np.ndarray, refinement: np.ndarray) -> np.ndarray:
        return walker(*columns_of(table), (words << np.uint64(32)) | refinement)

    size = sampler.physical_size
    low, high = half(sampler.low, words[:size], words[-1]), half(sampler.high, words[size:-1], words[-1])
    drawn = gaps(sampler, words_of(sampler, jnp.arange(200)))
    np.testing.assert_array_equal(np.asarray(drawn), (high << sampler.low_bits) + low)


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
    size = sampler.physical_size
    column, tie, threshold = tie_of(getattr(sampler, half))
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


def test_each_step_is_settled_by_words_of_its_own():
    """Three steps of two lanes: one with an open draw, one with both halves of a gap open, one with two open gaps."""
    sampler = poisson_sampler(1000, 0.1)
    size = sampler.physical_size
    (_, low_tie, _), (_, high_tie, _) = tie_of(sampler.low), tie_of(sampler.high)
    deciding = np.random.default_rng(3).integers(0, 2**32, (2 * size + 1, 2, 3), dtype=np.uint32)
    deciding[5, 0, 0] = low_tie
    deciding[[7, size + 7], 0, 1] = low_tie, high_tie
    deciding[[1, size - 1], 1, 2] = low_tie

    def drawn(spare: int, refining: int) -> np.ndarray:
        first = jnp.asarray(deciding).at[-1].set(spare)
        return np.asarray(gaps(sampler, lambda refine: jnp.full_like(first, refining) if refine else first))

    def changed(before: np.ndarray, after: np.ndarray) -> list[list[int]]:
        return np.argwhere(before != after).tolist()

    largest = 2**32 - 1
    assert changed(drawn(0, 0), drawn(largest, 0)) == [[5, 0, 0]]
    assert changed(drawn(0, 0), drawn(0, largest)) == [[1, 1, 2], [7, 0, 1], [size - 1, 1, 2]]


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


def test_slots_come_in_whole_tiles():
    assert [whole_tiles(size) for size in (1, 63, 64, 65, 1000)] == [64, 64, 64, 128, 1024]
    for size in (1, 50, 64, 300):
        sampler = poisson_sampler(30_000, 0.01, size)
        assert (sampler.physical_size, sampler.slots) == (size, whole_tiles(size))
        found = positions(sampler, words_of(sampler, jnp.arange(7)), jnp.zeros((), jnp.int32))
        assert found.shape == (sampler.slots, 7)
        np.testing.assert_array_equal(np.asarray(found)[size:], 30_000)
        np.testing.assert_array_equal(last_drawn(sampler, found), np.asarray(found)[size - 1])


def test_a_pass_stays_within_what_adds_up_exactly():
    """2²² slots of 30 binary digits each are 52, and float64 has 53."""
    assert poisson_sampler(MAX_RECORDS, 0.5).physical_size == MAX_SLOTS == 2**22
    assert not poisson_sampler(MAX_SLOTS + 1, 1.0).takes_all
    assert poisson_sampler(MAX_SLOTS, 1.0).takes_all
    assert MAX_SLOTS * 2**FORMED_BITS <= 2**52


def test_a_pass_is_complete_when_no_record_is_left_undecided():
    sampler = poisson_sampler(100, 0.1)
    last = jnp.array([0, 98, 99, 100], jnp.int32)
    np.testing.assert_array_equal(np.asarray(is_complete(sampler, last)), [False, False, True, True])
