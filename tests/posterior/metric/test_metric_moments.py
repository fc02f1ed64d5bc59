"""Rows with the second moments that the records have, from noisy sums asked for by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.measuring import expected
from support.metric import root_of, triangle
from support.statistics import assert_close

from dpvi.posterior.metric.moments import (
    _with_constants,
    denoised,
    largest_of_noise,
    moments_request,
    moved_rows,
    symmetric,
)
from dpvi.release.requests import Answered

NUM_RECORDS, ROUNDS = 4000, (3, 3, 8)  # units
SHARES = (0.5, 0.3, 0.2)


def two_columns(correlation: float, random: np.random.Generator) -> np.ndarray:
    """An intercept and two numbers on different scales."""
    first, other = random.normal(size=(2, NUM_RECORDS))
    second = correlation * first + np.sqrt(1 - correlation**2) * other
    return np.stack([np.ones(NUM_RECORDS), first, 1 + 2 * second], axis=1)


def levels_and_a_number(random: np.random.Generator) -> np.ndarray:
    """An intercept, the indicators of three levels, which add up to it, and a number that goes with the level."""
    level = random.choice(3, size=NUM_RECORDS, p=SHARES)
    number = level + 0.5 * random.normal(size=NUM_RECORDS)
    return np.column_stack([np.ones(NUM_RECORDS), np.eye(3)[level], number])


def independent_rows(records: np.ndarray, random: np.random.Generator, together: tuple[int, ...] = ()) -> np.ndarray:
    """Every column as it is, two times over, in an order of its own; columns ``together`` in one order."""
    twice = np.tile(records, (2, 1))
    rows = np.stack([random.permutation(column) for column in twice.T], axis=1)
    rows[:, together] = random.permutation(twice)[:, together]
    return rows


def measured_rows(
    rows: np.ndarray,
    records: np.ndarray,
    noise_multiplier: float,
    random: np.random.Generator,
    rounds: tuple[int, ...] = ROUNDS,
) -> tuple[np.ndarray, float, list[Answered]]:
    """Rows moved by some rounds of answers on records, the error that is told, and the answers."""
    error, done = np.nan, []
    for units in rounds:
        noise = noise_multiplier / np.sqrt(units)
        asked = moments_request(rows, len(records), noise, units)
        exact = expected(asked, (records, np.zeros(0)))
        done.append(Answered(asked, exact + noise * random.normal(size=exact.shape)))
        rows, error = moved_rows(rows, asked.metric, done[-1].released, len(records), noise)
    return rows, error, done


def noise_of(records, request, noise_multiplier: float, size: int) -> float:
    """The noise of a whitened moment that ``request`` measures.

    To a matrix that stands for the identity, of trace d, a record adds min(1, |x̃|²) on average. So noise of standard
    deviation s on the sum over N of them is noise of s d / (N E min(1, |x̃|²)).
    """
    added = np.mean(np.minimum(1.0, np.sum((records @ request.metric.T) ** 2, axis=1)))
    return noise_multiplier / np.sqrt(request.units) / len(records) * size / added


def assert_moments(rows, records, request, noise_multiplier: float) -> None:
    """Rows have the moments of the records, but for the noise of ``request``, the last of a run, and its clipping.

    Rows are not the records, so what clipping took is put back with an error: of that, half is allowed.
    """
    values, vectors = np.linalg.eigh(records.T @ records / len(records))
    kept = values > 1e-9 * values.max()  # directions in which records differ
    white = vectors[:, kept] / np.sqrt(values[kept])
    size = white.shape[1]
    squares = np.sum((records @ request.metric.T) ** 2, axis=1)
    lost = 1 - np.minimum(squares, 1.0).sum() / squares.sum()
    standard_error = np.hypot(noise_of(records, request, noise_multiplier, size), lost / 2)
    found = white.T @ (rows.T @ rows / len(rows)) @ white
    assert_close(triangle(found - np.eye(size)), 0.0, standard_error)


@pytest.mark.parametrize("correlation", [0.95, 0.0])
@pytest.mark.parametrize("noise_multiplier", [3.0, 30.0])
def test_rows_have_the_moments_of_the_records(correlation, noise_multiplier):
    random = np.random.default_rng(1)
    records = two_columns(correlation, random)
    rows = independent_rows(records, random)
    moved, error, done = measured_rows(rows, records, noise_multiplier, random)
    assert_moments(moved, records, done[-1].request, noise_multiplier)
    assert 0 <= error < 0.2
    wrong = rows if correlation else independent_rows(two_columns(0.95, random), random, together=(1, 2))
    with pytest.raises(AssertionError):  # rows of the other kind
        assert_moments(wrong, records, done[-1].request, noise_multiplier)


def test_one_round_of_one_unit_is_enough_for_columns_that_go_together_a_little():
    random = np.random.default_rng(2)
    records = two_columns(0.5, random)
    rows = independent_rows(records, random)
    moved, _, done = measured_rows(rows, records, 3.0, random, rounds=(1,))
    assert_moments(moved, records, done[-1].request, 3.0)


@pytest.mark.parametrize("noise_multiplier", [3.0, 30.0])
def test_indicators_beside_an_intercept_stay_dependent(noise_multiplier):
    random = np.random.default_rng(3)
    records = levels_and_a_number(random)
    rows = independent_rows(records, random, together=(0, 1, 2, 3))
    moved, _, done = measured_rows(rows, records, noise_multiplier, random)
    assert all(np.all(np.isfinite(each.request.metric)) for each in done)
    np.testing.assert_allclose(moved[:, 1:4].sum(axis=1), moved[:, 0], atol=1e-9)
    assert_moments(moved, records, done[-1].request, noise_multiplier)
    with pytest.raises(AssertionError):  # the number does not go with the level
        assert_moments(rows, records, done[-1].request, noise_multiplier)


def relative_changes(noise_multiplier: float, size: int, num_records: int, runs: int) -> tuple[np.ndarray, float]:
    """|E|² of rows that are right already, S^(−½) S' S^(−½) = I + E, by run, and what the last noise alone makes."""
    random = np.random.default_rng(4)
    records = random.normal(size=(num_records, size))
    white, changes, noise = root_of(records.T @ records / num_records, -0.5), [], np.inf
    for _ in range(runs):
        moved, _, done = measured_rows(records, records, noise_multiplier, random)
        changes.append(np.sum((white @ (moved.T @ moved / num_records) @ white - np.eye(size)) ** 2))
        noise = noise_of(records, done[-1].request, noise_multiplier, size)
    return np.array(changes), noise**2 * size * (size + 1) / 2


@pytest.mark.parametrize("noise_multiplier", [10.0, 100.0])
def test_noise_alone_moves_rows_by_less_than_noise(noise_multiplier):
    runs = 60
    found, unshrunk = relative_changes(noise_multiplier, 4, NUM_RECORDS, runs)
    assert found.mean() + 4 * found.std() / np.sqrt(runs) < unshrunk
    assert found.mean() > 0.01 * unshrunk  # the comparison is of like with like


@pytest.mark.parametrize(
    ("size", "num_records", "noise_multiplier"),
    [
        (20, 1000, 57.0),
        (4, 500, 1e5),
    ],
)
def test_noise_that_drowns_everything_leaves_independent_rows(size, num_records, noise_multiplier):
    """(20 columns, N = 1000 and the noise of epsilon = 1; then noise without bounds.)"""
    assert np.median(relative_changes(noise_multiplier, size, num_records, runs=5)[0]) < 0.2 * size


def one_factor(num_records: int, size: int, random: np.random.Generator) -> np.ndarray:
    """Columns of which every two have a correlation of 0.9: one direction has nine tenths of all variance."""
    factor, own = random.normal(size=(num_records, 1)), random.normal(size=(num_records, size))
    return np.sqrt(0.9) * factor + np.sqrt(0.1) * own


@pytest.mark.xfail(
    raises=AssertionError,
    strict=True,
    reason="noise with eigenvalues beyond 1.5 is taken for hopeless; those of many columns that go together are larger",
)
def test_a_direction_that_is_larger_than_noise_is_found():
    """Ten columns, N = 500 and the noise of epsilon = 1, whose eigenvalues reach two; that of the direction is nine."""
    random, size, num_records = np.random.default_rng(6), 10, 500
    shares = []
    for _ in range(9):
        records = one_factor(num_records, size, random)
        moved, _, _ = measured_rows(independent_rows(records, random), records, 57.0, random)
        shares.append(np.mean(moved.sum(axis=1) ** 2) / np.mean(records.sum(axis=1) ** 2))
    assert np.median(shares) > 0.4  # independent rows have a tenth


def test_what_noise_hides_is_told_as_an_error():
    """Noise under which rows stay independent, of columns that nearly depend on each other."""
    random, errors = np.random.default_rng(5), []
    records = two_columns(0.95, random)
    for _ in range(9):
        errors.append(measured_rows(independent_rows(records, random), records, 1e5, random)[1])
    assert min(errors) > 0.5


def noise_alone(size: int, noise: float, random: np.random.Generator) -> np.ndarray:
    """A symmetric matrix, with ``noise`` on its diagonal, as answers have it."""
    return symmetric(noise * random.normal(size=size * (size + 1) // 2), size)


SIZE, NOISE = 8, 0.1


def test_what_is_released_is_a_matrix_and_noise_has_the_eigenvalues_that_are_told():
    random = np.random.default_rng(7)
    matrix = noise_alone(SIZE, 1.0, random)
    np.testing.assert_allclose(matrix, matrix.T)
    np.testing.assert_allclose(symmetric(triangle(matrix), SIZE), matrix)
    largest = [np.linalg.eigvalsh(noise_alone(30, NOISE, random)).max() for _ in range(50)]
    np.testing.assert_allclose(np.mean(largest), largest_of_noise(NOISE, 30), rtol=0.1)


def common(matrix: np.ndarray) -> np.ndarray:
    """What all directions have in common."""
    return np.trace(matrix) / len(matrix) * np.eye(len(matrix))


def test_noise_alone_is_shrunk_to_what_all_directions_have_in_common():
    random, kept, shares = np.random.default_rng(8), [], []
    for _ in range(200):
        off = noise_alone(SIZE, NOISE, random) + 0.3 * np.eye(SIZE)
        found, share = denoised(off, NOISE)
        np.testing.assert_allclose(found - common(found), share * (off - common(off)), atol=1e-12)
        assert 0.9 < np.trace(found) / np.trace(off) <= 1.0
        kept.append(np.sum((found - common(found)) ** 2) / np.sum((off - common(off)) ** 2))
        shares.append(share)
    assert np.mean(kept) < 0.05
    assert np.median(shares) < 0.1
    assert np.mean([denoised(noise_alone(SIZE, NOISE, random), NOISE / 3)[1] for _ in range(20)]) > 0.8  # noise untold


def test_a_signal_is_kept():
    """One direction with an eigenvalue far above those of noise. Shrinking brings it nearer than it was measured."""
    random, direction = np.random.default_rng(9), np.ones(SIZE) / np.sqrt(SIZE)
    signal = 2.0 * np.outer(direction, direction)
    pairs = []
    for _ in range(200):
        off = signal + noise_alone(SIZE, NOISE, random)
        found, share = denoised(off, NOISE)
        assert share > 0.8
        np.testing.assert_allclose(direction @ found @ direction, 2.0, atol=0.2 + 5 * NOISE)
        pairs.append((np.sum((found - signal) ** 2), np.sum((off - signal) ** 2)))
    nearer, as_measured = np.mean(pairs, axis=0)
    assert nearer < as_measured
    np.testing.assert_allclose(as_measured, NOISE**2 * SIZE * (SIZE + 1) / 2, rtol=0.2)


def test_hopeless_noise_leaves_nothing_but_what_is_in_common():
    """Noise with eigenvalues beyond what is measured, in which even a signal is not trusted."""
    off = np.diag([30.0, 0.0, 0.0, 0.0])
    found, share = denoised(off, 1.0)
    assert share == 0.0
    np.testing.assert_allclose(found, 7.5 * np.eye(4), rtol=0.01)
    assert not np.any(denoised(off, 2.0)[0])  # nor that
    assert denoised(off, 0.1)[1] > 0.99


def test_a_constant_column_stays_and_so_do_means():
    """What an intercept cannot explain, a rare level would have to."""
    random = np.random.default_rng(5)
    rows = np.column_stack([np.ones(4000), random.normal(0.3, 0.4, 4000), random.uniform(size=4000) < 0.01])
    moved = rows @ (np.eye(3) + 0.2 * random.normal(size=(3, 3)))
    kept = _with_constants(rows, moved)
    np.testing.assert_array_equal(kept[:, 0], 1.0)
    np.testing.assert_allclose(kept.mean(axis=0), rows.mean(axis=0), atol=1e-12)
    second = moved.T @ moved / len(moved)
    wanted = (second - np.outer(second[0], second[0]) / second[0, 0])[1:, 1:]
    np.testing.assert_allclose(np.cov(kept[:, 1:].T, bias=True), wanted, atol=1e-9)
    assert np.ptp(moved[:, 0]) > 0.01  # as it was before
    without = rows[:, 1:]
    np.testing.assert_array_equal(_with_constants(without, moved[:, 1:]), moved[:, 1:])
