"""What the tests of the metric posterior share: strategies driven by hand, and answers in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from dpvi.core.requests import Answered, Request


def drive(asking: Generator[Any, Any, Any], answering: Callable[[Request], np.ndarray]) -> tuple[Any, list[Answered]]:
    """What a generator of requests returns when ``answering`` answers them, and all of its requests and answers."""
    done: list[Answered] = []
    released = None
    while True:
        try:
            request = asking.send(released)
        except StopIteration as end:
            return end.value, done
        released = answering(request)
        done.append(Answered(request, released))


def triangle(matrix: np.ndarray) -> np.ndarray:
    """The upper triangle of a symmetric matrix, √2 times off the diagonal: as long as the matrix is."""
    first, second = np.triu_indices(len(matrix))
    return np.where(first == second, 1.0, np.sqrt(2.0)) * matrix[first, second]


def root_of(matrix: np.ndarray, exponent: float) -> np.ndarray:
    """A power of a symmetric positive matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T
