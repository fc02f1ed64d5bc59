"""Calibration: the issue's table, the safe side, round trips, other releases in the plan."""

from __future__ import annotations

import math

import pytest

from dpvi.declared.plan import GaussianRelease
from dpvi.privacy import accounting, noise_multiplier
from dpvi.privacy.calibration import RELATIVE_TOLERANCE, release_noise_multiplier, smallest_safe
from dpvi.privacy.gaussian import gaussian_epsilon

TABLE = [
    (0.1, 1e-5, 0.1, 10_000, "add_remove", 307.510),
    (0.3, 1e-5, 0.1, 10_000, "add_remove", 112.397),
    (1.0, 1e-5, 0.1, 10_000, "add_remove", 37.3279),
    (1.0, 1 / 30162, 0.01, 400_000, "add_remove", 21.8599),
    (0.1, 1e-5, 0.1, 10_000, "substitute", 614.99),
    (1.0, 1 / 30162, 0.01, 400_000, "substitute", 43.692),
]


@pytest.mark.parametrize(("epsilon", "delta", "rate", "count", "adjacency", "true"), TABLE)
def test_noise_of_the_issue_table(epsilon, delta, rate, count, adjacency, true):
    value = noise_multiplier(epsilon, delta, rate, count, adjacency)
    digits = 5 if adjacency == "substitute" else 6
    digit = 10 ** (math.floor(math.log10(true)) + 1 - digits)
    assert true - digit / 2 <= value <= true * (1 + 2e-4) + digit / 2


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "count"),
    [
        (1.0, 1e-5, 0.01, 1000),
        (10.0, 1e-5, 0.01, 1000),
        (50.0, 1e-6, 0.05, 50),
        (1e-3, 1e-5, 0.01, 100),
        (2.0, 1e-5, 0.9, 1),
        (1.0, 0.3, 0.5, 10),
    ],
)
@pytest.mark.parametrize("adjacency", ["add_remove", "substitute"])
def test_round_trip_is_on_the_safe_side(epsilon, delta, rate, count, adjacency):
    multiplier = noise_multiplier(epsilon, delta, rate, count, adjacency)
    assert accounting.epsilon(multiplier, delta, rate, count, adjacency) <= epsilon * (1 + 1e-9)
    smaller = multiplier * (1 - 2 * RELATIVE_TOLERANCE)
    assert accounting.epsilon(smaller, delta, rate, count, adjacency) > epsilon


@pytest.mark.parametrize(("adjacency", "sensitivity"), [("add_remove", 1), ("substitute", 2)])
def test_without_sampling_the_answer_is_the_closed_form(adjacency, sensitivity):
    multiplier = noise_multiplier(1.0, 1e-5, 1.0, 25, adjacency)
    assert gaussian_epsilon(sensitivity * 5 / multiplier, 1e-5) == pytest.approx(1.0, rel=1e-10)
    assert accounting.epsilon(multiplier, 1e-5, 1.0, 25, adjacency) <= 1.0


@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_other_releases_are_paid_for_first(rate):
    others = [GaussianRelease("histogram", 1.0, 1, 10.0, 1.0)]
    multiplier = release_noise_multiplier(1.0, 1e-5, rate, 100, other_releases=others)
    assert multiplier > release_noise_multiplier(1.0, 1e-5, rate, 100)
    spent = accounting.plan_epsilon([*others, accounting.single_release(multiplier, rate, 100)], 1e-5)
    assert 1 - 1e-4 < spent <= 1 + 1e-9


def test_other_releases_that_spend_everything_are_refused():
    others = [GaussianRelease("histogram", 1.0, 1, 2.0, 1.0)]
    with pytest.raises(ValueError, match="alone already spend epsilon = 1"):
        release_noise_multiplier(1.0, 1e-5, 0.05, 100, other_releases=others)


def test_bracket_recovers_from_a_bad_guess():
    for start in (1e-3 * 4, 4.0, 4e3):
        assert 4 <= smallest_safe(lambda x: 1 / x, 0.25, start=max(start, 0.02)) < 4 * (1 + RELATIVE_TOLERANCE)


def test_a_budget_nothing_can_meet_is_refused():
    with pytest.raises(ValueError, match="No noise_multiplier between"):
        smallest_safe(lambda x: 1.0, 0.5, start=1.0)
