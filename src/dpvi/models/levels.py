"""Sizes that a model reads from its records, as in ``num_classes = np.max(labels) + 1``, taken from a declaration.

Such a size is a statistic of all records, and a model is never run on all of them. Where the levels of an argument are
declared, ``static={"labels": dpvi.Levels(range(3))}``, largest, smallest and distinct values of that argument are those
of its levels, in NumPy's functions and in JAX's, for as long as the model runs.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpvi.declared.columns import Levels

_READERS: dict[str, Callable[[np.ndarray], Any]] = {
    "max": lambda levels: levels[-1],
    "amax": lambda levels: levels[-1],
    "min": lambda levels: levels[0],
    "amin": lambda levels: levels[0],
    "unique": lambda levels: levels,
}
_LOCK = threading.RLock()  # functions of a module are exchanged, and put back


def with_levels(function: Any, levels: Mapping[str, Levels]) -> Any:
    """``function`` of records some of whose arguments have declared ``levels``."""
    if function is None or not levels:
        return function
    parameters = inspect.signature(function)

    @functools.wraps(function, updated=())
    def called(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind_partial(*args, **kwargs).arguments
        given = {**given, **kwargs}
        with _declared([(given[name], _values(each)) for name, each in levels.items() if name in given]):
            return function(*args, **kwargs)

    return called


def _values(levels: Levels) -> np.ndarray:
    values = np.asarray(levels.values)
    return values.astype(int) if np.all(values == np.round(values)) else values


@contextmanager
def _declared(arrays: list[tuple[Any, np.ndarray]]) -> Iterator[None]:
    with _LOCK:
        kept = [(module, name, getattr(module, name)) for module in (np, jnp) for name in _READERS]
        for module, name, original in kept:
            setattr(module, name, _reader(original, _READERS[name], arrays))
        try:
            yield
        finally:
            for module, name, original in kept:
                setattr(module, name, original)


def _reader(original: Callable, read: Callable, arrays: list[tuple[Any, np.ndarray]]) -> Callable:
    @functools.wraps(original)
    def reads(values: Any, *args: Any, **kwargs: Any) -> Any:
        for array, levels in arrays:
            if values is array and not args and not kwargs:
                return read(levels)
        return original(values, *args, **kwargs)

    return reads
