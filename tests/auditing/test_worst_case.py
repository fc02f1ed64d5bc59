"""The worst case searched for: all subsets of small data sets through the mechanism, and tests of these tests.

Data sets have three records with values from a Halton sequence and from a grid of extremes. Every subset is compared
with every subset that has one record more: exactly, as sums without noise, and statistically, as what is released.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from harness.audit_faults import numbers
from scipy.stats import norm, qmc
from support.statistics import assert_close, assert_variance

from dpvi.auditing.bounds import choose_test, count, judged
from dpvi.auditing.mechanism import noisy_sums
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.privacy.trade_off import trade_off

CLIP = 1.5
EXTREMES = np.array([0.0, 1e-30, 0.1, CLIP, -CLIP, 3.0, -1e4, 1e18, 3e38, np.inf, np.nan])
OTHER_THAN_NONE = np.zeros((1, 2))  # a record that adds nothing, because there is no empty data set


def plan_of(noise_multiplier: float, sampling_rate: float) -> Plan:
    release = GaussianRelease("gradients", sampling_rate, 1, noise_multiplier, CLIP)
    return Plan(1.0, 1e-5, (release,), "a label for tests")


def data_sets() -> list[np.ndarray]:
    halton = 8 * CLIP * (qmc.Halton(2, scramble=False).random(13)[1:] - 0.5)
    random = np.random.default_rng(1)
    return [*halton.reshape(4, 3, 2), *random.choice(EXTREMES, (8, 3, 2))]


def neighbours(records: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every subset beside every subset with one more record."""
    pairs = []
    for size in range(3):
        for subset in combinations(range(3), size):
            for one_more in set(range(3)) - set(subset):
                larger = sorted({*subset, one_more})
                pairs.append(tuple(np.concatenate([OTHER_THAN_NONE, records[list(s)]]) for s in (subset, larger)))
    return pairs


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_no_record_moves_a_sum_by_more_than_the_clip_norm(precision, request):
    if precision == "float64":
        request.getfixturevalue("x64")
    silent = plan_of(1e-9, 1.0)  # so little noise that the sum shows
    moves = [
        np.linalg.norm(noisy_sums(silent, larger, 1, 1, 1) - noisy_sums(silent, smaller, 1, 1, 1))
        for records in data_sets()
        for smaller, larger in neighbours(records)
    ]
    assert len(moves) == 12 * 12
    assert CLIP * (1 - 1e-3) < max(moves) <= CLIP * (1 + 1e-6)
    twice = numbers(clip=2.0)["mechanism"]
    records = np.array([[3.0, 4.0]])
    assert np.linalg.norm(twice(silent, records, 1, 1, 1)) > CLIP * 1.9  # the same look at a wrong clip norm


def told_apart(mechanism, plan, smaller, larger, trials, seed, error) -> bool:
    """Whether two data sets are told apart better than the plan allows, along the direction that parts them best.

    The direction comes from the trials that also choose the threshold; ``error`` is the probability of a false alarm.
    """
    outputs = [mechanism(plan, data, seed + i, trials, 1)[:, 0] for i, data in enumerate((smaller, larger))]
    held_out = [each[: trials // 4] for each in outputs]
    direction = held_out[1].mean(axis=0) - held_out[0].mean(axis=0)
    choosing, judging = judged({"direction": (outputs[0] @ direction, outputs[1] @ direction)})
    curve = trade_off(plan.releases)
    name, threshold = choose_test(choosing, {"direction": curve}, 1 - error)
    alpha, beta = count(judging[name], threshold).upper_rates(1 - error)
    return bool(curve.false_negative_rate(alpha) > beta)


@pytest.mark.parametrize("records", [data_sets()[0], np.array([[9.0, 0.0], [-9.0, 0.0], [0.0, np.inf]])])
def test_no_neighbours_are_told_apart_better_than_promised(records):
    """5,000 trials a side for each of 12 pairs, false alarm below 1e-4 in all; clipping to 1.5 C must be found."""
    plan, pairs = plan_of(1.0, 0.5), neighbours(records)
    for number, (smaller, larger) in enumerate(pairs):
        assert not told_apart(noisy_sums, plan, smaller, larger, 5_000, 100 * number, 1e-4 / len(pairs))
    wrong = numbers(clip=1.5, noise=1 / 1.5)["mechanism"]
    assert any(told_apart(wrong, plan, *pair, 5_000, 100 * i, 1e-4 / 12) for i, pair in enumerate(pairs[:3]))


SAMPLES = 30_000
SQUARED_ERROR = 1.0625


def test_the_noise_is_as_planned_and_variances_six_per_cent_off_are_rejected():
    """Two-sided test of the variance, 30,000 released numbers: false alarm 1e-4, a miss of 6.25 % below 1e-3.

    The standard error of a normal variance is √(2/n) = 0.0082, so 6.25 % are 7.6 of them: 3.9 are allowed, and the
    other 3.7 are missed with probability 1e-4.
    """
    plan = plan_of(2.0, 1.0)

    def released(squared: float) -> np.ndarray:
        changed = replace(plan, releases=(replace(plan.gradients, noise_multiplier=2.0 * squared**0.5),))
        return noisy_sums(changed, OTHER_THAN_NONE, 21, SAMPLES // 2, 1).ravel() / plan.noise_scale

    assert norm.sf(0.0625 / (2 / SAMPLES) ** 0.5 - norm.isf(5e-5)) < 1e-3
    assert_variance(released(1.0), 1.0)
    for wrong in (SQUARED_ERROR, 1 / SQUARED_ERROR):
        with pytest.raises(AssertionError, match="standard errors"):
            assert_variance(released(wrong), 1.0)


def test_sums_are_centred_and_a_shift_of_a_twenty_seventh_of_the_noise_is_rejected():
    """Two-sided test of the mean, 40,000 released numbers: false alarm 1e-4, a shift of 0.0375 deviations is seen."""
    plan, samples = plan_of(2.0, 1.0), 40_000
    record = np.array([[0.4, 0.0]])
    released = noisy_sums(plan, record, 22, samples, 1)[:, 0, 0] / plan.noise_scale
    expected, standard_error = 0.4 / plan.noise_scale, samples**-0.5
    assert norm.sf(0.0375 / standard_error - norm.isf(5e-5)) < 1e-3
    assert_close(released.mean(), expected, standard_error)
    for shift in (0.0375, -0.0375):
        with pytest.raises(AssertionError, match="standard errors"):
            assert_close(released.mean(), expected + shift, standard_error)
