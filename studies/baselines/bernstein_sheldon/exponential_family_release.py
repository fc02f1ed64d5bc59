"""Noisy sums of sufficient statistics of Bernoulli, categorical and exponential records: the side that sees records.

The number of records is public, as the method needs it; everything else about the records is behind the noise. A value
outside its declared range is moved into it, and a missing one counts as the lower bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpvi.declared import validation
from studies.baselines.bernstein_sheldon.mechanism import Mechanism, Sensitivity, add_noise
from studies.baselines.bernstein_sheldon.noise import NoisySums


def release_bernoulli(records: Any, mechanism: Mechanism, *, seed: int | None = None) -> NoisySums:
    """Noisy number of ones, z = Σx_i + e.

    Parameters
    ----------
    records
        Zeros and ones, (N,).
    mechanism
        :class:`LaplaceMechanism` or :class:`GaussianMechanism`.
    seed
        None for fresh randomness; a whole number for studies.

    Guarantees
    ----------
    The sum has sensitivity 1 in both norms under add/remove; N is public and not protected.
    """
    values = _clamped(records, 0.0, 1.0)
    return _release(values[:, None], mechanism, Sensitivity(1.0, 1.0), 0.0, 1.0, seed)


def release_categorical(records: Any, num_classes: int, mechanism: Mechanism, *, seed: int | None = None) -> NoisySums:
    """Noisy counts of all classes but the last, whose count is N minus the others.

    Parameters
    ----------
    records
        Class numbers 0, …, M − 1, (N,). A record with any other number counts for the last class.
    num_classes
        M ≥ 2, declared.
    mechanism, seed
        As in :func:`release_bernoulli`.

    Guarantees
    ----------
    One record moves one count by one: sensitivity 1 in both norms under add/remove.
    """
    if num_classes != int(num_classes) or num_classes < 2:
        raise ValueError(f"num_classes must be a whole number of at least 2, got {num_classes!r}.")
    values = _vector(records)
    indicators = (values[:, None] == np.arange(num_classes - 1)).astype(np.float64)
    return _release(indicators, mechanism, Sensitivity(1.0, 1.0), 0.0, 1.0, seed)


def release_exponential(
    records: Any, bounds: tuple[float, float], mechanism: Mechanism, *, seed: int | None = None
) -> NoisySums:
    """Noisy sum of clamped waiting times, z = Σ min(max(x_i, a), b) + e.

    The paper drops records outside [a, b]; then their number is one more unknown, and the published sampler treats the
    sections as if it were not. A clamped sum has a fixed number of summands, whose moments the sampler knows exactly.

    Parameters
    ----------
    records
        Waiting times, (N,).
    bounds
        (a, b) with 0 ≤ a < b, declared without looking at the records.
    mechanism, seed
        As in :func:`release_bernoulli`.

    Guarantees
    ----------
    One record moves the sum by at most b, in both norms, under add/remove.
    """
    lower, upper = (validation.number("bounds", bound) for bound in bounds)
    if not (0 <= lower < upper < np.inf):
        raise ValueError(
            f"bounds must be 0 ≤ lower < upper < ∞, got {bounds!r}. Declare a range that waiting times rarely leave."
        )
    values = _clamped(records, lower, upper)
    return _release(values[:, None], mechanism, Sensitivity(upper, upper), lower, upper, seed)


def _release(
    statistics: np.ndarray, mechanism: Mechanism, sensitivity: Sensitivity, lower: float, upper: float, seed: int | None
) -> NoisySums:
    ((sums, noise),) = add_noise([statistics.sum(axis=0)], [sensitivity], mechanism, seed)
    return NoisySums(sums, noise, len(statistics), lower, upper)


def _vector(records: Any) -> np.ndarray:
    values = np.asarray(records, np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"records must be one number each, an array of shape (N,), got {values.ndim} axes.")
    return values


def _clamped(records: Any, lower: float, upper: float) -> np.ndarray:
    return np.clip(np.nan_to_num(_vector(records), nan=lower, posinf=upper, neginf=lower), lower, upper)
