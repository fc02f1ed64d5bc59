"""Requests and answers of a measuring run as plain arrays, which a trace holds and a file stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpvi.declared.columns import Column
from dpvi.release.requests import KINDS, NORM_EDGES, Answered, CovariateMoments, Curvature, ScoreNorms, Scores

# sums are 64-bit whole numbers of units of 2⁻²⁹, and counts of 1
_MOST_RELEASED = {"moments": 2.0**34, "curvature": 2.0**34, "norms": 2.0**63, "scores": 2.0**34}


class Measurements(NamedTuple):
    """What was asked and released, each kind in its order; ``kinds`` says how they follow each other.

    Leading axes are those of the answers of a kind, and empty where there are none.
    """

    kinds: np.ndarray  # (answers,): 0 moments, 1 curvature, 2 norms, 3 scores
    moments_metric: np.ndarray  # (·, k, columns)
    moments_units: np.ndarray  # (·,)
    moments_released: np.ndarray  # (·, k(k+1)/2)
    curvature_query: np.ndarray  # (·, d)
    curvature_metric: np.ndarray  # (·, d, d)
    curvature_units: np.ndarray  # (·,)
    curvature_released: np.ndarray  # (·, d(d+1)/2)
    norms_query: np.ndarray  # (·, d)
    norms_metric: np.ndarray  # (·, d, d)
    norms_units: np.ndarray  # (·,)
    norms_released: np.ndarray  # (·, bins)
    scores_query: np.ndarray  # (·, d)
    scores_metric: np.ndarray  # (·, d, d)
    scores_units: np.ndarray  # (·,)
    scores_released: np.ndarray  # (·, d)


def measurements_of(answered: Sequence[Answered], dimension: int) -> Measurements:
    """All of ``answered``, of a model with so many parameters."""
    kinds = np.array([KINDS.index(type(each.request)) for each in answered], np.int64)
    moments, curvature, norms, scores = ([each for each in answered if type(each.request) is kind] for kind in KINDS)
    square = (dimension, dimension)
    return Measurements(
        kinds,
        _stacked([each.request.metric for each in moments], (0, 0)),
        _units(moments),
        _stacked([each.released for each in moments], (0,)),
        *_asked_at(curvature, dimension, square, 0),
        *_asked_at(norms, dimension, square, 0),
        *_asked_at(scores, dimension, square, dimension),
    )


def answered(measurements: Measurements) -> list[Answered]:
    """The answers in the order in which they were asked for."""
    found = measurements
    by_kind: list[Any] = [
        map(CovariateMoments, found.moments_metric, found.moments_units.tolist()),
        map(Curvature, found.curvature_query, found.curvature_metric, found.curvature_units.tolist()),
        map(ScoreNorms, found.norms_query, found.norms_metric, found.norms_units.tolist()),
        map(Scores, found.scores_query, found.scores_metric, found.scores_units.tolist()),
    ]
    released = [
        iter(part)
        for part in (found.moments_released, found.curvature_released, found.norms_released, found.scores_released)
    ]
    return [Answered(next(by_kind[kind]), next(released[kind])) for kind in found.kinds.tolist()]


def check_measurements(found: Measurements, dimension: int, units: int) -> None:
    """Refuse arrays that no run of a plan with so many ``units`` gives of a model with ``dimension`` parameters.

    Every array is looked at before any is used, so that a file that was made by other means ends in one sentence.

    Raises
    ------
    ValueError
        With that sentence.
    """
    rows, columns = found.moments_metric.shape[1:] if found.moments_metric.ndim == 3 else (0, 0)
    counts = np.bincount(found.kinds, minlength=len(KINDS)) if _are_kinds(found.kinds) else None
    if counts is None:
        raise ValueError(f"Kinds of measurements must be whole numbers below {len(KINDS)}, one for each answer.")
    square, pairs = (dimension, dimension), dimension * (dimension + 1) // 2
    shapes = {
        "moments": {"metric": (rows, columns), "units": (), "released": (rows * (rows + 1) // 2,)},
        "curvature": {"query": (dimension,), "metric": square, "units": (), "released": (pairs,)},
        "norms": {"query": (dimension,), "metric": square, "units": (), "released": (len(NORM_EDGES) + 1,)},
        "scores": {"query": (dimension,), "metric": square, "units": (), "released": (dimension,)},
    }
    for count, (kind, parts) in zip(counts.tolist(), shapes.items(), strict=True):
        for part, shape in parts.items():
            array = getattr(found, f"{kind}_{part}")
            expected = (count, *shape) if count else (0, *array.shape[1:])  # of none, nothing else is kept
            kept = np.dtype(np.int64 if part == "units" else np.float64)
            if array.shape != expected or array.dtype != kept:
                raise ValueError(
                    f"Measurements must have {kind}_{part} of shape {expected} and type {kept}, got shape "
                    f"{array.shape} and type {array.dtype}."
                )
            if not np.all(np.isfinite(array)):
                raise ValueError(f"Measurements must be finite numbers, and {kind}_{part} holds others.")
        if count and np.max(np.abs(getattr(found, f"{kind}_released"))) > _MOST_RELEASED[kind]:
            raise ValueError(f"Sums of whole numbers of 64 bits cannot be as large as {kind}_released says.")
    spent = [each for kind in shapes for each in getattr(found, f"{kind}_units").tolist()]
    if min(spent, default=1) < 1 or sum(spent) > units:
        raise ValueError(
            f"Answers take at least one unit each and at most the plan's {units} together; these would take "
            f"{sum(spent)}, one of them {min(spent)}."
        )


def check_histograms(found: np.ndarray, columns: Sequence[Column]) -> None:
    """Refuse counts that are not one finite number for every bin of ``columns``, or for all records."""
    bins = sum(column.bins for column in columns) or 1
    if found.shape != (bins,) or found.dtype.kind != "f" or not np.all(np.abs(found) < 2.0**63):
        raise ValueError(
            f"Histograms of the plan's columns are {bins} whole numbers of 64 bits, got shape {found.shape} or others."
        )


def _are_kinds(kinds: np.ndarray) -> bool:
    return kinds.ndim == 1 and kinds.dtype == np.int64 and bool(np.all((kinds >= 0) & (kinds < len(KINDS))))


def _asked_at(found: Sequence[Any], dimension: int, square: tuple[int, int], size: int) -> tuple[np.ndarray, ...]:
    return (
        _stacked([each.request.query for each in found], (dimension,)),
        _stacked([each.request.metric for each in found], square),
        _units(found),
        _stacked([each.released for each in found], (size,)),
    )


def _stacked(arrays: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    return np.stack([np.asarray(array, np.float64) for array in arrays]) if arrays else np.zeros((0, *shape))


def _units(found: Sequence[Answered]) -> np.ndarray:
    return np.array([each.request.units for each in found], np.int64)
