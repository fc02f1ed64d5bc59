"""Whether the answer covers: a linear model in which every block is exact, measured many times."""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np
import pytest
import scipy.stats
from support.statistics import assert_rates

from dpvi.posterior.metric.answer import Answer, answer
from dpvi.posterior.metric.blocks import Blocks, Measured
from dpvi.posterior.metric.curvature import MeasuredCurvature
from dpvi.posterior.metric.simulator import Expected, Simulator

answer_module = sys.modules[answer.__module__]  # the package gives its name to the function
DIMENSION, NUM_BLOCKS, NUM_RECORDS, RUNS = 2, 2, 1000.0, 500
INFORMATION = np.array([[1.0, 0.3], [0.3, 0.5]])  # of a record
WHITENER = np.linalg.inv(np.linalg.cholesky(INFORMATION))
CLIPS = np.array([3.0, 2.0])
NOISE = np.array([20.0, 10.0])
KEPT = np.array([0.9, 1.0])
QUERIES = np.array([[0.3, -0.2], [0.1, 0.1]])
WEAK, STRONG = 0.01, NUM_RECORDS  # precisions of a prior around zero


class Linear:
    """Stands in for a simulator: a model whose curvature is the same everywhere, and a normal prior."""

    num_records = NUM_RECORDS

    def __init__(self, precision: float) -> None:
        self.precision = precision * np.eye(DIMENSION)

    def information(self, z: np.ndarray) -> np.ndarray:
        return INFORMATION

    def prior_precision(self, z: np.ndarray) -> np.ndarray:
        return self.precision

    def expected(self, z: np.ndarray, reference: np.ndarray, blocks: Blocks) -> Expected:
        width = blocks.query.size
        return Expected(
            mean=np.zeros_like(blocks.query),
            jacobian=NUM_RECORDS * blocks.metric @ INFORMATION,
            information=INFORMATION,
            residual=np.zeros((width, width)),
            error=np.zeros((width, width)),
            log_prior=float(-0.5 * z @ self.precision @ z),
            prior_gradient=-self.precision @ z,
            prior_precision=self.precision,
        )


def exact_curvature(noise: float = 0.0) -> MeasuredCurvature:
    return MeasuredCurvature(NUM_RECORDS * INFORMATION, INFORMATION, WHITENER, noise, 0.0)


def draw_theta(precision: float, random: np.random.Generator) -> np.ndarray:
    """The answer without privacy of a data set drawn at parameters from the prior."""
    prior, data = precision * np.eye(DIMENSION), NUM_RECORDS * INFORMATION
    parameters = np.linalg.cholesky(np.linalg.inv(prior)) @ random.normal(size=DIMENSION)
    estimate = parameters + np.linalg.cholesky(np.linalg.inv(data)) @ random.normal(size=DIMENSION)
    return np.linalg.solve(data + prior, data @ estimate)


def blocks_at(
    theta: np.ndarray,
    precision: float,
    random: np.random.Generator,
    queries: np.ndarray = QUERIES,
    noise: np.ndarray = NOISE,
) -> Measured:
    """b_j = κ_j W_j (H (θ − q_j) − ∇log p(θ)) + noise."""
    metric = WHITENER / CLIPS[:, None, None]
    inside = NUM_RECORDS * (theta - queries) @ INFORMATION + precision * theta
    exact = KEPT[:, None] * np.einsum("jab,jb->ja", metric, inside)
    released = exact + noise[:, None] * random.normal(size=exact.shape)
    return Measured(Blocks(queries, metric), released, noise, np.zeros((NUM_BLOCKS, DIMENSION, DIMENSION)))


def answered(measured: Measured, precision: float, curvature: MeasuredCurvature | None = None) -> Answer:
    simulator = cast(Simulator, cast(Any, Linear(precision)))
    return answer(simulator, measured, curvature or exact_curvature(), KEPT, 0.0)


def covered(found: Answer, theta: np.ndarray) -> np.ndarray:
    """Whether θ is in the interval of each parameter and in the ellipse of both, at 95 per cent."""
    off = theta - found.mean
    alone = np.abs(off) < 1.96 * np.sqrt(np.diag(found.privacy))
    distance = off @ np.linalg.solve(found.privacy, off)
    return np.array([*alone, distance < scipy.stats.chi2.ppf(0.95, DIMENSION)])


def coverage(precision: float, seed: int, noise_thought: float = 1.0, runs: int = RUNS) -> np.ndarray:
    random = np.random.default_rng(seed)
    hits = []
    for _ in range(runs):
        theta = draw_theta(precision, random)
        measured = blocks_at(theta, precision, random)
        hits.append(covered(answered(measured._replace(noise=noise_thought * NOISE), precision), theta))
    return np.mean(hits, axis=0)


def assert_covers(found: np.ndarray, runs: int = RUNS) -> None:
    """Within two standard errors of 95 per cent. Widening for chance contradictions adds a fifth of a per cent."""
    standard_error = np.sqrt(0.95 * 0.05 / runs)
    assert np.all(np.abs(found - 0.952) < 2 * standard_error), found


def test_the_privacy_part_covers_the_answer_without_privacy():
    assert_covers(coverage(WEAK, seed=1))
    with pytest.raises(AssertionError):
        assert_covers(coverage(WEAK, seed=1, noise_thought=0.5, runs=200), runs=200)
    with pytest.raises(AssertionError):
        assert_covers(coverage(WEAK, seed=1, noise_thought=2.0, runs=200), runs=200)


def test_intervals_hold_where_the_prior_says_as_much_as_the_records():
    found, standard_error = coverage(STRONG, seed=2), np.sqrt(0.95 * 0.05 / RUNS)
    assert np.all(found > 0.95 - 2 * standard_error), found


def test_an_answer_far_from_the_priors_centre_is_held(monkeypatch):
    """Two and a half of its standard deviations in both directions, where blocks say less than the prior does."""
    precision, random = 0.02 * NUM_RECORDS, np.random.default_rng(9)
    theta, noise = np.array([2.5, -2.5]) / np.sqrt(precision), 40 * NOISE
    measured = [blocks_at(theta, precision, random, noise=noise) for _ in range(100)]
    held = []
    for times in (2.0, 1.0):
        monkeypatch.setattr(answer_module, "_SURPRISING", times)
        found = [answered(each, precision) for each in measured]
        held.append(np.mean([covered(each, theta)[:DIMENSION] for each in found]))
    assert held[0] > 0.9
    assert held[1] < 0.3


def test_the_answer_is_where_exact_blocks_say():
    random = np.random.default_rng(3)
    theta = np.array([0.2, 0.05])
    measured = blocks_at(theta, WEAK, random)
    exact = measured.released - NOISE[:, None] * _noise_again(3)
    found = answered(measured._replace(released=exact), WEAK)
    np.testing.assert_allclose(found.mean, theta, atol=1e-3 * np.sqrt(np.diag(found.privacy)).min())
    np.testing.assert_allclose(found.sampling, np.linalg.inv(NUM_RECORDS * INFORMATION + WEAK * np.eye(DIMENSION)))
    assert found.contradiction > 0.999
    assert found.inflation == 1.0
    np.testing.assert_array_equal(found.doubted, 0.0)


def _noise_again(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(NUM_BLOCKS, DIMENSION))


def test_p_values_are_uniform_and_a_contradiction_widens():
    random = np.random.default_rng(4)
    found = [answered(blocks_at(np.zeros(DIMENSION), WEAK, random), WEAK) for _ in range(400)]
    p_values = np.array([each.contradiction for each in found])
    assert_rates([np.sum(p_values < level) for level in (0.1, 0.5)], len(found), [0.1, 0.5])
    measured = blocks_at(np.zeros(DIMENSION), WEAK, random)
    shifted = measured._replace(released=measured.released + np.array([[8.0], [0.0]]) * NOISE[:, None])
    agreeing, contradicting = answered(measured, WEAK), answered(shifted, WEAK)
    assert contradicting.contradiction < 1e-3
    assert contradicting.inflation > 2
    np.testing.assert_allclose(contradicting.privacy, contradicting.inflation * agreeing.privacy / agreeing.inflation)
    np.testing.assert_allclose(contradicting.sampling, agreeing.sampling)


def test_blocks_that_say_nothing_change_nothing():
    """One block that counts, filled up with one whose metric is zero."""
    random = np.random.default_rng(5)
    measured = blocks_at(np.zeros(DIMENSION), WEAK, random)
    metric = measured.blocks.metric.copy()
    metric[1] = 0
    released = measured.released * np.array([[1.0], [0.0]])
    alone = measured._replace(blocks=Blocks(QUERIES, metric), released=released, noise=np.array([NOISE[0], 1.0]))
    found = answered(alone, WEAK)
    assert found.contradiction == 1.0
    assert found.inflation == 1.0
    both = answered(measured, WEAK)
    assert np.all(np.diag(found.privacy) > np.diag(both.privacy))
    expected = np.linalg.inv(
        (KEPT[0] / NOISE[0] * NUM_RECORDS / CLIPS[0]) ** 2 * INFORMATION @ WHITENER.T @ WHITENER @ INFORMATION
    )
    np.testing.assert_allclose(found.privacy, expected, rtol=1e-3)


def test_doubt_widens_in_its_direction_and_is_told():
    random = np.random.default_rng(6)
    measured = blocks_at(np.zeros(DIMENSION), WEAK, random)
    doubted = measured._replace(doubt=100.0 * np.stack([np.diag(NOISE[j] ** 2 * np.array([1.0, 0.0])) for j in (0, 1)]))
    plain, wide = answered(measured, WEAK), answered(doubted, WEAK)
    variances = [
        WHITENER @ INFORMATION @ each.privacy / each.inflation @ INFORMATION @ WHITENER.T for each in (plain, wide)
    ]
    assert variances[1][0, 0] > 10 * variances[0][0, 0]
    np.testing.assert_allclose(variances[1][1, 1], variances[0][1, 1], rtol=0.05)
    assert np.all((wide.doubted > 0) & (wide.doubted <= 1))
    assert wide.doubted.max() > 0.9


def far_coverage(noise_told: float, runs: int, noise_of_scores: float = 1.0) -> np.ndarray:
    """Blocks away from θ, answered with curvatures that have noise: η on the diagonal, η/√2 elsewhere."""
    random, noise, precision = np.random.default_rng(7), 0.05, 100.0
    queries, back, hits = np.full_like(QUERIES, 0.5), np.linalg.inv(WHITENER), []
    for _ in range(runs):
        theta = draw_theta(precision, random)
        drawn = random.normal(size=(DIMENSION, DIMENSION))
        error = noise * np.where(np.eye(DIMENSION) > 0, drawn, (drawn + drawn.T) / 2)
        matrix = NUM_RECORDS * (INFORMATION + back @ error @ back.T)
        curvature = exact_curvature(noise_told * noise)._replace(matrix=matrix)
        measured = blocks_at(theta, precision, random, queries, noise_of_scores * NOISE)
        hits.append(covered(answered(measured, precision, curvature), theta))
    return np.mean(hits, axis=0)


def test_noise_in_the_curvature_is_part_of_the_width():
    told, untold = far_coverage(1.0, 200), far_coverage(0.0, 200)
    assert np.all(told > 0.85)
    assert np.all(untold < 0.85)


def test_noise_in_the_curvature_is_covered():
    """Scores with hardly any noise, so that nothing else matters."""
    runs = 400
    assert np.all(far_coverage(1.0, runs, noise_of_scores=0.1) > 0.95 - 2 * np.sqrt(0.95 * 0.05 / runs))
