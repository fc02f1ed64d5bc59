"""The same fractions and curves as the ``tarp`` package 0.1.1, given equal reference points.

The package is a cross-check only. Its random references lie in [0, 1]^d whatever the scale of the parameters, ``norm``
rescales draws and truths but not given references, the ends of its levels are the extremes of f and not 0 and 1, and
its bootstrap overwrites its input. It needs tqdm and deprecation, which it does not declare.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpvi.evaluate import tarp

package = pytest.importorskip("tarp", reason="the cross-check needs tarp 0.1.1, with tqdm and deprecation")


@pytest.fixture
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    samples, truths = rng.normal(size=(200, 300, 3)) * [1, 5, 0.1], rng.normal(size=(200, 3)) * [1, 5, 0.1]
    return samples, truths, samples.mean(axis=1) + samples.std(axis=1) * rng.uniform(-4, 4, (200, 3))


def theirs(samples, truths, references, bins):
    return package.get_tarp_coverage(
        np.swapaxes(samples, 0, 1), truths, references=references, norm=False, num_alpha_bins=bins, seed=0
    )


def fractions(samples, truths, references) -> np.ndarray:
    """The package's f: with one simulation and one bin, its level edges are f ± ½."""
    one = [theirs(samples[k : k + 1], truths[k : k + 1], references[k : k + 1], 1)[1] for k in range(len(truths))]
    return np.mean(one, axis=1)


def test_joint_fractions_are_equal(problem):
    np.testing.assert_allclose(tarp(*problem).ranks[0], fractions(*problem), rtol=0, atol=1e-12)


def test_marginal_fractions_are_equal(problem):
    samples, truths, references = problem
    ours = tarp(*problem, marginal=True).ranks[0]
    for i in range(3):
        column = slice(i, i + 1)
        expected = fractions(samples[..., column], truths[:, column], references[:, column])
        np.testing.assert_allclose(ours[:, i], expected, rtol=0, atol=1e-12)


def test_coverage_curves_are_equal(problem):
    samples, truths, references = problem
    coverage, edges = theirs(samples, truths, references, 37)
    inner = edges[1:-1]  # the last edge is the largest f, which their last bin includes
    assert np.min(np.abs(inner[:, None] - np.arange(301) / 300)) > 1e-6  # no edge on a possible f
    ours = tarp(samples, truths, references, levels=inner).coverage[0]
    np.testing.assert_allclose(ours, coverage[1:-1], atol=1e-12)
