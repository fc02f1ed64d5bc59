"""Calibration of predicted probabilities: among predictions of 0.3, three in ten should come true.

Two summaries of the same curve. :func:`calibration_rmse` is the number of NA-DPVI's Table 3: it reads the curve
sideways, as the mean score at a given fraction of positives, and extrapolates it to 0.01 and 0.99.
:func:`binned_calibration_rmse` weighs each bin's error by its count, invents nothing, and is the one to trust.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_FRACTIONS = np.linspace(0.01, 0.99, 100)


class CalibrationCurve(NamedTuple):
    """One entry for each bin, in the order of rising scores."""

    mean_score: np.ndarray
    fraction_positive: np.ndarray
    num_records: np.ndarray


def calibration_curve(probabilities: Any, labels: Any, num_bins: int = 10) -> CalibrationCurve:
    """Mean score and fraction of positives in bins of equal count.

    Records are sorted by score and cut into ``num_bins`` runs whose lengths differ by at most one. Records with the
    same score share the mean of their labels, so a cut through them gives the same curve for any order of the records.

    Parameters
    ----------
    probabilities
        Predicted probabilities of label 1, (n,).
    labels
        Zeros and ones, (n,).
    num_bins
        Number of bins, at most n.

    Examples
    --------
    >>> curve = calibration_curve([0.1, 0.9, 0.2, 0.7], [0, 1, 0, 1], num_bins=2)
    >>> curve.mean_score.round(2), curve.fraction_positive
    (array([0.15, 0.8 ]), array([0., 1.]))
    """
    score, label = _checked(probabilities, labels)
    if not 1 <= num_bins <= len(score):
        raise ValueError(f"num_bins must lie between 1 and the number of records, {len(score)}, got {num_bins!r}.")
    _, group, size = np.unique(score, return_inverse=True, return_counts=True)
    shared = (np.bincount(group, weights=label) / size)[group]
    order = np.argsort(score)
    bins = np.array_split(order, num_bins)
    return CalibrationCurve(
        np.array([score[rows].mean() for rows in bins]),
        np.array([shared[rows].mean() for rows in bins]),
        np.array([len(rows) for rows in bins]),
    )


def calibration_rmse(probabilities: Any, labels: Any, num_bins: int = 10) -> float:
    """Calibration RMSE of NA-DPVI's Table 3: the curve interpolated at 100 fractions of positives.

    With s(p) the mean score as a piecewise linear function of the fraction of positives p, extended beyond the outer
    bins along the outer segments: √((1/100) Σ_j (p_j − s(p_j))²), p_j from 0.01 to 0.99 in equal steps. This is not a
    Brier score. The outer segments carry much of it: the rarer extreme scores are, the further it extrapolates.

    Returns
    -------
    float
        The error of one run; the paper reports mean and standard deviation over runs.

    Notes
    -----
    =====================================  ==================================================================
    edge                                   what happens
    =====================================  ==================================================================
    bins with equal fractions              merged into one point, with their mean score weighted by count
    fractions that fall as scores rise     bins are sorted by fraction first, as in the published code
    two fractions almost equal, outermost  a steep segment is extrapolated; the number is large, as published
    one fraction in all bins               ``ValueError``: there is no line; the published code skips the run
    =====================================  ==================================================================

    References
    ----------
    NA-DPVI, section 5.3 and appendix H.6, with the interpolation of its published code.

    Examples
    --------
    >>> scores = np.repeat([0.2, 0.8], 50)
    >>> labels = np.tile(np.repeat([0, 1], [4, 1]), 10).tolist() + np.tile(np.repeat([0, 1], [1, 4]), 10).tolist()
    >>> round(calibration_rmse(scores, labels, num_bins=2), 6)
    0.0
    """
    curve = calibration_curve(probabilities, labels, num_bins)
    fraction, group = np.unique(curve.fraction_positive, return_inverse=True)
    weight = np.bincount(group, weights=curve.num_records)
    score = np.bincount(group, weights=curve.num_records * curve.mean_score) / weight
    if len(fraction) < 2:
        raise ValueError(
            f"All {num_bins} bins have the same fraction of positives, {fraction[0]:.3g}, so no curve passes through "
            "them. Use binned_calibration_rmse, which needs none."
        )
    left = np.clip(np.searchsorted(fraction, _FRACTIONS) - 1, 0, len(fraction) - 2)
    slope = np.diff(score)[left] / np.diff(fraction)[left]
    line = score[left] + slope * (_FRACTIONS - fraction[left])
    return float(np.sqrt(np.mean((_FRACTIONS - line) ** 2)))


def binned_calibration_rmse(probabilities: Any, labels: Any, num_bins: int = 10) -> float:
    """√(Σ_b w_b (fraction_b − score_b)²), w_b the share of records in bin b. Not the paper's number.

    A perfect prediction shows about √(Σ_b w_b p_b(1 − p_b)/n_b) of it by chance, with n_b records of mean label p_b in
    bin b: near 0.009 for 15,060 records, ten bins and labels like those of Adult.

    Examples
    --------
    >>> round(binned_calibration_rmse(np.full(100, 0.5), np.repeat([0, 1], [40, 60])), 6)
    0.1
    """
    curve = calibration_curve(probabilities, labels, num_bins)
    error = (curve.fraction_positive - curve.mean_score) ** 2
    return float(np.sqrt(np.average(error, weights=curve.num_records)))


def _checked(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    score, label = np.asarray(probabilities, np.float64), np.asarray(labels, np.float64)
    if score.ndim != 1 or score.shape != label.shape or len(score) == 0:
        raise ValueError(f"probabilities and labels must be vectors of one length, got {score.shape}, {label.shape}.")
    if not np.all((score >= 0) & (score <= 1)):
        bad = int(np.sum(~((score >= 0) & (score <= 1))))
        raise ValueError(f"{bad} of {len(score)} probabilities are NaN or outside [0, 1].")
    certain, labelled = (bool(np.all((each == 0) | (each == 1))) for each in (score, label))
    if certain and not labelled:
        raise ValueError(
            "The first argument holds zeros and ones alone and the second does not: they are in scikit-learn's order. "
            "Here probabilities come first, as in calibration_curve(probabilities, labels)."
        )
    if not labelled:
        raise ValueError("labels must be 0 or 1.")
    if certain:
        raise ValueError(
            "All probabilities are exactly 0 or 1, as labels, decisions and draws of a response are, so they have no "
            "calibration curve. Pass probabilities first and labels second; the mean of a response's draws over the "
            "draws is such a probability."
        )
    return score, label
