"""Scores against SciPy, closed forms and quadrature; the table against its parts."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats
from scipy.integrate import quad

from dpvi.evaluate import crps, crps_gaussian_mixture, interval_coverage, interval_width, log_score, perfect_rmse, tarp
from studies.coverage_tables import coverage_row, coverage_table

RNG = np.random.default_rng(0)
MEANS, SDS = RNG.normal(size=(4, 5, 2)), RNG.uniform(0.2, 2, (4, 5, 2))
TRUTHS = RNG.normal(size=(4, 2))
WEIGHTS = RNG.dirichlet(np.ones(5), size=4)


def test_the_log_score_of_a_mixture_is_scipys():
    expected = np.log(np.mean(scipy.stats.norm.pdf(TRUTHS[:, None], MEANS, SDS), axis=1))
    np.testing.assert_allclose(log_score((MEANS, SDS), TRUTHS), expected, rtol=1e-12)
    weighted = np.log(np.sum(WEIGHTS[..., None] * scipy.stats.norm.pdf(TRUTHS[:, None], MEANS, SDS), axis=1))
    np.testing.assert_allclose(log_score((MEANS, SDS), TRUTHS, weights=WEIGHTS), weighted, rtol=1e-12)
    one = log_score((MEANS, SDS), TRUTHS, weights=[0.0, 1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(one, scipy.stats.norm.logpdf(TRUTHS, MEANS[:, 1], SDS[:, 1]), rtol=1e-12)


def test_the_log_score_does_not_underflow():
    score = log_score((np.zeros((1, 3, 1)), np.full((1, 1, 1), 0.01)), [[10.0]])
    np.testing.assert_allclose(score, scipy.stats.norm.logpdf(10.0, 0, 0.01), rtol=1e-12)


def test_the_log_score_of_a_function_on_the_constrained_scale():
    """z ~ N(m, s²), θ = exp(z): the score of θ is that of the log-normal."""
    theta = np.exp(TRUTHS)
    expected = scipy.stats.lognorm.logpdf(theta, 0.7, scale=np.exp(0.3))
    for density in (lambda z: scipy.stats.norm.logpdf(z, 0.3, 0.7), (np.full((4, 1, 2), 0.3), np.full((1, 1, 1), 0.7))):
        np.testing.assert_allclose(log_score(density, np.log(theta), log_determinant=TRUTHS), expected, rtol=1e-12)


def test_the_log_score_prefers_the_truth():
    """Expected scores of N(0, w²) under N(0, 1): −log w − 1/(2w²) − ½ log 2π; widths 0.8 and 1.25 lose."""
    truths = np.random.default_rng(1).normal(size=(20_000, 1))
    scores = {w: log_score((np.zeros((20_000, 1, 1)), np.full((1, 1, 1), w)), truths)[:, 0] for w in (0.8, 1, 1.25)}
    for width, values in scores.items():
        expected = -np.log(width) - 0.5 / width**2 - 0.5 * np.log(2 * np.pi)
        assert abs(values.mean() - expected) < 4 * values.std() / np.sqrt(20_000)
        if width != 1:
            difference = scores[1] - values
            assert difference.mean() > 4 * difference.std() / np.sqrt(20_000)


def mixture_crps(k: int, i: int, weights: np.ndarray) -> float:
    """∫ (F(x) − 1[x ≥ θ])² dx by quadrature."""
    truth = TRUTHS[k, i]

    def cdf(x: float) -> float:
        return float(np.sum(weights * scipy.stats.norm.cdf(x, MEANS[k, :, i], SDS[k, :, i])))

    low, _ = quad(lambda x: cdf(x) ** 2, -15, truth, epsabs=1e-10)
    high, _ = quad(lambda x: (1 - cdf(x)) ** 2, truth, 15, epsabs=1e-10)
    return low + high


def test_the_crps_of_a_mixture_is_its_integral():
    score = crps_gaussian_mixture(MEANS, SDS, TRUTHS)
    weighted = crps_gaussian_mixture(MEANS, SDS, TRUTHS, WEIGHTS)
    for k in range(4):
        for i in range(2):
            assert score[k, i] == pytest.approx(mixture_crps(k, i, np.full(5, 0.2)), abs=1e-8)
            assert weighted[k, i] == pytest.approx(mixture_crps(k, i, WEIGHTS[k]), abs=1e-8)


def test_the_crps_of_one_gaussian_is_the_textbook_formula():
    z = (TRUTHS - MEANS[:, 0]) / SDS[:, 0]
    expected = SDS[:, 0] * (z * (2 * scipy.stats.norm.cdf(z) - 1) + 2 * scipy.stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(crps_gaussian_mixture(MEANS[:, :1], SDS[:, :1], TRUTHS), expected, rtol=1e-12)


def test_the_crps_of_point_masses():
    """Equal masses at 0 and 1, truth 3: 2.5 − ½·½."""
    np.testing.assert_allclose(crps_gaussian_mixture([[[0.0], [1.0]]], np.zeros((1, 1, 1)), [[3.0]]), [[2.25]])
    np.testing.assert_allclose(crps_gaussian_mixture([[[0.0]]], np.zeros((1, 1, 1)), [[3.0]]), [[3.0]])


def test_the_sample_crps_is_its_double_sum():
    draws = np.random.default_rng(1).normal(size=(3, 7, 2))
    truths = np.random.default_rng(2).normal(size=(3, 2))
    pairs = np.abs(draws[:, :, None] - draws[:, None]).sum(axis=(1, 2)) / (2 * 7 * 6)
    np.testing.assert_allclose(crps(draws, truths), np.abs(draws - truths[:, None]).mean(axis=1) - pairs, rtol=1e-12)


def test_the_sample_crps_is_unbiased_even_with_three_draws():
    """Averaged over 40,000 sets of three draws it is the closed form; dividing by S² instead would miss by 0.19."""
    draws = np.random.default_rng(3).normal(size=(40_000, 3, 1))
    truths = np.full((40_000, 1), 0.4)
    values = crps(draws, truths)
    exact = crps_gaussian_mixture([[[0.0]]], [[[1.0]]], [[0.4]]).item()
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean() - exact) < 4 * error
    biased = np.abs(draws - 0.4).mean(axis=1) - np.abs(draws[:, :, None] - draws[:, None]).mean(axis=(1, 2)) / 2
    assert abs(biased.mean() - exact) > 20 * error


def test_intervals_of_gaussian_posteriors():
    rng = np.random.default_rng(4)
    truths, normal = rng.normal(size=(2000, 2)), rng.normal(size=(2000, 500, 2))
    error = np.sqrt(0.9 * 0.1 / 2000)
    exact = 2 * scipy.stats.norm.ppf(0.95)
    assert np.all(np.abs(interval_coverage(normal, truths, 0.9) - 0.9) < 4 * error + 1 / 500)
    assert np.all(np.abs(interval_width(normal, 0.9).mean(axis=0) / exact - 1) < 0.01)
    for width in (0.8, 1.25):
        expected = 2 * scipy.stats.norm.cdf(width * exact / 2) - 1
        found = interval_coverage(width * normal, truths, 0.9)
        assert np.all(np.abs(found - expected) < 4 * error + 1 / 500)
        assert np.all(np.abs(found - 0.9) > 4 * error)


def table_of(widths):
    rng = np.random.default_rng(6)
    truths, normal = rng.normal(size=(1000, 2)), rng.normal(size=(1000, 300, 2))
    rows = []
    for width in widths:
        draws = width * normal
        scores = log_score((np.zeros((1000, 1, 2)), np.full((1, 1, 1), width)), truths)
        rows.append(coverage_row(f"width {width}", tarp(draws, truths, rng=rng), draws, truths, scores))
    return coverage_table(rows)


def test_the_table_tells_the_right_posterior_from_the_wrong_ones():
    table = table_of([0.5, 1.0, 2.0])
    content = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert [row["within_band"] for row in content["rows"]] == [False, True, False]
    assert [row["within_repeated_band"] for row in content["rows"]] == [False, True, False]
    assert [row["width"] > 3 for row in content["rows"]] == [False, True, True]
    assert np.argmax([row["log_score"] for row in content["rows"]]) == 1
    assert content["rows"][1]["coverage"] == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 1000) + 1 / 300)
    assert content["rows"][1]["sd"] == pytest.approx(1, abs=0.01)
    assert content["perfect"]["upper"] == perfect_rmse(1000).upper
    assert content["perfect_repeated"]["upper"] == perfect_rmse(1000, num_repeats=20).upper


def test_the_markdown_table_ends_with_the_perfect_posterior():
    table = table_of([1.0])
    lines = table.to_markdown().splitlines()
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| width 1.0 | 0.0")
    perfect = table.perfect
    assert f"{perfect.mean:.4f} ± {perfect.std:.4f}, 95 % below {perfect.upper:.4f} (mean of 20: below" in lines[3]
    assert "| 0.950 ± 0.014 |" in lines[3]


def test_a_row_reports_dropped_posteriors_and_an_absent_score():
    rng = np.random.default_rng(6)
    truths, draws = rng.normal(size=(60, 2)), rng.normal(size=(60, 50, 2))
    draws[7] = np.nan
    scores = np.where(np.arange(60)[:, None] == 7, np.nan, np.full((60, 2), -1.0))
    result = tarp(draws, truths, rng=rng, num_repeats=1, nonfinite="drop")
    row = coverage_row("failing", result, draws, truths, scores)
    assert (row.num_posteriors, row.num_dropped, row.log_score) == (59, 1, -1.0)
    table = coverage_table([row._replace(log_score=None)])
    assert "| – | 59 (1 dropped) |" in table.to_markdown()
    content = table.to_dict()
    assert content["rows"][0]["log_score"] is content["rows"][0]["rmse_std"] is None
    assert content["perfect"]["num_posteriors"] == 59
    with pytest.raises(ValueError, match="59 posteriors, but samples has 58"):
        coverage_row("other", result, draws[1:], truths[1:])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: log_score((MEANS, np.zeros((4, 5, 2))), TRUTHS), "point mass"),
        (lambda: log_score((MEANS, SDS), TRUTHS[:3]), r"\(K, M, d\)"),
        (lambda: log_score((np.where(np.arange(4) == 2, np.nan, 0)[:, None, None] + MEANS, SDS), TRUTHS), "1 of 4"),
        (lambda: log_score((MEANS, SDS), TRUTHS, weights=np.ones(5)), "sum to 1"),
        (lambda: log_score(lambda z: z.sum(axis=1), TRUTHS), "marginal log densities"),
        (lambda: crps_gaussian_mixture(MEANS, -SDS, TRUTHS), "negative"),
        (lambda: crps(np.zeros((4, 1, 2)), TRUTHS), "at least two"),
        (lambda: crps(np.zeros((3, 5, 2)), TRUTHS), "truths must have shape"),
        (lambda: crps(np.full((4, 5, 2), np.nan), TRUTHS), "4 of 4"),
        (lambda: interval_width(np.zeros((4, 5))), r"\(K, S, d\)"),
        (lambda: interval_width(np.zeros((4, 5, 2)), 1.0), "strictly between"),
        (lambda: interval_coverage(np.zeros((4, 5, 2)), np.full((4, 2), np.nan)), "truths must be finite"),
        (lambda: coverage_table([]), "at least one row"),
    ],
)
def test_errors_say_what_is_wrong(call, match):
    with pytest.raises(ValueError, match=match):
        call()
