"""Releases of a plan that measures: all of them of all records, so that their composition is one Gaussian mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpvi.declared import validation
from dpvi.declared.columns import Column, checked_columns, counted
from dpvi.declared.measuring import Measuring
from dpvi.declared.plan import GRADIENTS, HISTOGRAMS, GaussianRelease
from dpvi.privacy.gaussian import gaussian_signal, limit_signal, sensitivity

_TOGETHER = (
    "A plan of steps states sampling_rate, num_steps and clip_norm, all three. With none of them, and with epsilon, a "
    "plan measures: it asks a handful of questions of all records."
)


def checked_measuring(
    measuring: Measuring | None, covariate_share: float | None, epsilon: float | None, schedule: Any, clipping: Any
) -> Measuring:
    """How a plan without steps divides its budget, once nothing was asked for that only steps have."""
    if epsilon is None or schedule is not None or clipping is not None:
        given = "noise_multiplier" if epsilon is None else "schedule" if clipping is None else "clipping"
        raise ValueError(
            f"{given} is a setting of steps, and sampling_rate, num_steps and clip_norm are not given. {_TOGETHER}"
        )
    if measuring is not None and covariate_share is not None:
        raise ValueError("Give covariate_share or measuring=dpvi.Measuring(covariate_share=...), not both.")
    if measuring is not None and not isinstance(measuring, Measuring):
        raise TypeError(f"measuring must be a dpvi.Measuring, got {measuring!r}.")
    if covariate_share is not None:
        return Measuring(covariate_share=covariate_share)
    return Measuring() if measuring is None else measuring


def refuse_measuring(measuring: Any) -> None:
    """Refuse shares of questions in a plan of steps."""
    if measuring is not None:
        raise ValueError(f"measuring= is for plans without steps. {_TOGETHER}")


def measured_columns(columns: Sequence[Column] | None, num_records: int | None) -> tuple[Column, ...] | None:
    """The columns to count; none where the number of records alone would be counted and is public."""
    found = checked_columns(columns or ())
    return None if num_records is not None and not found else found


def measuring_releases(
    epsilon: float,
    delta: float,
    adjacency: str,
    measuring: Measuring,
    columns: Sequence[Column] | None,
    others: Sequence[GaussianRelease],
    rows_per_unit: int = 1,
) -> tuple[GaussianRelease, ...]:
    """The releases of a run that measures: what its units pay for, still without noise, and histograms.

    The histograms' share is of what ``others`` leave of the squared signal. It only divides the budget: what is
    promised is computed from all releases together.
    """
    total, used = gaussian_signal(validation.epsilon(epsilon), delta) ** 2, limit_signal(others, adjacency) ** 2
    left = total - used if used < total else total  # where nothing is left, calibration says so
    asked = GaussianRelease(GRADIENTS, 1.0, measuring.units, 1.0, 1.0, rows_per_unit)
    if columns is None:
        return (asked,)
    return asked, histograms(columns, math.sqrt(measuring.covariate_share * left), adjacency, rows_per_unit)


def histograms(columns: Sequence[Column], signal: float, adjacency: str, rows_per_unit: int = 1) -> GaussianRelease:
    """A record counts in one bin of each of k columns: a vector of norm √k."""
    multiplier = rows_per_unit * sensitivity(adjacency) / signal
    return GaussianRelease(HISTOGRAMS, 1.0, 1, multiplier, math.sqrt(counted(columns)), rows_per_unit)
