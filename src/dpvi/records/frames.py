"""A whole table as data: its columns become the arguments of a model that have their names.

Tables of pandas, polars and Arrow are recognised by what they can do, so that none of these need be installed. Only the
names of columns are looked at here, and, of Arrow, whether whole numbers are missing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


def is_table(data: Any) -> bool:
    """Whether ``data`` is a data frame or an Arrow table."""
    columns = getattr(data, "column_names", None) or getattr(data, "columns", None)
    return columns is not None and hasattr(data, "shape") and not hasattr(data, "dtype") and len(data.shape) == 2


def column_names(table: Any) -> list[Any]:
    """The names of a table's columns, in order."""
    return list(table.column_names if hasattr(table, "column_names") else table.columns)


def column(table: Any, name: Any) -> Any:
    """One column: a series, or an array of an Arrow table."""
    if not hasattr(table, "column_names"):
        return table[name]
    chunked = table.column(name)
    if chunked.null_count and str(chunked.type).startswith(("int", "uint", "bool")):
        raise TypeError(
            f"Column {name!r} has missing values, which whole numbers and booleans cannot express; fill them, or cast "
            "the column to float, where a record with a missing value contributes nothing."
        )
    return np.asarray(chunked)


def arguments_of(model: Any, data: Any, without: Iterable[str] = ()) -> Any:
    """``data``, or where it is a table ``{argument of the model: column}``.

    Columns that no argument is named after are left out.
    A model of one argument that no column is named after gets the whole table as its matrix.

    Parameters
    ----------
    model
        A NumPyro function, or a model made of one; for any other model the table stays one matrix.
    data
        Anything that :func:`dpvi.fit` takes.
    without
        Arguments that are given elsewhere.

    Raises
    ------
    ValueError
        Where an argument without a default has no column.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"name": ["a", "b"], "y": [1.0, 2.0], "x": [3, 4]})
    >>> {name: list(values) for name, values in arguments_of(lambda x, y=None: None, table).items()}
    {'x': [3, 4], 'y': [1.0, 2.0]}
    """
    if hasattr(data, "collect_schema") and hasattr(data, "collect") and not hasattr(data, "shape"):
        raise TypeError("data is a lazy frame, which has no rows yet; pass data.collect().")
    function = getattr(model, "function", model)
    own = getattr(model, "columns", None)  # of a front-end that names its arrays
    if not is_table(data) or not (callable(function) or own):
        return data
    names = column_names(data)
    if own:
        wanted, required = [name for name in own if name in names], list(own)
    else:
        wanted, required = _arguments(function, names, set(without))
    missing = [name for name in required if name not in names]
    if not missing:
        _check_once(wanted, names)
        return {name: column(data, name) for name in wanted}
    if len(required) == 1 and not wanted:
        return data
    entries = ", ".join(f"{name!r}: table[...]" for name in dict.fromkeys([*required, *wanted]))
    raise ValueError(
        f"The model's {', '.join(map(repr, missing))} is no column of the table, which has "
        f"{', '.join(map(repr, names))}. Name the columns as the model's arguments, or say what each argument is made "
        f"of: data={{{entries}}}, where several columns become a matrix."
    )


def _arguments(function: Callable[..., Any], names: list[Any], without: set[str]) -> tuple[list[str], list[str]]:
    """Arguments that are columns, and arguments that must be given."""
    kinds = inspect.Parameter
    parameters = inspect.signature(function).parameters.values()
    bound = _bound(function) | without
    free = [each for each in parameters if each.name not in bound]
    if any(each.kind == kinds.VAR_KEYWORD for each in free):
        fixed = [each.name for each in free if each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
        wanted = [name for name in names if isinstance(name, str) and name not in bound]
        wanted = [*(name for name in fixed if name in wanted), *(name for name in wanted if name not in fixed)]
    else:
        wanted = [each.name for each in free if each.name in names and each.kind != kinds.POSITIONAL_ONLY]
    unnamed = (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)
    return wanted, [each.name for each in free if each.default is kinds.empty and each.kind not in unnamed]


def _bound(function: Callable[..., Any]) -> set[str]:
    """Settings that ``functools.partial`` gave; a column of the same name must not replace one."""
    found: set[str] = set()
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        if isinstance(function, functools.partial):
            found |= set(function.keywords)
            function = function.func
        else:
            function = getattr(function, "__wrapped__")  # noqa: B009
    return found


def _check_once(wanted: list[str], names: list[Any]) -> None:
    twice = sorted({name for name in wanted if names.count(name) > 1})
    if twice:
        raise ValueError(f"The table has several columns named {', '.join(map(repr, twice))}; give each its own name.")
