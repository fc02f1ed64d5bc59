"""Noisy histograms: right counts, right noise, and a sensitivity that holds for any record."""

from __future__ import annotations

import dataclasses

import hypothesis
import hypothesis.extra.numpy
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from support.statistics import assert_frequencies

from dpvi.declared.columns import Constant, Levels, Numeric, OneHot
from dpvi.declared.plan import GaussianRelease
from dpvi.mechanism.histogram import noisy_histograms
from dpvi.mechanism.rng import histogram_stream, root_key, streams

COLUMNS = (Numeric(0, 10, bins=5), Levels((0.0, 1.0, 4.0)), OneHot(3), OneHot(3, reference=True), Constant())
WIDTH, BINS = 8, 14
SILENT = GaussianRelease("histograms", 1.0, 1, 0.0, 2.0)


def counts(matrix, columns=COLUMNS):
    return noisy_histograms(columns, [[matrix]], SILENT, histogram_stream(root_key(0)))


def test_every_kind_of_column_counts_as_declared():
    rows = np.array(
        [
            [-3.0, 0.4, 1, 0, 0, 0, 0, 1],
            [10.0, 0.6, 0, 1, 0, 1, 0, 1],
            [5.9, 99.0, 0, 0, 1, 0, 1, 1],
        ]
    )
    expected = [[1, 0, 1, 0, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]]
    np.testing.assert_array_equal(counts(rows), np.concatenate(expected))


def test_leaves_are_columns_side_by_side():
    rows = np.random.default_rng(0).uniform(size=(50, WIDTH))
    halves = noisy_histograms(COLUMNS, [[rows[:, :3], rows[:, 3:]]], SILENT, histogram_stream(root_key(0)))
    np.testing.assert_array_equal(halves, counts(rows))


def test_without_bins_the_number_of_records_is_counted():
    np.testing.assert_array_equal(counts(np.ones((7, 1)), (Constant(),)), [7.0])


@hypothesis.given(
    hypothesis.extra.numpy.arrays(
        np.float64, (4, WIDTH), elements=st.floats(allow_nan=True, allow_infinity=True, width=32)
    )
)
def test_one_record_moves_the_counts_by_at_most_the_clip_norm(rows):
    moved = counts(rows) - counts(rows[:-1])
    assert np.linalg.norm(moved) <= SILENT.clip_norm
    assert moved.shape == (BINS,)


def test_noise_has_the_scale_of_the_release_and_its_own_stream():
    columns, num_bins = (Numeric(0, 1, bins=4000),), 4000
    loud = dataclasses.replace(SILENT, noise_multiplier=3.0, clip_norm=1.0)
    nobody = np.full((1, 1), np.nan)
    noise = noisy_histograms(columns, [[nobody]], loud, histogram_stream(root_key(1)))
    assert noise.shape == (num_bins,)
    np.testing.assert_array_equal(noise, np.round(noise))  # whole numbers: no digit shows what noise was added to
    edges = np.concatenate([[-np.inf], np.arange(-7, 8) + 0.5, [np.inf]])
    observed = np.histogram(noise, edges)[0]
    assert_frequencies(observed, np.diff(scipy.stats.norm.cdf(edges / 3.0)))
    for wrong in (0.9, 1.1):
        with pytest.raises(AssertionError):
            assert_frequencies(observed, np.diff(scipy.stats.norm.cdf(edges / (3.0 * wrong))))
    same_run = streams(root_key(1))
    from_steps = noisy_histograms(columns, [[nobody]], loud, same_run.noise)
    assert abs(np.corrcoef(noise, from_steps)[0, 1]) < 4 / np.sqrt(num_bins)
