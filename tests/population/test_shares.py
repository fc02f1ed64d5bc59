"""Shares from noisy counts: nearer to the truth than the counts themselves, whatever shape the truth has."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from dpvi.population.shares import onto_simplex, shares_of

BINS = 32
MIDDLES = (np.arange(BINS) + 0.5) / BINS * 8 - 4
NORMAL = np.diff(scipy.stats.norm.cdf(np.linspace(-4, 4, BINS + 1)))
NORMAL /= NORMAL.sum()
SPIKE = np.full(BINS, 0.08 / (BINS - 1))
SPIKE[0] = 0.92
MODES = 0.5 * (np.roll(NORMAL, 8) + np.roll(NORMAL, -8))
N = 5000


def repeated(truth, noise_scale, ordered, repeats=50):
    random = np.random.default_rng(0)
    noisy = N * truth + noise_scale * random.normal(size=(repeats, BINS))
    return noisy, np.stack([shares_of(row, N, noise_scale, ordered) for row in noisy])


@pytest.mark.parametrize(
    ("truth", "ordered", "noise_scale", "ratio"),
    [
        (NORMAL, True, 20.0, 0.7),
        (NORMAL, True, 100.0, 0.7),
        (MODES, True, 100.0, 0.7),
        (SPIKE, False, 100.0, 0.7),
        (SPIKE, True, 20.0, 0.7),
        (SPIKE, True, 100.0, 1.2),  # at this noise some of the spike is smoothed away
    ],
)
def test_shares_are_nearer_than_projected_counts(truth, ordered, noise_scale, ratio):
    noisy, found = repeated(truth, noise_scale, ordered)
    projected = np.stack([onto_simplex(row / N) for row in noisy])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found.min() >= 0
    error, plain = (np.mean(np.sum((shares - truth) ** 2, axis=1)) for shares in (found, projected))
    assert error < ratio * plain


def test_noise_adds_no_tails():
    """The variance of a normal column; projected counts overstate it by a third."""
    noisy, found = repeated(NORMAL, 53.0, ordered=True)
    variance = found @ MIDDLES**2 - (found @ MIDDLES) ** 2
    assert variance.mean() == pytest.approx(1.0, abs=4 * variance.std() / np.sqrt(len(variance)) + 0.02)
    projected = np.stack([onto_simplex(row / N) for row in noisy])
    assert np.mean(projected @ MIDDLES**2 - (projected @ MIDDLES) ** 2) > 1.2


def test_without_noise_counts_are_kept():
    random = np.random.default_rng(1)
    truth = random.dirichlet(np.full(BINS, 0.3))
    np.testing.assert_allclose(shares_of(1e7 * truth, 1e7, 1.0, ordered=False), truth, atol=1e-4)


def test_projection_is_the_nearest_point_of_the_simplex():
    random = np.random.default_rng(0)
    for _ in range(20):
        values = random.normal(size=6)
        nearest = onto_simplex(values)
        others = random.dirichlet(np.ones(6), size=2000)
        assert np.linalg.norm(nearest - values) <= np.linalg.norm(others - values, axis=1).min()
