"""Records as a pytree of arrays with one leading axis, and the shape of a single record.

Nothing here computes a statistic of the records, and no message holds a value of theirs or their number: under
add/remove adjacency that number is itself private, so only paths, shapes of one record and dtypes may be named.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_WHOLE = np.iinfo(np.int32)  # of whole numbers in a run


def as_records(data: Any) -> tuple[Any, int]:
    """Turn ``data`` into arrays that share a leading record axis.

    Parameters
    ----------
    data
        A pytree (array, tuple, list, dict, nested) whose leaves have one row per record. Columns of a data frame are
        leaves too. Floating-point leaves become the default float (float32, or float64 where x64 is enabled), integers
        int32, and those that do not fit are refused; booleans stay.

    Returns
    -------
    records
        The same pytree with ``jax.Array`` leaves.
    num_records
        The common leading length. It is private under add/remove adjacency: keep it out of plans, traces and results.

    Examples
    --------
    >>> records, num_records = as_records({"x": np.zeros((4, 2)), "y": np.zeros(4, dtype=int)})
    >>> num_records, records["y"].dtype.name
    (4, 'int32')
    """
    _check_leaves(data)
    records = jax.tree_util.tree_map_with_path(_as_array, data)
    return records, int(jax.tree.leaves(records)[0].shape[0])


def filled_up(rows: Any, size: int, axis: int = 0) -> Any:
    """An array of NumPy or JAX with copies of its last row behind it, so that there are ``size`` along ``axis``."""
    missing = size - rows.shape[axis]
    if missing == 0:
        return rows
    library = jnp if isinstance(rows, jax.Array) else np
    last = library.take(rows, np.array([-1]), axis=axis)
    return library.concatenate([rows, library.repeat(last, missing, axis=axis)], axis=axis)


def as_host_records(data: Any) -> tuple[Any, int]:
    """As :func:`as_records`, with NumPy leaves: for records that go to several devices."""
    records = with_dtypes(as_arrays(data), structure_of(data))
    return records, len(jax.tree.leaves(records)[0])


def as_arrays(data: Any) -> Any:
    """As :func:`as_records`, with NumPy leaves of the dtypes that they have: for the custodian's look at them."""
    _check_leaves(data)

    def convert(path: Any, leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        _check_dense(path, leaf, array)
        return array

    return jax.tree_util.tree_map_with_path(convert, data)


def structure_of(data: Any) -> Any:
    """The structure of one record, from the shapes and dtypes of ``data`` alone: no leaf is converted or read.

    Returns
    -------
    structure
        A pytree of ``jax.ShapeDtypeStruct`` without the record axis; the same before and after :func:`as_records`.
    """
    _check_leaves(data)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(tuple(leaf.shape[1:]), run_dtype(_dtype(leaf))), data)


def with_dtypes(rows: Any, structure: Any) -> Any:
    """Rows as they are stored, as NumPy arrays with the dtypes of the run: those of ``structure``, one record."""

    def convert(path: Any, leaf: Any, one: Any) -> np.ndarray:
        array = np.asarray(leaf)
        if np.dtype(one.dtype).kind in "ib" and array.dtype.kind not in "iub":
            raise TypeError(f"{_where(path)} has missing values, which integers and booleans cannot express.")
        check_fits(array, _where(path))
        with np.errstate(over="ignore"):  # what is too large for a float is not finite then; a warning would tell of it
            return array.astype(one.dtype, copy=False)

    return jax.tree_util.tree_map_with_path(convert, rows, structure)


def check_fits(array: Any, name: str, error: type[ValueError] = ValueError) -> None:
    """Refuse whole numbers that a run has no place for; NumPy and JAX would turn them into others.

    Parameters
    ----------
    array
        Of NumPy or JAX.
    name
        What holds the numbers: an argument, or a file and its column.
    error
        What is raised. No number is in its text.
    """
    if not fits(array):
        raise error(
            f"{name} holds whole numbers that do not fit into 32 bits and would turn into others. Nothing is released; "
            "recode them with declared levels, or convert them to float."
        )


def fits(array: Any) -> bool:
    """Whether no whole number of ``array`` lies outside of int32; other numbers are rounded and always fit."""
    dtype = np.dtype(array.dtype)
    if dtype.kind not in "iu" or np.can_cast(dtype, np.int32) or array.size == 0:
        return True
    return _WHOLE.min <= int(array.min()) and int(array.max()) <= _WHOLE.max


def structure_to_dict(structure: Any) -> dict[str, Any]:
    """A JSON-serialisable form of a record structure made of arrays, tuples, lists, dicts and None.

    Examples
    --------
    >>> structure = {"y": jax.ShapeDtypeStruct((), jnp.dtype("int32"))}
    >>> structure_from_dict(structure_to_dict(structure)) == structure
    True
    """
    if structure is None:
        return {"kind": "none"}
    if isinstance(structure, jax.ShapeDtypeStruct):
        return {"kind": "array", "shape": list(structure.shape), "dtype": np.dtype(structure.dtype).name}
    if type(structure) in (tuple, list):
        return {"kind": type(structure).__name__, "items": [structure_to_dict(item) for item in structure]}
    if isinstance(structure, dict) and all(isinstance(key, str) for key in structure):
        return {"kind": "dict", "items": {key: structure_to_dict(value) for key, value in structure.items()}}
    raise TypeError(
        f"A record structure can be stored when it is nested from tuples, lists, dicts with string keys and arrays, "
        f"got {type(structure).__name__}; pass the data as one of those."
    )


def structure_from_dict(stored: dict[str, Any]) -> Any:
    """The inverse of :func:`structure_to_dict`."""
    kind = stored.get("kind")
    if kind == "none":
        return None
    if kind == "array":
        return jax.ShapeDtypeStruct(tuple(stored["shape"]), jnp.dtype(stored["dtype"]))
    if kind == "tuple":
        return tuple(structure_from_dict(item) for item in stored["items"])
    if kind == "list":
        return [structure_from_dict(item) for item in stored["items"]]
    if kind == "dict":
        return {key: structure_from_dict(item) for key, item in stored["items"].items()}
    raise ValueError(f"A stored record structure has kind none, array, tuple, list or dict, got {kind!r}.")


def _check_leaves(data: Any) -> None:
    leaves = jax.tree_util.tree_leaves_with_path(data)
    if not leaves:
        raise ValueError("data must hold at least one array with one row per record, got none.")
    lengths: dict[int, list[str]] = {}
    for path, leaf in leaves:
        shape = getattr(leaf, "shape", None)
        if hasattr(leaf, "check_unchanged"):  # what a source has; the class itself is beyond this module's imports
            raise ValueError(
                f"{_where(path)} must be an array with one row per record, got a {type(leaf).__name__}. Records on "
                "disk are the whole data of dpvi.fit, dpvi.check and dpvi.validate; elsewhere and beside arrays load "
                "them first: source.take(numpy.arange(source.num_records))."
            )
        if shape is None or len(shape) == 0:
            raise ValueError(
                f"{_where(path)} must be an array with one row per record, got a single {type(leaf).__name__}; "
                "turn lists into arrays, and pass settings by name in static={...}."
            )
        if isinstance(leaf, np.ma.MaskedArray) or (_is_nullable(leaf) and _dtype(leaf).kind in "iub"):
            raise TypeError(
                f"{_where(path)} may hold missing values, which integers cannot express; "
                "fill them, or convert to float, where a record with a missing value contributes nothing."
            )
        if run_dtype(_dtype(leaf)) is None:
            raise TypeError(
                f"{_where(path)} must hold numbers or booleans, got dtype {_dtype(leaf)}; "
                "encode text, categories and dates as numbers with declared levels first."
            )
        lengths.setdefault(int(shape[0]), []).append(_where(path))
    if len(lengths) > 1:
        raise ValueError(
            f"All arrays of data must have the same number of rows, one per record; {_odd(list(lengths.values()))}. "
            "What is no record, such as a public table, is passed by name in static={...}."
        )
    _check_indices(leaves)
    if list(lengths) == [0]:
        raise ValueError("data must hold at least one record, got empty arrays.")


def _check_indices(leaves: Any) -> None:
    """Refuse series and frames of pandas with other rows each: a record would get somebody else's values."""
    labelled = [(path, leaf.index) for path, leaf in leaves if hasattr(getattr(leaf, "index", None), "equals")]
    for path, index in labelled[1:]:
        first, expected = labelled[0]
        if index is not expected and not index.equals(expected):
            raise ValueError(
                f"{_where(first)} and {_where(path)} have different indices, and rows are joined by their position, so "
                "that a record would get another one's values. Bring them into one order, for example as columns of "
                "one data frame; where their positions do belong together, pass leaf.to_numpy()."
            )


def _odd(groups: list[list[str]]) -> str:
    """Which arrays have another number of rows than most, from the names of those that have as many each."""
    groups = sorted(groups, key=len, reverse=True)
    if len(groups[0]) == len(groups[1]):
        return f"{', '.join(name for group in groups for name in group)} differ"
    odd = [name for group in groups[1:] for name in group]
    return f"{', '.join(odd)} {'has' if len(odd) == 1 else 'have'} another number than {', '.join(groups[0])}"


def _where(path: Any) -> str:
    return f"data{jax.tree_util.keystr(path)}"


def _is_nullable(leaf: Any) -> bool:
    """Whether a data frame's own integer or boolean type, which has a place for missing values, holds the column."""
    return getattr(getattr(leaf, "dtype", None), "na_value", None) is not None


def _dtype(leaf: Any) -> Any:
    dtype = getattr(leaf, "dtype", None)
    if isinstance(dtype, np.dtype):
        return dtype
    # Data-frame types have dtypes of their own: what an empty slice converts to names the dtype and touches no value.
    return np.asarray(leaf[:0]).dtype


def run_dtype(dtype: Any) -> Any:
    """What a run makes of numbers of ``dtype``; None of text, dates, complex numbers and whatever else is no number."""
    if not isinstance(dtype, np.dtype):
        return None
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.dtype(jnp.result_type(float))
    if dtype.kind in "iu":
        return jnp.dtype("int32")
    return jnp.dtype(bool) if dtype.kind == "b" else None


def _as_array(path: Any, leaf: Any) -> jax.Array:
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    _check_dense(path, leaf, array)
    check_fits(array, _where(path))
    with np.errstate(over="ignore"):
        return jnp.asarray(array, dtype=run_dtype(_dtype(leaf)))


def _check_dense(path: Any, leaf: Any, array: Any) -> None:
    if _dtype(leaf).kind in "iub" and array.dtype.kind not in "iub":  # polars, whose types do not tell before
        raise TypeError(
            f"{_where(path)} has missing values, which integers and booleans cannot express; "
            "fill them, or convert to float, where a record with a missing value contributes nothing."
        )
    if array.shape != tuple(leaf.shape):
        raise TypeError(
            f"{_where(path)} must convert to a dense array, got {type(leaf).__name__}; make it dense first."
        )
