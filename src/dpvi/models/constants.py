"""What is no record among a model's arguments: sizes, flags, tables, kernels.

A model's arguments are records and constants. Records are scored one at a time and protected; constants are in every
term and public, so that the guarantee lists their arrays. ``static={...}`` names constants. What cannot be records goes
among them by itself: numbers, text and functions. An array never does, however short it is: a second table of people
is short beside a first one.

=================================================  ==================================================================
argument                                           what happens
=================================================  ==================================================================
``dpvi.Levels`` in ``static``                      declared levels of an argument, see :mod:`dpvi.models.levels`
in ``static``                                      a constant; refused by :mod:`dpvi.models.captured` where it has as
                                                   many rows or entries as there are records
a number, text, a function, an array without axes  a constant, and so is an object with settings
any other array                                    a record
a number that is the number of records             becomes the number of rows that are scored, and a notice says so:
                                                   the other is private
=================================================  ==================================================================
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared.columns import Levels
from dpvi.models.base import Model
from dpvi.models.levels import with_levels
from dpvi.models.notices import tell
from dpvi.records.sources.base import described

_SHORTER = 10  # how many times as many rows the records must have as an array that is no record
_LEAST = 2  # arrays that have as many rows as the records
_FEW = 4  # records so few that a size may be their number by accident


class Bound(NamedTuple):
    """Records alone, and the functions of a run as functions of them."""

    data: Any
    functions: tuple[Any, ...]


def bound(data: Any, functions: tuple[Any, ...], static: Mapping[str, Any] | None = None) -> Bound:
    """Take constants out of ``data`` and hand them to ``functions`` in another way.

    Parameters
    ----------
    data
        As for :func:`dpvi.fit`: a tuple of positional arguments, a dict of keyword arguments, or one argument.
    functions
        The model, and a guide or None.
    static
        ``{argument: constant}``.
    """
    if isinstance(data, tuple) and type(data) is tuple:
        args, kwargs = data, {}
    elif isinstance(data, dict) and all(isinstance(name, str) for name in data):
        args, kwargs = (), data
    elif not static:
        return Bound(data, functions)
    else:
        args, kwargs = (data,), {}
    found = bound_call(args, kwargs, functions, static)
    if found is None:
        return Bound(data, functions)
    return found if isinstance(data, (tuple, dict)) else Bound(data, found.functions)


def bound_call(
    args: tuple,
    kwargs: Mapping[str, Any],
    functions: tuple[Any, ...],
    static: Mapping[str, Any] | None,
) -> Bound | None:
    """:func:`bound` for the arguments of a call; None where all of them are records."""
    given = {**dict(enumerate(args)), **kwargs}
    static, levels = _levels(static, given, functions[0])
    functions = tuple(with_levels(function, levels) for function in functions)
    constants = {key: value for key, value in given.items() if _is_constant(value)}
    static = _checked_static(static, given)
    left_out = not constants or len(constants) == len(given) or isinstance(functions[0], Model)
    if not static and left_out:
        return Bound(_as_given(args, kwargs), functions) if levels else None
    if isinstance(functions[0], Model):
        raise TypeError("static= is for NumPyro functions; a model built from log densities closes over its constants.")
    names = {key: _name(functions[0], key) for key in constants}
    values = {names[key]: _indexable(value) for key, value in constants.items()}
    values |= {name: _indexable(value) for name, value in static.items()}
    records = {key: value for key, value in given.items() if key not in constants}
    by_keyword = not args
    counted = tuple(_their_number(values, records))
    values = {name: value for name, value in values.items() if name not in counted}
    places = tuple(names.get(index) for index in range(len(args)))
    handed = tuple(key for key in records if isinstance(key, str))

    def bind(function: Any) -> Any:
        if function is None:
            return None
        plain = by_keyword or (all(place is None for place in places) and not handed)
        given_all = functools.partial(function if plain else _placed(function, places, handed), **values)
        return _counting(given_all, counted) if counted else given_all

    left = records if by_keyword else tuple(records.values())
    return Bound(left, tuple(map(bind, functions)))


def _levels(
    static: Mapping[str, Any] | None, given: Mapping[Any, Any], function: Any
) -> tuple[dict[str, Any] | None, dict[str, Levels]]:
    """Constants alone, and declared levels of arguments that are records."""
    if not isinstance(static, Mapping) or not any(isinstance(value, Levels) for value in static.values()):
        return static, {}  # pyright: ignore[reportReturnType]
    levels = {name: value for name, value in static.items() if isinstance(value, Levels)}
    unknown = sorted(set(levels) - {_name(function, key) for key in given})
    if unknown:
        raise ValueError(f"static declares levels of {', '.join(map(repr, unknown))}, which are no arguments in data.")
    return {name: value for name, value in static.items() if name not in levels}, levels


def _as_given(args: tuple, kwargs: Mapping[str, Any]) -> Any:
    return args if args else dict(kwargs)


def by_position(args: tuple, kwargs: Mapping[str, Any], functions: tuple[Any, ...]) -> Bound:
    """All arguments of a call in one tuple, and functions that take them so."""
    places, handed = (None,) * len(args), tuple(kwargs)
    return Bound((*args, *kwargs.values()), tuple(_placed(each, places, handed) for each in functions))


def _placed(function: Callable, places: tuple[str | None, ...], handed: tuple[str, ...]) -> Callable:
    """``function`` of its records alone, in order; those of ``handed`` are keyword arguments, and the last."""

    @functools.wraps(function, updated=())
    def called(*records: Any, **constants: Any) -> Any:
        rest = iter(records)
        positional = [next(rest) if name is None else constants.pop(name) for name in places]
        return function(*positional, **dict(zip(handed, rest, strict=True)), **constants)

    return called


def _is_constant(value: Any) -> bool:
    """Whether an argument is a number, text, a type or a function; anything else may hold records."""
    if isinstance(value, (numbers.Number, str, bytes, np.dtype, type)):
        return True
    if getattr(value, "shape", None) == () or (callable(value) and not hasattr(value, "shape")):
        return True
    # an object with settings, such as argparse makes: neither a container nor anything that holds rows
    holds = ("shape", "__array__", "__len__", "__iter__", "__dataframe__", "extents")
    return jax.tree.leaves(value) == [value] and not any(hasattr(value, name) for name in holds)


def _rows(leaf: Any) -> int | None:
    shape = getattr(leaf, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else None


def _checked_static(static: Mapping[str, Any] | None, given: Mapping[Any, Any]) -> dict[str, Any]:
    if static is None:
        return {}
    if not isinstance(static, Mapping) or not all(isinstance(name, str) for name in static):
        raise TypeError(f"static must be a dict of arguments by name, got {type(static).__name__}.")
    twice = sorted(set(static) & set(given))
    if twice:
        raise ValueError(f"{', '.join(map(repr, twice))} stand in data and in static; give each argument once.")
    return dict(static)


def _their_number(constants: Mapping[str, Any], records: Mapping[Any, Any]) -> list[str]:
    """Constants that are the number of records, of which a private step and a public program must not know."""
    leaves = jax.tree.leaves([described(value) for value in records.values()])
    number = next((_rows(leaf) for leaf in leaves), None)
    found = [
        name for name, value in constants.items() if number is not None and number > _FEW and _number(value) == number
    ]
    for name in found:
        tell(
            f"Argument {name!r} is the number of records, which is private: the model is given the number of rows that "
            "it is scored on instead, as from len(y). If it is so by accident, bind it with functools.partial."
        )
    return found


def _number(value: Any) -> float | None:
    """``value`` where it is one number, of whatever type."""
    if isinstance(value, (bool, np.bool_, str, bytes)) or np.ndim(value):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _counting(function: Callable, names: tuple[str, ...]) -> Callable:
    """``function`` with its number of rows as the arguments ``names``."""

    @functools.wraps(function, updated=())
    def called(*records: Any, **named: Any) -> Any:
        rows = jax.tree.leaves((records, named))[0].shape[0]
        return function(*records, **named, **dict.fromkeys(names, rows))

    return called


def _name(function: Any, key: Any) -> str:
    """The name of an argument, as ``function`` calls it where it says so."""
    if isinstance(key, str):
        return key
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return f"data_{key}"
    named = key < len(parameters) and parameters[key].kind is not inspect.Parameter.VAR_POSITIONAL
    return parameters[key].name if named else f"data_{key}"


def _place(key: Any) -> str:
    return f"data[{key!r}]" if isinstance(key, int) else repr(key)


def _indexable(value: Any) -> Any:
    return value.view(Table) if type(value) is np.ndarray and math.prod(value.shape) else value


class Table(np.ndarray):
    """An array of NumPy that can be indexed by what JAX traces; otherwise as it is, so that sizes can be read from it.

    Examples
    --------
    >>> table = np.array([1.0, 4.0, 9.0]).view(Table)
    >>> float(jax.jit(lambda index: table[index])(2)), int(table[1])
    (9.0, 4)
    """

    def __getitem__(self, index: Any) -> Any:
        if any(isinstance(each, jax.Array) for each in (index if isinstance(index, tuple) else (index,))):
            return jnp.asarray(np.asarray(self))[index]
        return super().__getitem__(index)
