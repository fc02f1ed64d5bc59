"""The custodian's look at the records themselves, before a fit.

Everything printed here is computed from records without noise. It goes to the console, each line marked, into no file
and into no return value, so that it cannot end up in a report by accident.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.data.records import as_arrays, fits, structure_of, with_dtypes
from dpvi.data.sources.base import RowSource, SourceError, blocks, described
from dpvi.data.sources.mapped import as_source
from dpvi.models.base import Model
from dpvi.models.check import as_model
from dpvi.models.constants import bound

_LARGE = 100.0
_CHUNK = 1024


def validate(model: Model | Callable | None, data: Any, *, static: Mapping[str, Any] | None = None) -> None:
    """Print what is unusual about the records, each line marked SENSITIVE, to the console's error stream.

    Looks for values that are not finite, columns that never change, integers that do not fit, and values of a size that
    would make most gradients hit the clip; with a model also for records whose density or gradient is not finite at
    z = 0.

    Parameters
    ----------
    model
        A NumPyro callable or a :class:`~dpvi.models.base.Model`; None to look at the records alone.
    data
        A pytree of arrays with one row per record, or records on disk, which are read block by block.
    static
        ``{argument: constant}`` for the model, as for :func:`dpvi.fit`.

    Returns
    -------
    None
        On purpose: nothing computed here may be stored.

    Guarantees
    ----------
    None: the lines are not differentially private. Do not publish, paste or log them.
    """
    if model is not None:
        data, (model,) = bound(data, (model,), static)
    source = as_source(data)
    structure = structure_of(described(source))
    density = None if model is None else _density(as_model(model, structure))
    looks: dict[str, _Look] = {}
    finite = np.zeros(2, int)
    try:
        for block in blocks(source) if isinstance(source, RowSource) else [as_arrays(data)]:
            for path, leaf in jax.tree_util.tree_leaves_with_path(block):
                name = f"data{jax.tree_util.keystr(path)}"
                looks[name] = _look(leaf, looks.get(name))
            if density is not None and _all_fit(looks):
                finite += density(with_dtypes(block, structure))
    except SourceError as error:
        lines = [f"{error} The rest was not looked at."]
    else:
        lines = [line for name, look in looks.items() for line in _leaf_lines(name, look)]
        if density is not None and _all_fit(looks):
            lines += _density_lines(finite.tolist(), next(iter(looks.values())).num_records)
    for line in lines or ["nothing unusual found."]:
        print(f"SENSITIVE (not private, do not share): {line}", file=sys.stderr)


class _Look(NamedTuple):
    """What was seen of an array so far."""

    num_records: int
    fits: bool  # every whole number into 32 bits
    not_finite: int  # records
    large: int  # records
    first: np.ndarray  # the first record, flat
    constant: np.ndarray  # which of its numbers all records have


def _look(leaf: np.ndarray, before: _Look | None) -> _Look:
    """A further look at ``leaf``, some more rows of the array."""
    rows = leaf.reshape(leaf.shape[0], -1)
    first = rows[0].copy() if before is None else before.first
    finite = np.isfinite(rows)
    large = np.zeros(len(rows), bool)
    if np.issubdtype(leaf.dtype, np.floating):
        large = (np.abs(np.where(finite, rows, 0.0)) > _LARGE).any(axis=1)
    seen = _Look(
        num_records=len(rows),
        fits=fits(leaf),
        not_finite=int((~finite.all(axis=1)).sum()),
        large=int(large.sum()),
        first=first,
        constant=finite.all(axis=0) & (rows == first).all(axis=0),
    )
    if before is None:
        return seen
    return _Look(
        before.num_records + seen.num_records,
        before.fits and seen.fits,
        before.not_finite + seen.not_finite,
        before.large + seen.large,
        first,
        before.constant & seen.constant,
    )


def _all_fit(looks: dict[str, _Look]) -> bool:
    return all(look.fits for look in looks.values())


def _leaf_lines(name: str, look: _Look) -> list[str]:
    lines = []
    if not look.fits:
        lines.append(f"{name} holds integers beyond 32 bits, which a fit refuses; recode them.")
    if look.not_finite:
        lines.append(
            f"{name} has values that are not finite in {look.not_finite} of {look.num_records} records; "
            "they contribute nothing."
        )
    if look.large:
        lines.append(
            f"{name} has values beyond {_LARGE:g} in absolute value in {look.large} of {look.num_records} records; "
            "scale it with public constants, or clipping will distort the fit."
        )
    constant = np.flatnonzero(look.constant) if look.num_records > 1 else np.array([], int)
    if constant.size:
        which = f" in columns {', '.join(map(str, constant[:10]))}" if look.constant.size > 1 else ""
        lines.append(f"{name} is the same for every record{which}.")
    return lines


def _density(model: Model) -> Callable[[Any], np.ndarray]:
    """Of rows, how many have a finite log-density at z = 0, and how many a finite gradient."""
    z = jnp.zeros((model.dimension,), dtype=jnp.result_type(float))

    def finite(record: Any) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(model.log_likelihood)(z, record)
        return jnp.isfinite(value), jnp.all(jnp.isfinite(gradient))

    of_all = jax.jit(lambda rows: jax.lax.map(finite, rows, batch_size=_CHUNK))
    return lambda rows: np.array([np.count_nonzero(flags) for flags in of_all(jax.tree.map(jnp.asarray, rows))])


def _density_lines(finite: list[int], num_records: int) -> list[str]:
    lines = []
    for what, number in zip(("log-density", "gradient"), finite, strict=True):
        if number < num_records:
            lines.append(
                f"the {what} at z = 0 is not finite for {num_records - number} of {num_records} records; "
                "check supports and missing values."
            )
    return lines
