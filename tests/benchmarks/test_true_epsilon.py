"""Fixed-size batches cost exactly what Poisson batches cost at half the noise: held against enumerated mixtures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from harness.tasks import LOGISTIC, VAE
from harness.true_epsilon import calibrated, hidden_epsilon, sampling_rate

from dpvi.privacy import delta

SIGMA, CLIP_NORM = 1.5, 1.0
GRID = np.linspace(-30.0, 30.0, 60_001)


def density(gradients: np.ndarray, batch_size: int) -> np.ndarray:
    """Of the noisy sum over ``batch_size`` records without replacement, by going through all batches."""
    sums = [sum(batch) for batch in itertools.combinations(gradients, batch_size)]
    each = np.exp(-0.5 * ((GRID[:, None] - np.array(sums)) / SIGMA) ** 2) / (SIGMA * np.sqrt(2 * np.pi))
    return each.mean(axis=1)


def spent(gradients: np.ndarray, batch_size: int, epsilon: float) -> float:
    """δ of one step when the first record may be left out, in the worse direction."""
    with_record, without = density(gradients, batch_size), density(gradients[1:], batch_size)
    step = GRID[1] - GRID[0]
    return max(
        float(np.sum(np.maximum(0, left - np.exp(epsilon) * right)) * step)
        for left, right in ((with_record, without), (without, with_record))
    )


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_the_worst_records_reach_the_bound(epsilon):
    gradients = CLIP_NORM * np.array([1.0] + [-1.0] * 7)
    bound = delta(SIGMA / 2, epsilon, 2 / 8, 1)
    found = spent(gradients, 2, epsilon)
    assert found == pytest.approx(bound, rel=1e-3)
    assert found > 1.5 * delta(SIGMA, epsilon, 2 / 8, 1)  # the formula for Poisson batches at full noise is no bound


def test_no_records_exceed_the_bound():
    generator = np.random.default_rng(0)
    for _ in range(20):
        gradients = generator.uniform(-CLIP_NORM, CLIP_NORM, 7)
        assert spent(gradients, 3, 0.3) <= delta(SIGMA / 2, 0.3, 3 / 7, 1)


def test_every_sampling_is_calibrated_to_the_same_epsilon():
    poisson, fixed = calibrated(LOGISTIC, "Poisson"), calibrated(LOGISTIC, "fixed size")
    for found in (poisson, fixed):
        assert found["true_epsilon"] == pytest.approx(LOGISTIC.epsilon, rel=1e-3)
        assert found["true_epsilon"] <= LOGISTIC.epsilon * (1 + 1e-6)
    assert fixed["noise_multiplier"] == pytest.approx(2 * poisson["noise_multiplier"])
    assert fixed["epsilon_by_the_poisson_formula"] < 0.5
    assert hidden_epsilon(LOGISTIC) > 4


def test_opacus_derives_its_rate_from_the_number_of_batches():
    assert sampling_rate(LOGISTIC, "Poisson, 1/⌈N/B⌉") == LOGISTIC.sampling_rate
    assert sampling_rate(VAE, "Poisson, 1/⌈N/B⌉") == 1 / 469 != VAE.sampling_rate
