"""Laws of lengths that noisy counts allow, from counts of distributions that are known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from support.statistics import assert_close

from dpvi.posterior.metric.tails import LengthLaw, counted_laws, excess, kept_slope, mean, simulated_law, surprise
from dpvi.release.requests import NORM_EDGES

NUM_RECORDS = 20_000
LIGHT = scipy.stats.chi(3, scale=0.25)  # no longer than 1.3 among so many
NORMAL = scipy.stats.chi(3, scale=0.6)  # lengths of normal vectors
HEAVY = {index: scipy.stats.pareto(index, scale=0.3) for index in (2.5, 3.0, 4.0)}
SEEN = {"normal": NORMAL, **{f"power {index}": law for index, law in HEAVY.items()}}


def simulated(distribution) -> LengthLaw:
    """8000 draws, as a simulator gives them: quantiles, so that none is an accident."""
    lengths = distribution.ppf((np.arange(8000) + 0.5) / 8000)
    (law,) = simulated_law(lengths, np.full(8000, 1 / 8000))
    return law


def counts(distribution, noise_scale: float, random: np.random.Generator, num_records=NUM_RECORDS) -> np.ndarray:
    shares = np.diff(distribution.cdf([0.0, *NORM_EDGES, np.inf]))
    return random.multinomial(num_records, shares) + noise_scale * random.normal(size=len(shares))


def allowed(distribution, noise_scale: float, model: LengthLaw, seed: int, num_records=NUM_RECORDS) -> list[LengthLaw]:
    random = np.random.default_rng(seed)
    return counted_laws(counts(distribution, noise_scale, random, num_records), noise_scale, model, num_records)


def true_excess(distribution) -> float:
    """E(n − 1)₊."""
    return scipy.integrate.quad(distribution.sf, 1, np.inf, limit=200)[0]


def bracket(distribution) -> tuple[float, float]:
    """E(n − 1)₊ with every length moved to the lower, or to the upper end of its bin: no count knows better."""
    shares = np.diff(distribution.cdf([0.0, *NORM_EDGES, np.inf]))
    lower, upper = np.array([0.0, *NORM_EDGES]), np.array([*NORM_EDGES, 2 * NORM_EDGES[-1]])
    return float(shares @ np.maximum(lower - 1, 0)), float(shares @ np.maximum(upper - 1, 0))


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("model", ["its own", "light"])
def test_what_clipping_takes_is_bracketed(name, model):
    distribution = SEEN[name]
    lower, upper = bracket(distribution)
    assert lower < true_excess(distribution) < upper
    for seed in range(10):
        laws = allowed(distribution, 5.0, simulated(LIGHT if model == "light" else distribution), seed)
        assert lower < excess(laws) < upper
    assert not lower < excess([simulated(LIGHT)]) < upper  # what would be thought without counts


@pytest.mark.parametrize("name", SEEN)
def test_a_tail_that_the_model_does_not_expect_is_seen(name):
    for seed in range(10):
        laws = allowed(SEEN[name], 20.0, simulated(LIGHT), seed)
        assert laws[0].probability < 1e-3  # the model's own comes first
        assert excess(laws) > 10 * excess([simulated(LIGHT)])


@pytest.mark.parametrize("name", SEEN)
def test_a_model_that_is_right_is_believed(name):
    model = simulated(SEEN[name])
    believed = [allowed(SEEN[name], 20.0, model, seed)[0].probability for seed in range(20)]
    assert np.median(believed) > 0.5
    doubted = [allowed(SEEN[name], 20.0, simulated(LIGHT), seed)[0].probability for seed in range(20)]
    assert np.median(doubted) < 1e-3


@pytest.mark.parametrize(("num_records", "noise_scale"), [(3000, 88.8), (20_000, 1e5)])
def test_the_models_own_law_is_kept_where_noise_drowns_counts(num_records, noise_scale):
    """(The noise of epsilon = 0.1, then noise without bounds.)"""
    model = simulated(NORMAL)
    found = [excess(allowed(NORMAL, noise_scale, model, seed, num_records)) for seed in range(30)]
    assert np.quantile(found, 0.75) < 2 * true_excess(NORMAL)


APART = 0.03  # of the records, whose scores are ten times as long


def counts_with_some_apart(noise_scale: float, random: np.random.Generator, share: float = APART) -> np.ndarray:
    number = round(share * NUM_RECORDS)
    lengths = NORMAL.rvs(NUM_RECORDS, random_state=random)
    lengths[:number] *= 10
    bins = np.searchsorted(NORM_EDGES, lengths, "right")
    exact = np.bincount(bins, minlength=len(NORM_EDGES) + 1)
    return exact + noise_scale * random.normal(size=len(exact))


def excess_with_some_apart() -> float:
    return (1 - APART) * true_excess(NORMAL) + APART * true_excess(scipy.stats.chi(3, scale=6.0))


def test_records_that_lie_apart_are_found():
    """They carry most of what clipping takes, and the others are believed to be the model's."""
    model, random, truth = simulated(NORMAL), np.random.default_rng(7), excess_with_some_apart()
    assert truth > 2 * true_excess(NORMAL)
    for _ in range(10):
        laws = counted_laws(counts_with_some_apart(20.0, random), 20.0, model, NUM_RECORDS)
        assert surprise(laws) > 0.999
        lost = mean(laws, lambda n: np.maximum(n - 1, 0.0))
        assert 0.7 * truth < lost < 1.4 * truth
        assert excess(laws) > 0.8 * truth
        far = mean(laws, lambda n: (n > NORM_EDGES[-3]).astype(float))
        expected = APART * scipy.stats.chi(3, scale=6.0).sf(NORM_EDGES[-3])
        assert 0.6 * expected < far < 1.4 * expected
        # the bulk is as the model has it
        bulk = mean(laws, lambda n: (n < 1).astype(float))
        np.testing.assert_allclose(bulk, (1 - APART) * NORMAL.cdf(1), atol=0.03)


def test_without_records_apart_the_models_own_law_is_believed():
    model, random = simulated(NORMAL), np.random.default_rng(8)
    found = [counted_laws(counts_with_some_apart(20.0, random, share=0.0), 20.0, model, NUM_RECORDS) for _ in range(10)]
    assert max(surprise(laws) for laws in found) < 0.5
    assert np.median([surprise(laws) for laws in found]) < 0.2
    for laws in found:
        np.testing.assert_allclose(mean(laws, lambda n: np.maximum(n - 1, 0.0)), true_excess(NORMAL), rtol=0.15)


def test_records_apart_that_noise_hides_are_not_made_up():
    """A few records beside much noise: the model's own law is believed more than not."""
    model, random = simulated(NORMAL), np.random.default_rng(9)
    found = [counted_laws(counts_with_some_apart(300.0, random, 0.001), 300.0, model, NUM_RECORDS) for _ in range(20)]
    assert np.median([surprise(laws) for laws in found]) < 0.5


def test_laws_sum_to_one():
    for name, distribution in SEEN.items():
        laws = allowed(distribution, 20.0, simulated(LIGHT), 3)
        for law in laws:
            np.testing.assert_allclose(law.shares.sum(), 1.0, rtol=1e-6, err_msg=name)
            assert law.shares.min() >= 0
        assert 0.9 < sum(law.probability for law in laws) <= 1 + 1e-9


def test_scaling_a_law_scales_its_lengths():
    (law,) = [simulated(NORMAL)]
    assert excess([law.scaled(0.5)]) < excess([law]) < excess([law.scaled(2.0)])
    np.testing.assert_allclose(excess([law]), true_excess(NORMAL), rtol=1e-2)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_the_slope_that_clipping_leaves_is_that_of_shifted_vectors(dimension):
    """Vectors in random directions, shifted to both sides along the first axis and clipped."""
    random, shift = np.random.default_rng(5), 1e-4
    directions = random.normal(size=(40_000, dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = random.choice([0.3, 0.9, 1.5, 4.0], size=len(directions))
    sums = []
    for sign in (1, -1):
        shifted = lengths[:, None] * directions + sign * shift * np.eye(dimension)[0]
        sums.append(shifted / np.maximum(np.linalg.norm(shifted, axis=1), 1)[:, None])
    slopes = (sums[0] - sums[1])[:, 0] / (2 * shift)
    laws = simulated_law(np.array([0.3, 0.9, 1.5, 4.0]), np.full(4, 0.25))
    standard_error = slopes.std() / np.sqrt(len(slopes))
    assert_close(slopes.mean(), kept_slope(laws, dimension), standard_error)
    with pytest.raises(AssertionError):  # of scores that are as long and not clipped
        assert_close(slopes.mean(), 1.0, standard_error)


@pytest.mark.parametrize(("num_records", "noise_scale"), [(500, 88.8), (3000, 166.8)])
def test_a_bin_that_noise_lifts_is_no_tail(num_records, noise_scale):
    """The noise of epsilon = 0.1 and 0.05: in nine runs of ten no more is thought to be lost than twice the truth."""
    model = simulated(NORMAL)
    found = [excess(allowed(NORMAL, noise_scale, model, seed, num_records)) for seed in range(100)]
    assert np.quantile(found, 0.9) < 2 * true_excess(NORMAL)
