"""The metric in which scores are clipped, and how wide it is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from support.statistics import assert_close

from dpvi.posterior.metric.metric import Long, clip_norm, long_directions, prior_ridge, whitened
from dpvi.posterior.metric.tails import LengthLaw, simulated_law

DIMENSION, ROWS, NUM_RECORDS = 3, 4000, 3000
MIXING = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 0.3], [0.0, 0.0, 0.1]])
NOTHING = np.zeros((DIMENSION, DIMENSION))
WEIGHTS = np.full(ROWS, 1 / ROWS)
EVEN = Long(np.zeros(DIMENSION), np.eye(DIMENSION) / DIMENSION)
LENGTHS = {  # of whitened scores, quantiles of laws with one median
    name: law.ppf((np.arange(ROWS) + 0.5) / ROWS) / law.median() * np.sqrt(DIMENSION)
    for name, law in {
        "normal": scipy.stats.chi(DIMENSION),
        "heavy": scipy.stats.pareto(4.0),
        "heavier": scipy.stats.pareto(2.2),
    }.items()
}
SIGNALS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def drawn(tails: float | None = None) -> np.ndarray:
    """Scores, with the last of them, before mixing, from a t distribution where ``tails`` is given."""
    random = np.random.default_rng(0)
    scores = random.normal(size=(ROWS, DIMENSION))
    if tails is not None:
        scores[:, -1] = random.standard_t(tails, size=ROWS)
    return scores


def information_of(scores: np.ndarray) -> np.ndarray:
    return (scores * WEIGHTS[:, None]).T @ scores


def test_whitened_scores_have_unit_information():
    scores = drawn() @ MIXING.T
    found = whitened(scores, WEIGHTS, information_of(scores), NOTHING, bounded=True)
    np.testing.assert_allclose(found.matrix @ information_of(scores) @ found.matrix.T, np.eye(DIMENSION), atol=1e-9)
    np.testing.assert_allclose(found.weights @ found.lengths**2, DIMENSION, rtol=1e-9)
    np.testing.assert_allclose(np.trace(found.long.second), 1.0)
    (law,) = found.laws()
    np.testing.assert_array_equal(law.lengths, found.lengths)


def test_lengths_do_not_depend_on_how_parameters_are_written():
    plain, mixed = drawn(), drawn() @ MIXING.T
    lengths = [
        whitened(scores, WEIGHTS, information_of(scores), NOTHING, bounded=True).lengths for scores in (plain, mixed)
    ]
    np.testing.assert_allclose(lengths[0], lengths[1], rtol=1e-8)
    unwhitened = [np.linalg.norm(scores, axis=1) for scores in (plain, mixed)]
    assert np.max(np.abs(unwhitened[0] - unwhitened[1])) > 0.5


def test_directions_of_long_scores_are_shortened_where_responses_have_no_bounds():
    scores = drawn(tails=2.5)
    information = information_of(scores)
    bounded, unbounded = (whitened(scores, WEIGHTS, information, NOTHING, each) for each in (True, False))
    share = {
        name: np.diag(found.matrix @ information @ found.matrix.T)[-1] / DIMENSION
        for name, found in (("bounded", bounded), ("unbounded", unbounded))
    }
    np.testing.assert_allclose(share["bounded"], 1 / DIMENSION)
    assert share["unbounded"] < 0.5 / DIMENSION
    np.testing.assert_allclose(unbounded.plain, bounded.matrix)
    size = np.trace(unbounded.matrix @ information @ unbounded.matrix.T)
    np.testing.assert_allclose(size, DIMENSION)  # as long on average as before


def test_long_directions_are_those_of_the_tail():
    scores = drawn(tails=2.5)
    found = long_directions(scores, np.linalg.norm(scores, axis=1), WEIGHTS).second
    assert np.argmax(np.diag(found)) == DIMENSION - 1
    assert np.diag(found)[-1] > 0.7
    evenly = long_directions(drawn(), np.linalg.norm(drawn(), axis=1), WEIGHTS).second
    assert np.diag(evenly).max() < 0.6
    assert np.linalg.eigvalsh(found).min() > 0


SIMULATED, RECORDS = 40_000, 100_000
NEAR = (0.97, 0.99)  # quantiles of lengths to clip at: about as far out as directions are taken
WIDE = (0.5, 0.8, *NEAR, 0.997)


def skewed(num_records: int, seed: int) -> np.ndarray:
    """Whitened scores of a normal model's mean and log scale, at the truth: all long ones have a large scale."""
    residuals = np.random.default_rng(seed).normal(size=num_records)
    return np.stack([residuals, (residuals**2 - 1) / np.sqrt(2)], axis=1)


def clipped_at(quantile: float) -> tuple[Long, list[LengthLaw], np.ndarray, np.ndarray]:
    """Of one clip norm: where long simulated scores point, laws, and clipped scores of records and what they lost."""
    simulated, records = skewed(SIMULATED, 1), skewed(RECORDS, 2)
    lengths = np.linalg.norm(simulated, axis=1)
    clip, weights = np.quantile(lengths, quantile), np.full(len(lengths), 1 / len(lengths))
    long, laws = long_directions(simulated / clip, lengths / clip, weights), simulated_law(lengths / clip, weights)
    whole = records / clip
    clipped = whole / np.maximum(np.linalg.norm(whole, axis=1), 1)[:, None]
    return long, laws, clipped, whole - clipped


@pytest.mark.parametrize("quantile", NEAR)
def test_what_clipping_took_is_given_back(quantile):
    """Scores at the truth have mean zero. Clipped ones have not, until what was taken is given back."""
    long, laws, clipped, _ = clipped_at(quantile)
    standard_error = clipped.std(axis=0) / np.sqrt(RECORDS)
    assert_close(clipped.mean(axis=0) + long.taken(laws), 0.0, standard_error)
    with pytest.raises(AssertionError):
        assert_close(clipped.mean(axis=0), 0.0, standard_error)


@pytest.mark.parametrize("quantile", WIDE)
def test_doubt_is_larger_than_what_was_not_given_back(quantile):
    """Long scores need not point where the longest do: wherever scores are clipped, the rest is doubted."""
    long, laws, _, lost = clipped_at(quantile)
    doubt = long.doubt(laws, 1.0)
    left = lost.mean(axis=0) - long.taken(laws)
    assert left @ np.linalg.solve(doubt, left) < 1
    assert lost.mean(axis=0) @ np.linalg.solve(doubt, lost.mean(axis=0)) > 1  # had nothing been given back
    np.testing.assert_allclose(long.doubt(laws, 50.0), 2500 * doubt)


def test_nothing_is_taken_or_doubted_where_nothing_is_clipped():
    long, laws, _, _ = clipped_at(0.99)
    short = [law.scaled(1e-3) for law in laws]
    np.testing.assert_array_equal(long.taken(short), 0.0)
    np.testing.assert_array_equal(long.doubt(short, 1e6), 0.0)


def test_scores_that_the_model_does_not_expect_are_doubted_more():
    """And nothing is given back beyond the model's own law where long scores point everywhere."""
    long, (own,), _, _ = clipped_at(0.99)
    sure = [own, own.scaled(3.0)._replace(probability=0.0)]
    surprised = [own._replace(probability=0.1), own.scaled(3.0)._replace(probability=0.9)]
    more = np.linalg.eigvalsh(long.doubt(surprised, 1.0) - long.doubt(sure, 1.0))
    assert more.min() > 0
    assert np.trace(long.doubt(surprised, 1.0)) > 10 * np.trace(long.doubt(sure, 1.0))
    assert np.linalg.norm(long.taken(surprised)) > 3 * np.linalg.norm(long.taken(sure))
    np.testing.assert_array_equal(EVEN.taken(surprised), 0.0)


def test_the_clip_norm_grows_with_the_budget():
    for name, lengths in LENGTHS.items():
        laws = simulated_law(lengths, WEIGHTS)
        found = [clip_norm(laws, EVEN, NUM_RECORDS, signal) for signal in SIGNALS]
        assert all(less <= more for less, more in pairwise(found)), name
        assert found[-1] > 2 * found[0], name


@pytest.mark.parametrize("signal", SIGNALS[1:-1])
def test_the_clip_norm_grows_with_heavy_tails(signal):
    normal, heavy, heavier = (
        clip_norm(simulated_law(LENGTHS[name], WEIGHTS), EVEN, NUM_RECORDS, signal)
        for name in ("normal", "heavy", "heavier")
    )
    assert normal < heavier
    assert normal <= heavy <= heavier


def test_the_clip_norm_scales_with_lengths():
    """A metric twice as large is clipped at about twice the length, within its grid of 13 per cent."""
    once, twice = (
        clip_norm(simulated_law(factor * LENGTHS["normal"], WEIGHTS), EVEN, NUM_RECORDS, 0.1) for factor in (1.0, 2.0)
    )
    assert 1.5 < twice / once < 2.5


def test_a_ridge_keeps_drowned_directions_short():
    """One parameter of which a record tells next to nothing, beside two that are seen."""
    signal, precision = 0.1, np.eye(DIMENSION)
    scores = drawn() * np.array([1.0, 1.0, 1e-6])
    ridge = prior_ridge(precision, NUM_RECORDS, signal)
    information = information_of(scores)
    with_ridge = whitened(scores, WEIGHTS, information, ridge, bounded=True).matrix
    without = whitened(scores, WEIGHTS, information, NOTHING, bounded=True).matrix
    stretch = np.linalg.norm(with_ridge, axis=0)
    np.testing.assert_allclose(stretch[:2], np.linalg.norm(without, axis=0)[:2], rtol=0.01)
    assert stretch[2] < 1.01 / np.sqrt(ridge[2, 2])
    assert np.linalg.norm(without, axis=0)[2] > 100 * stretch[2]


def test_a_ridge_falls_with_records_and_budget():
    precision = np.diag([1.0, 2.0, 3.0])
    base = prior_ridge(precision, 1000, 0.1)
    assert np.all(np.diag(prior_ridge(precision, 2000, 0.1)) < np.diag(base))
    assert np.all(np.diag(prior_ridge(precision, 1000, 0.2)) < np.diag(base))
    np.testing.assert_allclose(np.diag(base) / np.diag(base)[0], np.diag(precision))
    # a budget without limit leaves the prior beside N records
    np.testing.assert_allclose(prior_ridge(precision, 1000, 1e9), precision / 1000)
