"""A driver steers between moving and measuring, and sees released quantities only."""

from __future__ import annotations

import numpy as np
import optax
import pytest
from support.small_models import DIMENSION, RECORDS, location_model, private_plan

import dpvi
from dpvi import Directive
from dpvi.release.driver import Released

MODEL = location_model()
NUM_STEPS = 60
PLAN = private_plan(NUM_STEPS)
QUERY = np.array([0.25, -4.0])


def fit(driver=None, **options):
    options.setdefault("optimizer", optax.sgd(0.05))
    return dpvi.fit(MODEL, RECORDS, PLAN, driver=driver, seed=5, progress=False, **options).trace


class Recording:
    """Plays back directives and keeps what it was shown."""

    def __init__(self, *directives: Directive | None) -> None:
        self.directives = list(directives)
        self.seen: list[Released] = []

    def __call__(self, released: Released) -> Directive | None:
        self.seen.append(released)
        return self.directives[len(self.seen) - 1]


@pytest.fixture(scope="module")
def mixed():
    driver = Recording(Directive(10), Directive(15, QUERY), Directive(20), Directive(100, -QUERY))
    return driver, fit(driver)


def test_a_driver_is_asked_before_the_first_step_and_after_every_stretch(mixed):
    driver, trace = mixed
    assert [released.step for released in driver.seen] == [0, 10, 25, 45]
    assert [released.steps_left for released in driver.seen] == [60, 50, 35, 15]
    np.testing.assert_array_equal(driver.seen[0].iterate, trace.iterates[0])
    assert driver.seen[0].mean_noisy_sum.shape == (DIMENSION,)
    for mean in driver.seen[0][3:]:
        assert np.isnan(mean).all()


def test_a_driver_sees_the_means_of_its_last_stretch(mixed):
    driver, trace = mixed
    for released, start in zip(driver.seen[1:], (0, 10, 25), strict=True):
        rows = slice(start, released.step)
        np.testing.assert_array_equal(released.iterate, trace.iterates[released.step])
        for mean, all_rows in zip(released[3:], (trace.iterates, trace.queries, trace.noisy_sums), strict=True):
            assert mean.dtype == np.float64
            np.testing.assert_allclose(mean, all_rows[rows].astype(np.float64).mean(axis=0), rtol=1e-12, atol=1e-12)


def test_frozen_steps_measure_at_the_query_and_move_nothing(mixed):
    _, trace = mixed
    np.testing.assert_array_equal(trace.queries[10:25], np.tile(QUERY, (15, 1)).astype(np.float32))
    np.testing.assert_array_equal(trace.queries[45:], np.tile(-QUERY, (15, 1)).astype(np.float32))
    for start, stop in ((10, 25), (45, 60)):
        np.testing.assert_array_equal(trace.iterates[start:stop], np.tile(trace.iterates[start], (stop - start, 1)))
    np.testing.assert_array_equal(trace.final, trace.iterates[45])
    assert not np.array_equal(trace.iterates[25], trace.iterates[26])
    assert len(np.unique(trace.noisy_sums[10:25, 0])) == 15  # the point is frozen, sampling and noise are not


def test_segments_hold_the_stretches_and_their_mean_releases(mixed):
    _, trace = mixed
    np.testing.assert_array_equal(trace.segments.start, [0, 10, 25, 45])
    np.testing.assert_array_equal(trace.segments.stop, [10, 25, 45, 60])
    assert np.isnan(trace.segments.query[[0, 2]]).all()
    np.testing.assert_allclose(trace.segments.query[[1, 3]], [QUERY, -QUERY])
    rows = trace.noisy_sums.astype(np.float64)
    means = [rows[a:b].mean(axis=0) for a, b in zip(trace.segments.start, trace.segments.stop, strict=True)]
    np.testing.assert_allclose(trace.segments.mean_noisy_sum, means, rtol=1e-12, atol=1e-12)


def test_blocks_count_moving_steps_only(mixed):
    _, trace = mixed
    assert trace.block_length == 1
    moving = np.r_[np.ones(10), np.zeros(15), np.ones(20), np.zeros(15)]
    np.testing.assert_array_equal(trace.blocks.count, moving)
    np.testing.assert_allclose(trace.blocks.phi, moving[:, None] * trace.iterates.astype(np.float64), rtol=1e-12)
    np.testing.assert_array_equal(trace.blocks.gradient[moving == 0], 0)


def test_boundaries_of_stretches_do_not_change_the_run():
    alone = fit()
    assert alone.segments is None
    lengths = iter((1, 3, 7, 1, 2, 13))

    def odd_pieces(_: Released) -> Directive | None:
        length = next(lengths, None)
        return None if length is None else Directive(length)

    pieces = fit(odd_pieces)
    np.testing.assert_array_equal(pieces.iterates, alone.iterates)
    np.testing.assert_array_equal(pieces.noisy_sums, alone.noisy_sums)
    np.testing.assert_array_equal(pieces.final, alone.final)
    np.testing.assert_array_equal(pieces.segments.stop, [1, 4, 11, 12, 14, 27, 60])


def test_optimiser_state_survives_a_frozen_stretch():
    """Adam's moments and step count wait while a point is measured, so ξ moves as if nothing had been between."""
    trace = fit(Recording(Directive(4), Directive(3, QUERY), None), optimizer=optax.adam(0.1))
    first_move = trace.iterates[5] - trace.iterates[4]
    np.testing.assert_array_equal(trace.iterates[4], trace.iterates[7])
    assert np.all(first_move == 0)
    restarted = np.abs(trace.iterates[8] - trace.iterates[7])  # a fresh Adam would step by exactly its rate
    assert np.any(np.abs(restarted - 0.1) > 1e-3)


@pytest.mark.parametrize(
    ("directive", "message"),
    [
        (Directive(0), "one step or more, a whole number"),
        (Directive(-3), "one step or more, a whole number"),
        (Directive(2.5), "one step or more, a whole number"),
        (Directive(5, np.zeros(3)), "2 finite numbers, got shape"),
        (Directive(5, np.array([np.nan, 0.0])), "2 finite numbers"),
    ],
)
def test_a_directive_that_makes_no_sense_is_refused(directive, message):
    with pytest.raises(ValueError, match=message):
        fit(lambda _: directive)


@pytest.mark.parametrize("estimator", [dpvi.Vanilla(), dpvi.Natural(), dpvi.AlignedNatural(), dpvi.Preconditioned()])
def test_a_driver_needs_an_estimator_that_releases_scores(estimator):
    with pytest.raises(ValueError, match="A driver measures scores"):
        fit(lambda _: None, estimator=estimator)
