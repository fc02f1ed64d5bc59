"""The curvature that noisy, clipped sums of Hessians tell, for Hessians that are known."""

from __future__ import annotations

import numpy as np
import pytest
from support.metric import root_of, triangle

from dpvi.posterior.metric.curvature import (
    CurvatureClipping,
    assumed_curvature,
    curvature_clipping,
    elsewhere,
    measured_curvature,
)

DIMENSION, NUM_RECORDS = 3, 4000
POINT = np.array([0.5, -0.8, 0.3])
LOOSE, TIGHT = 1e-9, 0.03  # noise of a mean that lets everything through, and that clips


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


def released(records: np.ndarray, whitener: np.ndarray, bound: float) -> np.ndarray:
    """What is asked for, without noise: Σ v(W h Wᵀ) min(1, 1/‖W h Wᵀ‖) with W = V/√bound."""
    white = whitener @ hessians(records) @ whitener.T / bound
    sizes = np.linalg.norm(white, axis=(1, 2))
    return triangle((white / np.maximum(sizes, 1)[:, None, None]).sum(axis=0))


def clipping_of(rows: np.ndarray, whitener: np.ndarray, noise: float) -> CurvatureClipping:
    return curvature_clipping(hessians(rows), np.full(len(rows), 1 / len(rows)), whitener, noise)


def off(found: np.ndarray, truth: np.ndarray) -> float:
    """‖S^(−½) M S^(−½) − I‖: how far a matrix is from the truth, whatever the parameters' scales."""
    root = root_of(truth, -0.5)
    return float(np.linalg.norm(root @ found @ root - np.eye(len(truth)), 2))


@pytest.mark.parametrize("noise", [LOOSE, TIGHT])
def test_clipping_is_undone(noise):
    """Rows like the records; what was expected beforehand has another shape."""
    records = covariates()
    truth = information(records)
    thought = np.diag([0.3, 0.1, 0.2])
    whitener = root_of(thought, -0.5)
    clipping = clipping_of(records, whitener, noise)
    found = released(records, whitener, clipping.bound)
    curvature = measured_curvature(
        found, assumed_curvature(thought, whitener, NUM_RECORDS), clipping, 1e-9, NUM_RECORDS
    )
    assert off(curvature.matrix, NUM_RECORDS * truth) < 1e-5
    np.testing.assert_allclose(curvature.matrix, curvature.matrix.T)
    assert off(NUM_RECORDS * thought, NUM_RECORDS * truth) > 0.5
    plain = clipping._replace(whole=clipping.clipped)  # as if nothing had to be undone
    naive = measured_curvature(found, assumed_curvature(thought, whitener, NUM_RECORDS), plain, 1e-9, NUM_RECORDS)
    assert (off(naive.matrix, NUM_RECORDS * truth) > 0.1) == (noise == TIGHT)


def test_clipping_is_undone_well_where_rows_are_not_the_records():
    records, rows = covariates(seed=1), covariates(correlation=0.0, seed=2)
    truth, thought = information(records), information(rows)
    whitener = root_of(thought, -0.5)
    clipping = clipping_of(rows, whitener, TIGHT)
    found = released(records, whitener, clipping.bound)
    expected = assumed_curvature(thought, whitener, NUM_RECORDS)
    curvature = measured_curvature(found, expected, clipping, 1e-9, NUM_RECORDS)
    plain = measured_curvature(found, expected, clipping._replace(whole=clipping.clipped), 1e-9, NUM_RECORDS)
    assert off(curvature.matrix, NUM_RECORDS * truth) < 0.5 * off(plain.matrix, NUM_RECORDS * truth)
    assert off(curvature.matrix, NUM_RECORDS * truth) < 0.2 * off(expected.matrix, NUM_RECORDS * truth)


def test_a_bound_follows_the_noise():
    rows = covariates()
    whitener = root_of(information(rows), -0.5)
    loose, tight = (clipping_of(rows, whitener, noise) for noise in (LOOSE, TIGHT))
    assert tight.bound < loose.bound
    np.testing.assert_allclose(loose.whole, loose.clipped, atol=1e-9)
    np.testing.assert_allclose(loose.whole, np.eye(DIMENSION), atol=1e-9)
    assert np.trace(tight.clipped) < 0.95 * np.trace(tight.whole)


def noisy_runs(scale: float, runs: int) -> tuple[np.ndarray, float]:
    """‖E‖² of curvatures that are as expected but for noise, and the same before anything was shrunk."""
    random, rows = np.random.default_rng(3), covariates()
    truth = information(rows)
    whitener, noise = root_of(truth, -0.5), scale / NUM_RECORDS
    clipping = clipping_of(rows, whitener, noise)
    expected, exact = assumed_curvature(truth, whitener, NUM_RECORDS), released(rows, whitener, clipping.bound)
    found = []
    for _ in range(runs):
        answer = exact + scale * random.normal(size=exact.shape)
        curvature = measured_curvature(answer, expected, clipping, noise, NUM_RECORDS)
        found.append(np.sum((whitener @ curvature.matrix @ whitener.T / NUM_RECORDS - np.eye(DIMENSION)) ** 2))
    unshrunk = (noise * clipping.bound) ** 2 * DIMENSION * (DIMENSION + 1) / 2
    return np.array(found), unshrunk


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_noise_alone_leaves_about_what_was_expected(scale):
    runs = 200
    found, unshrunk = noisy_runs(scale, runs)
    assert found.mean() + 4 * found.std() / np.sqrt(runs) < unshrunk
    assert found.mean() > 0.01 * unshrunk  # the comparison is of like with like


def test_a_curvature_that_was_measured_is_doubted_less():
    records, rows = covariates(seed=1), covariates(correlation=0.0, seed=2)
    whitener = root_of(information(rows), -0.5)
    expected = assumed_curvature(information(rows), whitener, NUM_RECORDS)
    found = {}
    for noise in (1e-4, 1e-2):
        clipping = clipping_of(rows, whitener, noise)
        found[noise] = measured_curvature(
            released(records, whitener, clipping.bound), expected, clipping, noise, NUM_RECORDS
        )
        assert found[noise].error < expected.error
    assert found[1e-4].noise < found[1e-2].noise


def test_distances_are_in_the_metric_of_the_whitener():
    rows = covariates()
    curvature = assumed_curvature(information(rows), root_of(information(rows), -0.5), NUM_RECORDS)
    steps = np.array([[0.1, -0.2, 0.3], [1.0, 0.0, -1.0]])
    found = curvature.distances(steps)
    np.testing.assert_allclose(found @ found.T, steps @ information(rows) @ steps.T)


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
