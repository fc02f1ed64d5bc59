"""What a release holds: bounded sums, tight sensitivities, and noise of the stated law."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from support.statistics import LEVEL

from dpvi.privacy.gaussian import gaussian_delta
from studies.baselines.bernstein_sheldon import (
    GaussianMechanism,
    LaplaceMechanism,
    Sensitivity,
    release_bernoulli,
    release_categorical,
    release_exponential,
    release_regression,
    stack_releases,
)
from studies.baselines.bernstein_sheldon.mechanism import add_noise
from studies.baselines.bernstein_sheldon.regression_release import (
    fourth_sensitivity,
    fourth_sums,
    regression_sensitivity,
    regression_sums,
)

LAPLACE, GAUSSIAN = LaplaceMechanism(0.5), GaussianMechanism(0.5, 1e-5)


class Silent:
    """No noise, to see the sums."""

    def calibrate(self, sensitivities):
        return LaplaceMechanism(1.0).calibrate(sensitivities)

    def standard_noise(self, words):
        return jnp.zeros((words.shape[0] // 2, *words.shape[1:]))


def assert_largest(changes, sensitivity: Sensitivity) -> None:
    """No change exceeds the sensitivity in either norm, and the largest comes within 2 % of both."""
    for found, allowed in (
        (np.abs(changes).sum(axis=1), sensitivity.l1),
        (np.linalg.norm(changes, axis=1), sensitivity.l2),
    ):
        assert found.max() <= allowed * (1 + 1e-9)
        assert found.max() >= 0.98 * allowed


def test_regression_sensitivities_bound_any_record_and_are_nearly_reached():
    random = np.random.default_rng(0)
    bounds, limit = np.array([1.0, 3.0, 0.5]), 2.0
    towards_corners = np.sign(random.normal(size=(20_000, 4))) * random.uniform(0.9, 1.2, (20_000, 4))
    records = np.concatenate([towards_corners, random.normal(size=(2000, 4))]) * np.append(bounds, limit) * 1.05
    base = random.normal(size=(30, 4))

    def released(rows):
        release = release_regression(rows[:, :3], rows[:, 3], bounds, limit, Silent(), fourth_moments=True, seed=1)
        return release.sums, release.fourth_moments * len(rows)

    without = released(base)
    withs = [released(np.vstack([base, record])) for record in records[::150]]
    for index, sensitivity in enumerate((regression_sensitivity(bounds, limit), fourth_sensitivity(bounds))):
        changes = np.array([one[index] - without[index] for one in withs])
        assert_largest(changes, sensitivity)
        with pytest.raises(AssertionError):  # the published code's kind of mistake, in either direction
            assert_largest(changes, Sensitivity(sensitivity.l1 * 0.95, sensitivity.l2))
        with pytest.raises(AssertionError):
            assert_largest(changes, Sensitivity(sensitivity.l1 * 1.05, sensitivity.l2))


def test_the_sensitivity_is_the_written_out_sum():
    bounds, limit = np.array([1.0, 3.0, 0.5]), 2.0
    pairs = sum(bounds[i] * bounds[j] for i in range(3) for j in range(i, 3))
    expected = pairs + bounds.sum() + bounds.sum() * limit + limit + limit**2
    np.testing.assert_allclose(regression_sensitivity(bounds, limit).l1, expected)


@pytest.mark.parametrize(
    ("release", "records", "size"),
    [
        (lambda x: release_bernoulli(x, Silent()), np.array([0.0, 1.0, 7.0, -3.0, np.nan]), 1.0),
        (lambda x: release_categorical(x, 3, Silent()), np.array([0.0, 1.0, 2.0, 9.0, np.nan]), 1.0),
        (
            lambda x: release_exponential(x, (0.1, 4.0), Silent()),
            np.array([0.0, 3.99, 80.0, -2.0, np.inf, np.nan]),
            4.0,
        ),
    ],
    ids=["bernoulli", "categorical", "exponential"],
)
def test_one_record_moves_a_sum_by_its_bound_whatever_it_holds(release, records, size):
    base = np.array([1.0, 0.0, 1.0])
    changes = np.array([release(np.append(base, record)).sums - release(base).sums for record in records])
    assert_largest(changes, Sensitivity(size, size))
    assert release(base).noise.scale == size  # at ε = 1


def test_eleven_regressors_have_77_sums():
    x = np.column_stack([np.zeros((3, 10)), np.ones(3)])
    assert regression_sums(x, np.zeros(3)).size == 77
    assert fourth_sums(x).size == 1000


def test_gaussian_noise_of_one_release_or_two_spends_the_budget():
    for count in (1, 2):
        noises = GAUSSIAN.calibrate([Sensitivity(9.0, 3.0)] * count)
        signal = np.sqrt(count) * 3.0 / noises[0].scale
        np.testing.assert_allclose(gaussian_delta(signal, 0.5), 1e-5, rtol=1e-3)
    assert [noise.scale for noise in LAPLACE.calibrate([Sensitivity(9.0, 3.0)] * 2)] == [36.0, 36.0]


@pytest.mark.parametrize(
    ("mechanism", "law"), [(LAPLACE, scipy.stats.laplace), (GAUSSIAN, scipy.stats.norm)], ids=["laplace", "gaussian"]
)
def test_noise_has_the_stated_law_and_wrong_scales_are_caught(mechanism, law):
    ((noisy, noise),) = add_noise([np.full(40_000, 5.0)], [Sensitivity(2.0, 2.0)], mechanism, seed=3)
    unit = (noisy - 5.0) / noise.scale
    assert scipy.stats.kstest(unit, law.cdf).pvalue > LEVEL
    for wrong in (0.9, 1.1):
        assert scipy.stats.kstest(wrong * unit, law.cdf).pvalue < LEVEL


def test_extreme_words_give_finite_noise(x64):
    words = jnp.array([0, 2**32 - 1, 2**31, 0, 2**32 - 1, 0], jnp.uint32)
    assert np.all(np.isfinite(LAPLACE.standard_noise(words)))


def test_seeds_repeat_noise_and_no_seed_does_not():
    records = np.ones(10)
    sums = [float(release_bernoulli(records, LAPLACE, seed=seed).sums[0]) for seed in (1, 1, 2, None, None)]
    assert sums[0] == sums[1]
    assert len(set(sums)) == 4
    x, y = np.ones((4, 2)), np.ones(4)
    both = release_regression(x, y, 1.0, 1.0, GAUSSIAN, fourth_moments=True, seed=1)
    assert not np.any(np.isin(both.fourth_moments * 4 - 4, both.sums - 4))  # two vectors never share noise


def test_guarantees_say_what_is_protected():
    assert LAPLACE.guarantee.delta == 0
    assert "number of records is declared public" in str(GAUSSIAN.guarantee)


def test_a_stack_is_a_release_with_a_leading_axis():
    releases = [release_bernoulli(np.ones(10), LAPLACE, seed=seed) for seed in range(3)]
    stacked = stack_releases(releases)
    assert stacked.sums.shape == (3, 1)
    assert jax.tree.leaves(stacked.noise)[0].shape == (3,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: release_exponential(np.ones(3), (2.0, 1.0), LAPLACE), "lower < upper"),
        (lambda: release_categorical(np.ones(3), 1, LAPLACE), "at least 2"),
        (lambda: release_bernoulli(np.ones((3, 2)), LAPLACE), "one number each"),
        (lambda: release_regression(np.ones((3, 2)), np.ones(4), 1.0, 1.0, LAPLACE), "same N"),
        (lambda: release_regression(np.ones((3, 2)), np.ones(3), [1.0, -1.0], 1.0, LAPLACE), "positive number"),
        (lambda: LaplaceMechanism(0.0), "epsilon"),
        (lambda: GaussianMechanism(1.0, 0.0), "delta"),
        (lambda: stack_releases([]), "at least one"),
    ],
)
def test_what_cannot_be_released_is_refused_with_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
