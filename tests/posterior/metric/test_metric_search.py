"""The way from the prior's centre to the answer, by what blocks of clipped scores far from it say."""

from __future__ import annotations

import numpy as np
import pytest
from support.measuring import DIMENSION, measuring_plan, regression_model

from dpvi.posterior.metric.blocks import Blocks, Measured
from dpvi.posterior.metric.search import search
from dpvi.posterior.metric.simulator import Simulator
from dpvi.posterior.score.model import ScoreModel

NUM_RECORDS = 5000.0
TRUTH = np.array([1.5, -1.0, 0.7])
START = np.zeros(DIMENSION)
METRIC = 2 * np.eye(DIMENSION)  # clips most records


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    rows = np.random.default_rng(0).normal(size=(2000, DIMENSION))
    return Simulator(ScoreModel(regression_model(), measuring_plan()), [rows], NUM_RECORDS, 0)


def measured_at_the_start(simulator: Simulator, noise: float) -> Measured:
    """What records drawn at the truth give, as a mean and with noise, from one block at the start."""
    query, metric = np.stack([START] * 2), np.stack([METRIC, 0 * METRIC])  # the second says nothing
    exact = simulator.expected(TRUTH, TRUTH, Blocks(query, metric)).mean
    released = exact + noise * np.random.default_rng(1).normal(size=exact.shape) * np.array([[1.0], [0.0]])
    return Measured(Blocks(query, metric), released, np.full(2, noise), np.zeros((2, DIMENSION, DIMENSION)))


def test_the_truth_is_found_from_far_away(simulator):
    """But for the prior, which pulls by a hundredth. A step by the slope at the start ends somewhere else."""
    measured = measured_at_the_start(simulator, 1e-3)
    found = search(simulator, measured, START, 0.0)
    np.testing.assert_allclose(found.z, TRUTH, rtol=0.02)
    slope = simulator.expected(START, START, measured.blocks).jacobian[0]
    assert np.linalg.norm(np.linalg.solve(slope, measured.released[0]) - TRUTH) > 0.5


def test_noise_moves_the_point_by_as_much_as_it_explains(simulator):
    noise = 20.0
    measured = measured_at_the_start(simulator, noise)
    found = search(simulator, measured, START, 0.0)
    off = found.z - TRUTH
    slope = simulator.expected(found.z, found.z, measured.blocks).jacobian[0]
    assert np.sum((slope @ off / noise) ** 2) < 21.1  # the quantile 0.9999 of chi-square with three degrees
    assert np.linalg.norm(off) > 1e-3
    # one block's noise and the prior, whose precision is one, are all that there is
    precision = slope.T @ slope / noise**2 + np.eye(DIMENSION)
    np.testing.assert_allclose(found.covariance @ precision, np.eye(DIMENSION), atol=0.05)
    assert off @ np.linalg.solve(found.covariance, off) < 21.1


def test_without_anything_measured_the_prior_is_the_answer(simulator):
    measured = measured_at_the_start(simulator, 1e9)
    found = search(simulator, measured, START, 0.0)
    np.testing.assert_allclose(found.z, 0.0, atol=0.05)
    np.testing.assert_allclose(found.covariance, np.eye(DIMENSION), atol=0.05)
