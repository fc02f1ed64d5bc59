"""Coverage of central intervals over data sets whose parameters come from the prior."""

from __future__ import annotations

import numpy as np
from support.statistics import assert_rates


def assert_covers(draws: np.ndarray, truths) -> None:
    """Central 50 % and 90 % intervals hold the truth as often as they say; (data sets, draws[, parameters])."""
    truths = np.asarray(truths)
    ranks = np.mean(draws < truths[:, None], axis=1)
    for level in (0.5, 0.9):
        covered = np.sum(np.abs(ranks - 0.5) < level / 2, axis=0)
        assert_rates(covered, len(truths), np.full(np.shape(covered), level))


def with_little_noise(release):
    """The same release, and a sampler made to believe that its noise is a thousandth of what it is."""
    return release._replace(noise=release.noise._replace(scale=release.noise.scale / 1000))
