"""Answers to requests: what a record adds, how much noise there is, and that no more is answered than was planned."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from support.measuring import (
    COLUMNS,
    METRIC,
    QUERY,
    UNIT,
    UNITS,
    expected,
    measuring_plan,
    regression_data,
    regression_model,
    requests,
)
from support.statistics import assert_close, assert_variance

from dpvi.mechanism.rng import root_key
from dpvi.release.measurements import answered, measurements_of
from dpvi.release.requests import CovariateMoments, Curvature, ScoreNorms, Scores
from dpvi.run.measuring import Answers, Contributions, measure

KINDS = ("moments", "curvature", "norms", "scores")
BROKEN = (np.nan, np.inf, -np.inf, 1e38, -3e38, 1e30, 1e-40, 0.0)


@pytest.fixture(scope="module")
def contributions() -> Contributions:
    return Contributions(regression_model())


@pytest.fixture(scope="module")
def in_small_parts() -> Contributions:
    return Contributions(regression_model(), most_slots=64)


def of_kind(kind: str, units: int = 1):
    return requests(units)[KINDS.index(kind)]


def squared_norm(added: np.ndarray) -> int:
    return sum(each * each for each in added.tolist())


def crafted(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records that a custodian would not expect, one of each."""
    x, y = regression_data(3 * len(BROKEN), seed)
    for row, value in enumerate(BROKEN):
        x[row, row % 3] = value
        x[len(BROKEN) + row] = value
    return x, y


@pytest.mark.parametrize("kind", KINDS)
def test_totals_are_those_of_numpy(contributions, kind):
    data, request = regression_data(2500), of_kind(kind)
    total = contributions.total(request, [data])
    assert total.dtype == np.int64
    unit = 1.0 if kind == "norms" else UNIT
    assert np.allclose(total * unit, expected(request, data), rtol=0, atol=0 if kind == "norms" else 2500 * 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_order_parts_and_blocks_do_not_change_a_bit(contributions, in_small_parts, kind):
    x, y = regression_data(1500)
    x[:24], y[:24] = crafted(3)
    request, order = of_kind(kind), np.random.default_rng(1).permutation(1500)
    total = contributions.total(request, [(x, y)])
    cuts = [0, 1, 65, 700, 1500]
    blocks = [(x[order][a:b], y[order][a:b]) for a, b in pairwise(cuts)]
    assert np.array_equal(total, contributions.total(request, [(x[order], y[order])]))
    assert np.array_equal(total, contributions.total(request, blocks))
    assert np.array_equal(total, in_small_parts.total(request, [(x, y)]))
    assert not np.any(contributions.total(request, []))
    with np.errstate(all="ignore"):  # the same in plain float32 depends on the order
        plain = [np.sum(np.asarray(x[24:][o], np.float32) ** 3) for o in (slice(None), np.argsort(x[24:, 0]))]
    assert plain[0] != plain[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_one_record_moves_a_total_by_at_most_1_and_by_what_it_adds_alone(in_small_parts, kind, seed):
    x, y = crafted(seed)
    request, largest = of_kind(kind), (1 if kind == "norms" else 2**29) ** 2
    others = regression_data(150, seed + 10)
    before = in_small_parts.total(request, [others])
    for i in range(len(x)):
        record = (x[i : i + 1], y[i : i + 1])
        added = in_small_parts.total(request, [record])
        assert squared_norm(added) <= largest
        with_it = tuple(np.concatenate(parts) for parts in zip(others, record, strict=True))
        assert np.array_equal(in_small_parts.total(request, [with_it]) - before, added)
    # the bound is reached by records that are clipped, so that a smaller one would fail
    assert (
        max(squared_norm(in_small_parts.total(request, [(x[i : i + 1], y[i : i + 1])])) for i in range(len(x)))
        > 0.999 * largest
    )


def test_a_record_without_a_finite_score_counts_nowhere(contributions):
    x, y = regression_data(10)
    x[3, 0] = np.nan
    assert contributions.total(of_kind("norms"), [(x, y)]).sum() == 9
    assert np.array_equal(
        contributions.total(of_kind("scores"), [(x, y)]),
        contributions.total(of_kind("scores"), [(np.delete(x, 3, axis=0), np.delete(y, 3))]),
    )


def answers(contributions, plan, data, seed=1) -> Answers:
    return Answers(contributions, plan, lambda: [data], root_key(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_added_once_with_the_standard_deviation_of_the_units(contributions, kind):
    data, plan = regression_data(20), measuring_plan(noise_multiplier=50.0)
    request = of_kind(kind, units=4)
    found = np.stack(
        [answers(contributions, plan, data, seed)(request).released for seed in range(600 if kind == "norms" else 1500)]
    )
    truth = contributions.total(request, [data]) * (1.0 if kind == "norms" else UNIT)
    scale = 50.0 / math.sqrt(4)
    errors = (found - truth).reshape(-1, 1)
    assert_close(errors.mean(), 0.0, scale / math.sqrt(errors.size))
    assert_variance(errors, scale**2)
    for wrong in (2 / 3, 3 / 2):
        with pytest.raises(AssertionError):
            assert_variance(errors, (wrong * scale) ** 2)


def test_every_answer_has_noise_of_its_own(contributions):
    data, plan = regression_data(20), measuring_plan(noise_multiplier=50.0)
    run, again = answers(contributions, plan, data), answers(contributions, plan, data)
    first, second = (run(Scores(QUERY, METRIC, 1)).released for _ in range(2))
    assert not np.any(first == second)
    assert np.array_equal(first, again(Scores(QUERY, METRIC, 1)).released)
    assert first.dtype == np.float64


def unread():
    raise AssertionError("records were read")


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_was_planned_is_refused_before_a_record_is_read(contributions, kind):
    closed = Answers(contributions, measuring_plan(), unread, root_key(1))
    with pytest.raises(ValueError, match=f"{UNITS + 1} units, and {UNITS} of {UNITS} are left"):
        closed(of_kind(kind, UNITS + 1))
    run = answers(contributions, measuring_plan(), regression_data(5))
    run(of_kind(kind, UNITS - 1))
    with pytest.raises(ValueError, match="2 units, and 1 of"):
        run(of_kind(kind, 2))
    run(of_kind(kind, 1))
    for other in KINDS:  # all kinds are paid for from one pool
        with pytest.raises(ValueError, match="1 units, and 0 of"):
            run(of_kind(other, 1))


def test_an_answer_that_fails_is_paid_for(contributions):
    def broken():
        raise OSError("no disk")

    run = Answers(contributions, measuring_plan(), broken, root_key(1))
    with pytest.raises(OSError, match="no disk"):
        run(Scores(QUERY, METRIC, UNITS - 4))
    with pytest.raises(ValueError, match=f"and 4 of {UNITS} are left"):
        run(Scores(QUERY, METRIC, 5))


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (Scores(QUERY, METRIC, 0), "units must be a whole number"),
        (Scores(QUERY, METRIC, 1.0), "units must be a whole number"),  # pyright: ignore[reportArgumentType]
        (Scores(QUERY, METRIC, True), "units must be a whole number"),
        (Scores(QUERY[:2], METRIC, 1), "query must have shape"),
        (Scores(QUERY * np.nan, METRIC, 1), "query must hold finite"),
        (ScoreNorms(QUERY, METRIC + np.inf, 1), "metric must hold finite"),
        (ScoreNorms(QUERY, METRIC[:2], 1), "metric must have shape"),
        (CovariateMoments(METRIC[:, :2], 1), "metric of moments must have 3 columns"),
        (CovariateMoments(METRIC[0], 1), "metric of moments"),
        ((QUERY, METRIC, 1), "A strategy asks for"),
        (type("Changing", (Scores,), {"units": property(lambda self: -1)})(QUERY, METRIC, 1), "A strategy asks for"),
        (Scores(QUERY, METRIC, 2**70), "units, and 100 of"),
        (Scores(QUERY, METRIC, np.float64(2)), "units must be a whole number"),  # pyright: ignore[reportArgumentType]
        (Scores(QUERY, METRIC, np.int64(-5)), "units must be a whole number"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_bad_requests_are_refused(contributions, request_, sentence):
    run = answers(contributions, measuring_plan(), regression_data(5))
    with pytest.raises((TypeError, ValueError), match=sentence):
        run(request_)
    assert run.units_left == UNITS


def test_units_of_other_types_are_counted_as_they_are(contributions):
    run = answers(contributions, measuring_plan(), regression_data(5))
    for units in (np.int8(60), np.uint64(30), np.array(9)):  # int8 sums of these would overflow to below zero
        assert type(run(Scores(QUERY, METRIC, units)).request.units) is int  # pyright: ignore[reportArgumentType]
    assert run.units_left == 1


def test_two_strategies_share_one_pool_and_no_noise(contributions):
    data = regression_data(5)
    run = answers(contributions, measuring_plan(), data)
    asked = Scores(QUERY, METRIC, 5)

    def forever():
        while True:
            yield asked

    first, second = forever(), forever()
    noise = [run(next(strategy)).released for _ in range(UNITS // 10) for strategy in (first, second)]
    with pytest.raises(ValueError, match="5 units, and 0 of"):
        run(next(second))
    assert len(np.unique(np.stack(noise), axis=0)) == len(noise) == UNITS // 5


def test_threads_share_one_pool(contributions):
    run = answers(contributions, measuring_plan(), regression_data(5))
    run(Scores(QUERY, METRIC, 1))  # is compiled
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(run, Scores(QUERY, METRIC, 7)) for _ in range(40)]
    released = [each.result().released for each in found if each.exception() is None]
    assert len(released) == (UNITS - 1) // 7
    assert len(np.unique(np.stack(released), axis=0)) == len(released)


def test_a_strategy_that_goes_on_after_a_refusal_gets_nothing_more(contributions):
    run = answers(contributions, measuring_plan(), regression_data(5))

    def stubborn():
        for _ in range(3):
            try:
                yield Scores(QUERY, METRIC, UNITS + 1)
            except ValueError:
                yield Scores(QUERY, METRIC, UNITS)

    strategy = stubborn()
    with pytest.raises(ValueError, match=f"and {UNITS} of {UNITS} are left"):
        measure(run, strategy)
    with pytest.raises(ValueError, match=f"and {UNITS} of {UNITS} are left"):
        measure(run, strategy)
    assert run.units_left == UNITS


def test_a_strategy_is_sent_what_was_released_and_nothing_else(contributions):
    seen = []

    def strategy():
        for request in requests(2):
            seen.append((yield request))

    done = measure(answers(contributions, measuring_plan(), regression_data(30)), strategy())
    assert [type(each.request) for each in done] == [CovariateMoments, Curvature, ScoreNorms, Scores]
    assert all(np.array_equal(a, b.released) for a, b in zip(seen, done, strict=True))


def test_measurements_keep_everything_in_order(contributions):
    run = answers(contributions, measuring_plan(columns=COLUMNS), regression_data(30))
    done = [run(request) for request in (*requests(1), Scores(-QUERY, METRIC, 3), *requests(1))]
    back = answered(measurements_of(done, 3))
    for before, after in zip(done, back, strict=True):
        assert type(before.request) is type(after.request)
        assert all(np.array_equal(a, b) for a, b in zip(before.request, after.request, strict=True))
        assert np.array_equal(before.released, after.released)
    assert answered(measurements_of([], 3)) == []
