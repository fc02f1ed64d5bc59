"""Statistical assertions: the tolerance comes from the standard error, corrected for the number of comparisons.

Each assertion has false-alarm probability ``LEVEL`` under the truth. Keys are fixed, so a test that passes once passes
always; a power check calls the same assertion with a named wrong answer inside ``pytest.raises(AssertionError)``.
"""

from __future__ import annotations

import numpy as np
import scipy.stats

LEVEL = 1e-4


def tolerance(num_comparisons: int = 1) -> float:
    """How many standard errors the largest of so many normal deviations stays within, except with probability LEVEL."""
    return float(scipy.stats.norm.isf(LEVEL / (2 * num_comparisons)))


def assert_close(estimate, expected, standard_error) -> None:
    """Every estimate lies within its standard errors of the expectation."""
    deviations = np.abs((np.asarray(estimate) - np.asarray(expected)) / np.asarray(standard_error))
    worst, allowed = float(np.max(deviations)), tolerance(deviations.size)
    if not worst <= allowed:
        raise AssertionError(f"largest deviation is {worst:.2f} standard errors, allowed are {allowed:.2f}")


def assert_rates(successes, trials: int, probability) -> None:
    """Counts of successes in ``trials`` are those of ``probability``, each."""
    probability = np.asarray(probability, dtype=float)
    standard_error = np.sqrt(probability * (1 - probability) / trials)
    assert_close(np.asarray(successes) / trials, probability, standard_error)


def assert_variance(samples, expected) -> None:
    """The variance along the first axis is ``expected``; its standard error is taken from the fourth moment."""
    variance, standard_error = variance_with_error(samples)
    assert_close(variance, expected, standard_error)


def variance_with_error(samples) -> tuple[np.ndarray, np.ndarray]:
    """Sample variance along the first axis and its standard error."""
    squares = (samples - np.mean(samples, axis=0)) ** 2
    return np.mean(squares, axis=0), np.std(squares, axis=0) / np.sqrt(len(samples))


def assert_frequencies(observed, probabilities) -> None:
    """Pearson's chi-square of counts against the probabilities of all cells, each expected at least five times."""
    observed, probabilities = np.asarray(observed), np.asarray(probabilities, dtype=float)
    expected = observed.sum() * probabilities / probabilities.sum()
    assert expected.min() >= 5, "merge cells first"
    p_value = scipy.stats.chi2.sf(np.sum((observed - expected) ** 2 / expected), observed.size - 1)
    if not p_value >= LEVEL:
        raise AssertionError(f"chi-square test rejects with p = {p_value:.2g}")


def assert_normal(draws, standard_deviation: float = 1.0) -> None:
    """Kolmogorov-Smirnov test of centred normals."""
    p_value = scipy.stats.kstest(np.ravel(draws), scipy.stats.norm(scale=standard_deviation).cdf).pvalue
    if not p_value >= LEVEL:
        raise AssertionError(f"Kolmogorov-Smirnov test rejects with p = {p_value:.2g}")
