"""The curvature that noisy, clipped sums of Hessians tell, for Hessians that are known."""

from __future__ import annotations

import numpy as np
import pytest
from support.metric import root_of, triangle

from dpvi.posterior.metric.curvature import (
    MeasuredCurvature,
    assumed_curvature,
    curvature_request,
    elsewhere,
    measured_curvature,
)
from dpvi.release.requests import Curvature

DIMENSION, NUM_RECORDS = 3, 4000
POINT = np.array([0.5, -0.8, 0.3])
LOOSE, TIGHT = 4e-6, 120.0  # noise of a sum that lets everything through, and that clips
FAINT = 4e-6
SHORT = 1e-3  # times rows, of which none is then clipped


def covariates(correlation: float = 0.8, seed: int = 0) -> np.ndarray:
    """Rows of which some are long."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(NUM_RECORDS, DIMENSION))
    rows[:, 1] = correlation * rows[:, 0] + np.sqrt(1 - correlation**2) * rows[:, 1]
    return rows * np.exp(0.5 * random.normal(size=(NUM_RECORDS, 1)))


def hessians(rows: np.ndarray, point: np.ndarray = POINT) -> np.ndarray:
    """−∇²log p of logistic records, (N, d, d)."""
    mean = 1 / (1 + np.exp(-rows @ point))
    return (mean * (1 - mean))[:, None, None] * rows[:, :, None] * rows[:, None, :]


def information(rows: np.ndarray, point: np.ndarray = POINT) -> np.ndarray:
    return hessians(rows, point).mean(axis=0)


def assumed(rows: np.ndarray) -> MeasuredCurvature:
    """What rows let one expect."""
    return assumed_curvature(information(rows), root_of(information(rows), -0.5), NUM_RECORDS)


def asked_of(rows: np.ndarray, expected: MeasuredCurvature, noise: float) -> Curvature:
    """The question, from rows."""
    return curvature_request(expected, POINT, hessians(rows), evenly(rows), NUM_RECORDS, noise, 1)


def released(records: np.ndarray, asked: Curvature) -> np.ndarray:
    """What is asked for, without noise: Σ v(W h Wᵀ) min(1, 1/‖W h Wᵀ‖)."""
    white = asked.metric @ hessians(records) @ asked.metric.T
    sizes = np.linalg.norm(white, axis=(1, 2))
    return triangle((white / np.maximum(sizes, 1)[:, None, None]).sum(axis=0))


def told(
    answer: np.ndarray, asked: Curvature, expected: MeasuredCurvature, rows: np.ndarray, noise: float = FAINT
) -> MeasuredCurvature:
    """What an answer says, with clipping undone by rows."""
    return measured_curvature(asked, answer, expected, hessians(rows), evenly(rows), noise, NUM_RECORDS)


def evenly(rows: np.ndarray) -> np.ndarray:
    return np.full(len(rows), 1 / len(rows))


def bound_of(asked: Curvature, whitener: np.ndarray) -> float:
    return float((whitener[0, 0] / asked.metric[0, 0]) ** 2)


def off(found: np.ndarray, truth: np.ndarray) -> float:
    """‖S^(−½) M S^(−½) − I‖: how far a matrix is from the truth, whatever the parameters' scales."""
    root = root_of(truth, -0.5)
    return float(np.linalg.norm(root @ found @ root - np.eye(len(truth)), 2))


@pytest.mark.parametrize("noise", [LOOSE, TIGHT])
def test_clipping_is_undone(noise):
    """Rows like the records; what was expected beforehand has another shape."""
    records = covariates()
    truth, thought = information(records), np.diag([0.3, 0.1, 0.2])
    expected = assumed_curvature(thought, root_of(thought, -0.5), NUM_RECORDS)
    asked = asked_of(records, expected, noise)
    answer = released(records, asked)
    curvature = told(answer, asked, expected, records)
    assert off(curvature.matrix, NUM_RECORDS * truth) < 1e-5
    np.testing.assert_allclose(curvature.matrix, curvature.matrix.T)
    assert off(expected.matrix, NUM_RECORDS * truth) > 0.5
    naive = told(answer, asked, expected, SHORT * records)  # as if nothing had to be undone
    assert (off(naive.matrix, NUM_RECORDS * truth) > 0.1) == (noise == TIGHT)


def test_clipping_is_undone_well_where_rows_are_not_the_records():
    records, rows = covariates(seed=1), covariates(correlation=0.0, seed=2)
    truth, expected = information(records), assumed(rows)
    asked = asked_of(rows, expected, TIGHT)
    curvature, plain = (told(released(records, asked), asked, expected, size * rows) for size in (1, SHORT))
    assert off(curvature.matrix, NUM_RECORDS * truth) < 0.5 * off(plain.matrix, NUM_RECORDS * truth)
    assert off(curvature.matrix, NUM_RECORDS * truth) < 0.2 * off(expected.matrix, NUM_RECORDS * truth)


def test_a_bound_follows_the_noise():
    rows = covariates()
    expected = assumed(rows)
    loose, tight = (asked_of(rows, expected, noise) for noise in (LOOSE, TIGHT))
    assert bound_of(tight, expected.whitener) < bound_of(loose, expected.whitener)
    sizes = [np.linalg.norm(asked.metric @ hessians(rows) @ asked.metric.T, axis=(1, 2)) for asked in (loose, tight)]
    assert sizes[0].max() < 1
    assert 0.005 < np.mean(sizes[1] > 1) < 0.5
    np.testing.assert_array_equal(loose.query, POINT)
    assert loose.units == 1


def noisy_runs(scale: float, runs: int) -> tuple[np.ndarray, float]:
    """‖E‖² of curvatures that are as expected but for noise, and the same before anything was shrunk."""
    random, rows = np.random.default_rng(3), covariates()
    expected = assumed(rows)
    asked, whitener = asked_of(rows, expected, scale), expected.whitener
    exact, found = released(rows, asked), []
    for _ in range(runs):
        curvature = told(exact + scale * random.normal(size=exact.shape), asked, expected, rows, scale)
        found.append(np.sum((whitener @ curvature.matrix @ whitener.T / NUM_RECORDS - np.eye(DIMENSION)) ** 2))
    unshrunk = (scale / NUM_RECORDS * bound_of(asked, whitener)) ** 2 * DIMENSION * (DIMENSION + 1) / 2
    return np.array(found), unshrunk


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_noise_alone_leaves_about_what_was_expected(scale):
    runs = 200
    found, unshrunk = noisy_runs(scale, runs)
    assert found.mean() + 4 * found.std() / np.sqrt(runs) < unshrunk
    assert found.mean() > 0.01 * unshrunk  # the comparison is of like with like


def test_a_curvature_that_was_measured_is_doubted_less():
    records, rows = covariates(seed=1), covariates(correlation=0.0, seed=2)
    expected, found = assumed(rows), []
    for noise in (0.4, 40.0):
        asked = asked_of(rows, expected, noise)
        found.append(told(released(records, asked), asked, expected, rows, noise))
        assert found[-1].error < expected.error
    assert found[0].noise < found[1].noise
    assert found[0].error <= found[1].error


def test_what_noise_hides_is_doubted_though_nothing_was_seen():
    """Rows that are right, so that all of the difference is shrunk away; and noise that hides as much as it likes."""
    rows = covariates()
    expected, errors = assumed(rows), []
    for noise in (1.0, 1e5):
        asked = asked_of(rows, expected, noise)
        errors.append(told(released(rows, asked), asked, expected, rows, noise).error)
    assert errors[0] < 0.2 * expected.error
    assert errors[1] >= expected.error


def test_distances_are_in_the_metric_of_the_whitener():
    rows = covariates()
    curvature = assumed_curvature(information(rows), root_of(information(rows), -0.5), NUM_RECORDS)
    steps = np.array([[0.1, -0.2, 0.3], [1.0, 0.0, -1.0]])
    found = curvature.distances(steps)
    np.testing.assert_allclose(found @ found.T, steps @ information(rows) @ steps.T)


def test_noise_makes_small_curvatures_doubtful_and_large_ones_not():
    """H D is as H where a direction has much curvature, and far below it where it has as little as noise hides."""
    sizes = np.array([0.1, 1.0, 10.0])
    curvature = MeasuredCurvature(NUM_RECORDS * np.diag(sizes), np.eye(DIMENSION), np.eye(DIMENSION), 0.1, 0.15)
    kept = np.diag(curvature.doubted(NUM_RECORDS, 0.25))
    assert kept[0] < 0.5
    np.testing.assert_array_equal(kept[1:], 1.0)
    unknown = curvature._replace(noise=0.0, error=1.0).doubted(NUM_RECORDS, 0.25)
    np.testing.assert_allclose(unknown, np.eye(DIMENSION) / 1.75)


def test_doubt_is_in_the_metric_of_the_whitener():
    records, rows = covariates(seed=1), covariates(correlation=0.0, seed=2)
    whitener = root_of(information(rows), -0.5)
    matrix = NUM_RECORDS * information(records)
    least = matrix @ MeasuredCurvature(matrix, information(rows), whitener, 0.2, 0.15).doubted(NUM_RECORDS, 0.25)
    np.testing.assert_allclose(least, least.T, rtol=1e-8)
    white, before = (np.linalg.eigvalsh(whitener @ each @ whitener / NUM_RECORDS) for each in (least, matrix))
    np.testing.assert_allclose(white, before / (1 + np.maximum(np.hypot(0.15, 0.3 / before) - 0.25, 0)), rtol=1e-6)


def test_a_curvature_is_the_same_at_the_same_point():
    records, rows = covariates(seed=1), covariates(correlation=0.0, seed=2)
    measured = assumed_curvature(information(rows), np.eye(DIMENSION), NUM_RECORDS)
    measured = measured._replace(matrix=NUM_RECORDS * information(records))
    np.testing.assert_allclose(elsewhere(measured, information(rows)), measured.matrix, rtol=1e-9)


def test_a_curvature_follows_the_model_elsewhere():
    """Exactly where rows are the records; else most of the way. Far off is where responses are nearly certain."""
    records, rows = covariates(seed=1), covariates(correlation=0.0, seed=2)
    there = 2 * POINT
    truth = NUM_RECORDS * information(records, there)
    own = assumed_curvature(information(records), np.eye(DIMENSION), NUM_RECORDS)
    assert off(elsewhere(own, information(records, there)), truth) < 1e-9
    other = own._replace(information=information(rows))
    stayed, followed = own.matrix, elsewhere(other, information(rows, there))
    assert off(followed, truth) < 0.4 * off(stayed, truth)
    assert off(followed, truth) < 0.4 * off(NUM_RECORDS * information(rows, there), truth)
    assert np.all(np.linalg.eigvalsh(followed) > 0)
