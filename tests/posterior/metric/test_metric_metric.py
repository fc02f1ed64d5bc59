"""The metric in which scores are clipped, and how wide it is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.stats

from dpvi.posterior.metric.metric import clip_norm, long_directions, prior_ridge, whitened
from dpvi.posterior.metric.tails import simulated_law

DIMENSION, ROWS, NUM_RECORDS = 3, 4000, 3000
MIXING = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 0.3], [0.0, 0.0, 0.1]])
NOTHING = np.zeros((DIMENSION, DIMENSION))
WEIGHTS = np.full(ROWS, 1 / ROWS)
EVEN = np.eye(DIMENSION) / DIMENSION
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
    np.testing.assert_allclose(np.trace(found.directions), 1.0)
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
    found = long_directions(scores, np.linalg.norm(scores, axis=1), WEIGHTS)
    assert np.argmax(np.diag(found)) == DIMENSION - 1
    assert np.diag(found)[-1] > 0.7
    evenly = long_directions(drawn(), np.linalg.norm(drawn(), axis=1), WEIGHTS)
    assert np.diag(evenly).max() < 0.6
    assert np.linalg.eigvalsh(found).min() > 0


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
