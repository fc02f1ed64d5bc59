"""TARP against posteriors known to be right, and against named wrong ones, which must fail."""

from __future__ import annotations

import functools
import sys

import numpy as np
import pytest
from scipy.special import ndtr

from dpvi.evaluate import LEVELS, coverage_rmse, perfect_rmse, tarp

K = 2000
S = 400


@functools.lru_cache(maxsize=4)
def conjugate(dimension: int, seed: int, num_posteriors: int = K) -> tuple[np.ndarray, ...]:
    """Normal means with unequal data: exact posterior means and sds, truths, and standard normal draws."""
    rng = np.random.default_rng([dimension, seed])
    precision = rng.uniform(0.5, 8, (num_posteriors, dimension))
    truths = rng.normal(size=(num_posteriors, dimension))
    data = truths + rng.normal(size=truths.shape) / np.sqrt(precision)
    return (
        precision * data / (1 + precision),
        1 / np.sqrt(1 + precision),
        truths,
        rng.normal(size=(num_posteriors, S, dimension)),
    )


def posterior(dimension: int, seed: int = 0, width: float = 1.0, bias: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Draws (K, S, d) of the exact posterior with its sd multiplied and its mean moved by ``bias`` sd, and truths."""
    means, sds, truths, normal = conjugate(dimension, seed)
    return (means + bias * sds)[:, None] + width * sds[:, None] * normal, truths


def one_side(draws: np.ndarray) -> np.ndarray:
    return draws.mean(axis=1) + 4 * draws.std(axis=1)


@pytest.mark.parametrize("dimension", [1, 2, 12])
@pytest.mark.parametrize("marginal", [False, True], ids=["joint", "marginal"])
def test_the_right_posterior_passes_and_one_of_wrong_width_fails(dimension, marginal):
    perfect = perfect_rmse(K)
    errors = {
        width: tarp(*posterior(dimension, width=width), rng=np.random.default_rng(5), num_repeats=5, marginal=marginal)
        for width in (0.8, 1.0, 1.25)
    }
    assert np.max(errors[1.0].rmse.mean) < perfect.upper
    for width in (0.8, 1.25):
        assert np.min(errors[width].rmse.mean) > 1.5 * perfect.upper, width
    # and in the right direction: narrow posteriors cover too little at high levels, wide ones too much
    index = int(np.argmin(np.abs(LEVELS - 0.9)))
    assert np.all(errors[0.8].mean[index] < 0.9 - 3 * np.sqrt(0.9 * 0.1 / K))
    assert np.all(errors[1.25].mean[index] > 0.9 + 3 * np.sqrt(0.9 * 0.1 / K))


def test_power_and_size_over_many_seeds():
    """One draw of references, 40 sets of K: the right posterior is above the band in 5 % of them, wrong ones always."""
    upper = perfect_rmse(K).upper
    above = dict.fromkeys((0.8, 1.0, 1.25), 0)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        truths, normal = rng.normal(size=(K, 1)), rng.normal(size=(K, S, 1))
        for width in above:
            above[width] += tarp(width * normal, truths, rng=rng, num_repeats=1).rmse.mean > upper
    assert above[1.0] <= 6  # binomial(40, 0.05): 6 or fewer with probability 0.997
    assert above[0.8] == above[1.25] == 40


@pytest.mark.parametrize("dimension", [1, 2])
def test_a_biased_centre_fails(dimension):
    upper = perfect_rmse(K).upper
    for bias in (-0.75, 0.75):
        assert (
            tarp(*posterior(dimension, bias=bias), rng=np.random.default_rng(2), num_repeats=5).rmse.mean > 1.5 * upper
        )


def test_a_small_bias_needs_references_on_one_side():
    """Around the posterior the two sides cancel, to first order, for any K; the documentation says so."""
    draws, truths = posterior(1, bias=0.3)
    right, _ = posterior(1)
    upper = perfect_rmse(K).upper
    assert tarp(draws, truths, rng=np.random.default_rng(2)).rmse.mean < 1.2 * upper
    assert tarp(draws, truths, references=one_side(draws)).rmse.mean > 4 * upper
    assert tarp(right, truths, references=one_side(right)).rmse.mean < upper


def test_the_prior_is_always_covered_by_central_intervals_but_not_by_references_that_see_the_data():
    """Why reference points may depend on what was released: the prior as a posterior passes without that."""
    means, _, truths, _ = conjugate(1, 0)
    prior = np.random.default_rng(3).normal(size=(K, S, 1))
    upper = perfect_rmse(K).upper
    assert tarp(prior, truths, rng=np.random.default_rng(4)).rmse.mean < upper
    assert tarp(prior, truths, rng=np.random.default_rng(4), centre=means, span=1.0).rmse.mean > 4 * upper


def test_ranks_and_coverage_are_the_formulas():
    rng = np.random.default_rng(0)
    samples, truths, references = rng.normal(size=(7, 50, 3)), rng.normal(size=(7, 3)), rng.normal(size=(2, 7, 3))
    result = tarp(samples, truths, references)
    marginal = tarp(samples, truths, references, marginal=True)
    for r in range(2):
        for k in range(7):
            distance = np.linalg.norm(samples[k] - references[r, k], axis=1)
            assert result.ranks[r, k] == np.mean(distance < np.linalg.norm(truths[k] - references[r, k]))
            per_parameter = np.abs(samples[k] - references[r, k]) < np.abs(truths[k] - references[r, k])
            np.testing.assert_array_equal(marginal.ranks[r, k], per_parameter.mean(axis=0))
        for level, covered in zip(LEVELS, result.coverage[r], strict=True):
            assert covered == np.mean(result.ranks[r] < level)
    errors = np.sqrt(np.mean((result.coverage - LEVELS) ** 2, axis=1))
    np.testing.assert_allclose(result.rmse, (errors.mean(), errors.std(ddof=1)))
    np.testing.assert_allclose(result.std, result.coverage.std(axis=0, ddof=1))
    assert marginal.coverage.shape == (2, 21, 3)
    assert marginal.rmse.mean.shape == marginal.rmse.std.shape == (3,)
    assert (result.num_posteriors, result.num_dropped) == (7, 0)


def test_ranks_do_not_depend_on_the_block_of_posteriors(monkeypatch):
    whole = tarp(*posterior(2), rng=np.random.default_rng(0), num_repeats=2)
    monkeypatch.setattr(sys.modules["dpvi.evaluate.tarp"], "_BLOCK", 5000)
    np.testing.assert_array_equal(tarp(*posterior(2), rng=np.random.default_rng(0), num_repeats=2).ranks, whole.ranks)


def test_ranks_survive_a_large_offset():
    """Differences are taken before squares: 10⁶ added to everything changes nothing."""
    rng = np.random.default_rng(0)
    samples, truths, references = rng.normal(size=(20, 50, 3)), rng.normal(size=(20, 3)), rng.normal(size=(20, 3))
    moved = tarp(samples + 1e6, truths + 1e6, references + 1e6)
    np.testing.assert_array_equal(moved.ranks, tarp(samples, truths, references).ranks)


def test_reference_points_fill_the_box_around_the_centre():
    """With the truth at the mean, f = Φ(2|u|) − ½ for a reference at mean + u sd: its mean tells the span of u."""
    rng = np.random.default_rng(1)
    samples = rng.normal(size=(200, 1000, 1)) * 2 + 5
    middle = samples.mean(axis=1)

    def mean_rank(span: float) -> tuple[float, float]:
        per_posterior = tarp(samples, middle, rng=rng, num_repeats=100, span=span).ranks.mean(axis=0)
        return float(per_posterior.mean()), float(per_posterior.std() / np.sqrt(200))

    expected = np.mean(ndtr(2 * np.linspace(0, 4, 4001)) - 0.5)
    found, error = mean_rank(4.0)
    assert abs(found - expected) < 4 * error
    for span in (3.0, 5.0):
        found, error = mean_rank(span)
        assert abs(found - expected) > 4 * error
    default = tarp(samples, middle, rng=np.random.default_rng(0)).ranks
    np.testing.assert_array_equal(default, tarp(samples, middle, rng=np.random.default_rng(0), span=4.0).ranks)
    far = tarp(samples, middle, rng=rng, centre=np.full((200, 1), 1000.0), num_repeats=2).ranks
    assert np.all(np.abs(far - 0.5) < 0.05)  # the share of draws above their mean


def test_levels_are_the_published_grid():
    assert len(LEVELS) == 21
    np.testing.assert_array_equal(LEVELS, [0.001, *[float(f"{i * 0.05:.2f}") for i in range(1, 20)], 0.999])
    assert coverage_rmse(np.zeros((1, 21)), LEVELS)[0] == pytest.approx(0.58444, abs=1e-5)  # Table 2's "584 ± 0"
    assert coverage_rmse(np.full((1, 21), 0.5), LEVELS)[0] == pytest.approx(0.3026, abs=1e-4)


@pytest.mark.parametrize(("num_posteriors", "mean", "upper"), [(500, 0.0165, 0.030), (250, 0.0233, 0.042)])
def test_the_perfect_rmse_is_the_published_one(num_posteriors, mean, upper):
    perfect = perfect_rmse(num_posteriors)
    assert perfect.mean == pytest.approx(mean, abs=4 * perfect.std / np.sqrt(20_000) + 5e-5)
    assert perfect.upper == pytest.approx(upper, abs=5e-4)


def test_the_perfect_rmse_is_that_of_uniform_ranks():
    """Against plain simulation, at levels that are not symmetric, for one draw and for the mean over redraws."""
    levels = np.array([0.1, 0.3, 0.62, 0.95])
    rng = np.random.default_rng(0)
    uniform = rng.random((4000, 1, 100))
    flipped = np.where(rng.random((4000, 5, 100)) < 0.5, uniform, 1 - uniform)
    covered = np.stack([np.mean(flipped < level, axis=-1) for level in levels], axis=1)  # (4000, 4, 5)
    errors = coverage_rmse(covered, levels)
    for repeats, values in ((1, errors[:, 0]), (5, errors.mean(axis=1))):
        perfect = perfect_rmse(100, levels, num_repeats=repeats)
        assert perfect.mean == pytest.approx(values.mean(), abs=5 * values.std() / np.sqrt(4000))
        assert perfect.std == pytest.approx(values.std(), rel=5 / np.sqrt(4000))
        assert perfect.upper == pytest.approx(np.quantile(values, 0.95), rel=0.04)
    assert np.isclose(perfect.mean, perfect_rmse(100, levels).mean, rtol=0.02)


def test_the_band_of_the_mean_over_redraws_holds_for_real_posteriors():
    """60 sets of 200 Gaussian posteriors, 20 redraws each: mean RMSE as simulated, its spread no larger."""
    rng = np.random.default_rng(0)
    means = np.array(
        [tarp(rng.normal(size=(200, 200, 2)), rng.normal(size=(200, 2)), rng=rng).rmse.mean for _ in range(60)]
    )
    perfect = perfect_rmse(200, num_repeats=20)
    assert means.mean() == pytest.approx(perfect.mean, abs=4 * perfect.std / np.sqrt(60))
    assert np.mean(means > perfect.upper) <= 0.15  # 5 % of 60 is 3; more than 9 has probability 0.001
    assert means.std() < 1.2 * perfect.std < 0.6 * perfect_rmse(200).std


def test_posteriors_that_are_not_finite_are_counted_never_ignored():
    samples, truths = (array[:100].copy() for array in posterior(2))
    samples[3, 7, 1] = np.nan
    samples[50, 0, 0] = np.inf
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="2 of 100 posteriors"):
        tarp(samples, truths, rng=rng)
    result = tarp(samples, truths, rng=np.random.default_rng(0), nonfinite="drop", centre=np.zeros((100, 2)))
    assert (result.num_dropped, result.num_posteriors) == (2, 98)
    kept = np.delete(np.arange(100), [3, 50])
    same = tarp(samples[kept], truths[kept], rng=np.random.default_rng(0), centre=np.zeros((98, 2)))
    np.testing.assert_array_equal(result.ranks, same.ranks)
    given = np.random.default_rng(1).normal(size=(100, 2))
    np.testing.assert_array_equal(
        tarp(samples, truths, given, nonfinite="drop").ranks, tarp(samples[kept], truths[kept], given[kept]).ranks
    )
    with pytest.raises(ValueError, match="100 of 100"):
        tarp(np.full_like(samples, np.nan), truths, rng=rng, nonfinite="drop")


def test_a_point_mass_covers_nothing():
    result = tarp(np.zeros((50, 10, 2)), np.ones((50, 2)), rng=np.random.default_rng(0), num_repeats=2)
    assert np.all(result.coverage == 0)
    assert result.rmse == pytest.approx((0.58444, 0.0), abs=1e-5)


def test_single_precision_draws_and_a_single_repeat():
    samples, truths = posterior(2)
    result = tarp(samples.astype(np.float32), truths, rng=np.random.default_rng(0), num_repeats=1)
    assert result.rmse.mean < perfect_rmse(K).upper
    assert np.isnan(result.rmse.std)
    assert np.all(np.isnan(result.std))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({}, TypeError, "rng="),
        ({"references": np.zeros((3, 2))}, ValueError, r"\(K, d\)"),
        ({"references": np.full((4, 2), np.nan)}, ValueError, "finite"),
        ({"levels": [0.5, 0.5], "rng": 0}, ValueError, "increase strictly"),
        ({"levels": [0.0, 0.5], "rng": 0}, ValueError, r"inside \(0, 1\)"),
        ({"centre": np.zeros(2), "rng": 0}, ValueError, "centre"),
        ({"num_repeats": 0, "rng": 0}, ValueError, "num_repeats"),
        ({"span": 0.0, "rng": 0}, ValueError, "span"),
        ({"nonfinite": "ignore", "rng": 0}, ValueError, "'raise' or 'drop'"),
    ],
)
def test_errors_say_what_to_change(arguments, error, match):
    if "rng" in arguments:
        arguments = {**arguments, "rng": np.random.default_rng(0)}
    with pytest.raises(error, match=match):
        tarp(np.ones((4, 5, 2)), np.zeros((4, 2)), **arguments)


def test_shapes_are_checked():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"\(K, S, d\)"):
        tarp(np.ones((4, 5)), np.ones(4), rng=rng)
    with pytest.raises(ValueError, match=r"\(K, S, d\)"):
        tarp(np.ones((5, 4, 2)), np.ones((4, 2)), rng=rng)  # the tarp package's order of axes
    with pytest.raises(ValueError, match="truths must be finite"):
        tarp(np.ones((4, 5, 2)), np.full((4, 2), np.nan), rng=rng)
    with pytest.raises(ValueError, match="at least one"):
        perfect_rmse(0)
