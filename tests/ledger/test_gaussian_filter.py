"""What a run is charged: no less than what it costs, also where the next run is chosen after seeing this one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpvi.declared.plan import GaussianRelease
from dpvi.ledger.gaussian_filter import MOST_SAMPLED, Charge, charge, limit_of
from dpvi.privacy.accounting import deltas_by_direction, plan_epsilon
from dpvi.privacy.gaussian import find_root, gaussian_delta, gaussian_signal, limit_signal

SLACK = 1e-8


def release(multiplier, rate=1.0, count=1, rows=1, name="gradients"):
    return GaussianRelease(name, rate, count, multiplier, 1.0, rows)


@pytest.mark.parametrize("adjacency", ["add_remove", "substitute"])
def test_runs_on_all_records_are_charged_exactly(adjacency):
    releases = (release(30.0, count=100), release(9.0, rows=1, name="histograms"))
    found = charge(releases, adjacency, SLACK)
    assert found.signal_squared == pytest.approx(limit_signal(releases, adjacency) ** 2, rel=1e-14)
    assert found.slack == 0  # nothing is approximated
    epsilon = plan_epsilon(releases, 1e-6, adjacency)
    assert gaussian_delta(math.sqrt(found.signal_squared), epsilon) == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize(
    "releases",
    [
        (release(20.0, 0.05, 500),),
        (release(1.5, 0.01, 200), release(9.0, name="histograms")),
        (release(6.0, 0.02, 300, rows=4),),
    ],
)
def test_a_sampled_run_is_no_worse_than_its_gaussian_mechanism(releases):
    found = charge(releases, "add_remove", SLACK)
    signal = math.sqrt(found.signal_squared)
    epsilons = np.linspace(1e-4, 1.3 * plan_epsilon(releases, SLACK), 837)  # not the points that were looked at
    deltas = np.maximum(*deltas_by_direction(releases, epsilons))
    assert max(deltas - [gaussian_delta(signal, each) for each in epsilons]) <= SLACK
    # with a little less signal it is worse somewhere, and the limit of many steps, which is no bound, is less
    assert max(deltas - [gaussian_delta(0.998 * signal, each) for each in epsilons]) > SLACK
    assert limit_signal(releases, "add_remove") < signal


def test_many_small_steps_cost_half_a_per_cent_more_than_fixed_beforehand():
    steps = (release(37.3279, 0.1, 10_000),)
    tight = plan_epsilon(steps, 1e-5)
    limit = limit_of(1.007 * tight, 1e-5, 0.1)
    assert limit.holds(charge(steps, "add_remove", limit.slack_of_one))


def test_a_full_ledger_of_mixed_runs_keeps_its_promise():
    epsilon, delta = 1.0, 1e-5
    limit, spent, taken = limit_of(epsilon, delta, 0.2), Charge(0.0, 0.0), []
    kinds = [release(25.0, 0.05, 100), release(9.0), release(12.0, 0.3, 5), release(80.0, 0.5, 50)]
    for kind in (kinds[number % 4] for number in range(100)):
        cost = charge((kind,), "add_remove", limit.slack_of_one)
        if limit.holds(spent + cost):
            spent, taken = spent + cost, [*taken, kind]
    assert limit.signal_squared * 0.9 < spent.signal_squared <= limit.signal_squared
    assert 0.85 * epsilon < plan_epsilon(taken, delta) <= epsilon


def test_slack_is_for_a_hundred_sampled_runs():
    limit = limit_of(1.0, 1e-5, 0.1)
    one = Charge(0.0, limit.slack_of_one)
    spent = Charge(0.0, 0.0)
    for _ in range(MOST_SAMPLED):
        spent = spent + one
        assert limit.holds(spent)
    assert not limit.holds(spent + one)
    assert limit.slack + (1e-5 * 0.9) <= 1e-5


# An adversary sees a first Gaussian release, then makes one of two others, whichever is worse given what was seen.

FIRST, EPSILON, DELTA, RATE = 0.3, 1.0, 1e-4, 0.02


def sampled_delta(signal, epsilon):
    """δ(ε), for any real ε, of removing a record from one step at the rate RATE."""
    if epsilon <= math.log1p(-RATE):
        return -math.expm1(epsilon)
    return RATE * gaussian_delta(signal, math.log1p(math.expm1(epsilon) / RATE))


def second_gaussian(total):
    return math.sqrt(total**2 - FIRST**2)


def delta_of(second):
    """δ(EPSILON) of the first release followed by one whose δ, given that ε is left, is ``second(ε)``."""
    normal = np.linspace(-9, 9, 6001)
    left = EPSILON - FIRST * normal - FIRST**2 / 2
    density = np.exp(-(normal**2) / 2) / math.sqrt(2 * math.pi)
    return float(np.trapezoid(density * np.array([second(each) for each in left]), normal))


def test_choosing_the_second_run_after_the_first_stays_within_the_promise():
    limit = limit_of(EPSILON, DELTA, 0.1)
    total = math.sqrt(limit.signal_squared)
    gaussian = second_gaussian(total)

    def costs(multiplier):
        return charge((release(multiplier, RATE),), "add_remove", limit.slack_of_one).signal_squared

    multiplier = find_root(lambda value: costs(value) - gaussian**2, 0.5, 10.0, 1e-4) + 2e-4
    assert costs(multiplier) <= gaussian**2

    def worse(epsilon):
        return max(sampled_delta(1 / multiplier, epsilon), gaussian_delta(gaussian, epsilon))

    assert 0.5 * DELTA < delta_of(worse) <= DELTA


def test_runs_that_are_tight_one_by_one_break_it_which_is_why_they_are_not_added_up_like_that():
    gaussian = second_gaussian(gaussian_signal(EPSILON, DELTA))
    signal = find_root(
        lambda value: math.log(delta_of(lambda epsilon: sampled_delta(value, epsilon)) / DELTA), 0.2, 5.0, 1e-6
    )
    each = [
        delta_of(lambda epsilon: gaussian_delta(gaussian, epsilon)),
        delta_of(lambda epsilon: sampled_delta(signal, epsilon)),
    ]
    assert each == [pytest.approx(DELTA, rel=1e-4)] * 2  # either of them alone is as promised
    worse = delta_of(lambda epsilon: max(sampled_delta(signal, epsilon), gaussian_delta(gaussian, epsilon)))
    assert worse > 1.05 * DELTA
