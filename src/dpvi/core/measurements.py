"""Requests and answers of a measuring run as plain arrays, which a trace holds and a file stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpvi.core.requests import Answered, CovariateMoments, Curvature, ScoreNorms, Scores

_KINDS = (CovariateMoments, Curvature, ScoreNorms, Scores)


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
    kinds = np.array([_KINDS.index(type(each.request)) for each in answered], np.int64)
    moments, curvature, norms, scores = ([each for each in answered if type(each.request) is kind] for kind in _KINDS)
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
