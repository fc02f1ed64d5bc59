"""Combining rules: by hand on small numbers, and their coverage where the posterior is exact."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from support.statistics import assert_rates

from dpvi.synthetic import pool

NUM_STUDIES, NUM_DATASETS, SIZE = 2000, 100, 100


def gaussian_mean():
    """Prior N(0, 1), records N(μ, 1): posterior N(m, v), synthetic sets as large as the original."""
    random = np.random.default_rng(1)
    truth = random.normal(size=NUM_STUDIES)
    v = 1 / (1 + SIZE)
    center = random.normal(truth, SIZE**-0.5) * SIZE * v
    drawn = random.normal(center, v**0.5, (NUM_DATASETS, NUM_STUDIES))
    estimates = random.normal(drawn, SIZE**-0.5)
    variances = random.chisquare(SIZE - 1, drawn.shape) / (SIZE - 1) / SIZE
    return truth, estimates, variances


def beta_bernoulli():
    """Prior Beta(10, 10), records Bernoulli(p): posterior Beta, synthetic sets as large as the original."""
    random = np.random.default_rng(2)
    truth = random.beta(10, 10, NUM_STUDIES)
    successes = random.binomial(SIZE, truth)
    drawn = random.beta(10 + successes, 10 + SIZE - successes, (NUM_DATASETS, NUM_STUDIES))
    estimates = random.binomial(SIZE, drawn) / SIZE
    return truth, estimates, estimates * (1 - estimates) / SIZE


def covered(truth, lower, upper) -> int:
    return int(np.sum((lower <= truth) & (truth <= upper)))


@pytest.mark.parametrize("study", [gaussian_mean, beta_bernoulli])
@pytest.mark.parametrize("probability", [0.5, 0.95])
def test_intervals_from_synthetic_data_cover(study, probability):
    truth, estimates, variances = study()
    pooled = pool(estimates, variances)
    assert_rates(covered(truth, *pooled.interval(probability)), NUM_STUDIES, probability)
    for wrong in ("large", "imputation"):
        interval = pool(estimates, variances, rule=wrong).interval(probability)
        assert covered(truth, *interval) > NUM_STUDIES * probability
        with pytest.raises(AssertionError):
            assert_rates(covered(truth, *interval), NUM_STUDIES, probability)
    one_set = scipy.stats.norm.ppf((1 + probability) / 2) * np.sqrt(variances[0])
    with pytest.raises(AssertionError):
        assert_rates(covered(truth, estimates[0] - one_set, estimates[0] + one_set), NUM_STUDIES, probability)


def large_sets(share: float = 1.0):
    """Sets of a hundred times the original size, from a posterior with ``share`` of the right standard deviation."""
    random = np.random.default_rng(4)
    v, large = 1 / (1 + SIZE), 100 * SIZE
    truth = random.normal(size=NUM_STUDIES)
    center = random.normal(truth, SIZE**-0.5) * SIZE * v
    drawn = random.normal(center, share * v**0.5, (NUM_DATASETS, NUM_STUDIES))
    estimates = random.normal(drawn, large**-0.5)
    return truth, estimates, np.full(estimates.shape, 1 / large)


@pytest.mark.parametrize("rule", ["synthetic", "large"])
def test_large_sets_need_no_subtraction(rule):
    """U is a hundredth of B, so both rules cover."""
    truth, estimates, variances = large_sets()
    assert_rates(covered(truth, *pool(estimates, variances, rule=rule).interval()), NUM_STUDIES, 0.95)


def test_a_rule_adds_no_honesty_to_a_posterior_that_is_too_narrow():
    """Half the posterior's spread, as without the privacy noise: intervals of half the width, and their coverage."""
    truth, estimates, variances = large_sets(share=0.5)
    found = covered(truth, *pool(estimates, variances).interval())
    half_width = 0.5 * scipy.stats.t.ppf(0.975, NUM_DATASETS - 1)
    assert_rates(found, NUM_STUDIES, 2 * scipy.stats.norm.cdf(half_width) - 1)
    with pytest.raises(AssertionError):
        assert_rates(found, NUM_STUDIES, 0.95)


def test_imputation_covers_for_imputed_data():
    """Half of the records missing at random and filled M times from the posterior predictive."""
    random = np.random.default_rng(5)
    kept, gone = SIZE // 2, SIZE // 2
    truth = random.normal(size=NUM_STUDIES)
    observed = random.normal(truth, kept**-0.5)
    filled = random.normal(random.normal(observed, kept**-0.5, (NUM_DATASETS, NUM_STUDIES)), gone**-0.5)
    estimates = (kept * observed + gone * filled) / SIZE
    variances = np.full(estimates.shape, 1 / SIZE)
    assert_rates(covered(truth, *pool(estimates, variances, rule="imputation").interval()), NUM_STUDIES, 0.95)
    with pytest.raises(AssertionError):
        assert_rates(covered(truth, *pool(estimates, variances).interval()), NUM_STUDIES, 0.95)


def test_rules_by_hand():
    estimates, variances = np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.3, 0.4])
    between, within, spread = 1.0, 0.3, 4 / 3
    expected = {
        "synthetic": (spread - within, 2 * (1 - within / spread) ** 2),
        "large": (spread, 2.0),
        "imputation": (spread + within, 2 * (1 + within / spread) ** 2),
    }
    for rule, (total, freedom) in expected.items():
        pooled = pool(estimates, variances, rule=rule, names=["mean"])
        np.testing.assert_allclose(pooled.estimate, [2.0])
        np.testing.assert_allclose([pooled.between[0], pooled.within[0]], [between, within])
        np.testing.assert_allclose(pooled.total_variance, [total])
        np.testing.assert_allclose(pooled.degrees_of_freedom, [freedom])
        half = scipy.stats.t.ppf(0.95, freedom) * np.sqrt(total)
        np.testing.assert_allclose(np.ravel(pooled.interval(0.9)), [2 - half, 2 + half])
        assert "mean" in str(pooled)


def test_a_variance_that_is_not_positive_is_replaced():
    estimates, variances = np.array([[1.0, 1.0], [1.1, 5.0]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    pooled = pool(estimates, variances)
    spread = 1.5 * estimates.var(axis=0, ddof=1)
    assert pooled.fell_back.tolist() == [True, False]
    np.testing.assert_allclose(pooled.total_variance, [spread[0] + 0.5, spread[1] - 0.5])
    np.testing.assert_allclose(pooled.degrees_of_freedom[0], (1 + 0.5 / spread[0]) ** 2)
    assert "not positive" in str(pooled)
    np.testing.assert_allclose(pool(estimates, variances, size_ratio=0.3).total_variance, [0.15, spread[1] - 0.5])
    constant = pool([2.0, 2.0], [0.0, 0.0])
    assert constant.total_variance[0] == 0
    assert not constant.fell_back[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"estimates": [1.0], "variances": [1.0]}, "at least two"),
        ({"estimates": [1.0, 2.0], "variances": [1.0]}, "equal shapes"),
        ({"estimates": [1.0, np.nan], "variances": [1.0, 1.0]}, "finite"),
        ({"estimates": [1.0, 2.0], "variances": [1.0, -1.0]}, "not negative"),
        ({"estimates": [1.0, 2.0], "variances": [1.0, 1.0], "rule": "magic"}, "'synthetic', 'large', 'imputation'"),
        ({"estimates": [1.0, 2.0], "variances": [1.0, 1.0], "names": ["a", "b"]}, "1 quantities"),
        ({"estimates": [1.0, 1.0], "variances": [1.0, 1.0], "size_ratio": 0.0}, "size_ratio"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(ValueError, match=words):
        pool(**arguments)
    with pytest.raises(ValueError, match="strictly between"):
        pool([1.0, 2.0], [0.1, 0.1]).interval(1.0)
