"""The custodian's look at the records themselves, before a fit.

Everything printed here is computed from records without noise. It goes to the console, each line marked, into no file
and into no return value, so that it cannot end up in a report by accident.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.data.records import as_records, structure_of
from dpvi.models.base import Model
from dpvi.models.check import as_model

_LARGE = 100.0
_CHUNK = 1024


def validate(model: Model | Callable | None, data: Any) -> None:
    """Print what is unusual about the records, each line marked SENSITIVE, to the console's error stream.

    Looks for values that are not finite, columns that never change, integers that do not fit, and values of a size that
    would make most gradients hit the clip; with a model also for records whose density or gradient is not finite at
    z = 0.

    Parameters
    ----------
    model
        A NumPyro callable or a :class:`~dpvi.models.base.Model`; None to look at the records alone.
    data
        A pytree of arrays with one row per record.

    Returns
    -------
    None
        On purpose: nothing computed here may be stored.

    Guarantees
    ----------
    None: the lines are not differentially private. Do not publish, paste or log them.
    """
    records, num_records = as_records(data)
    lines = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        lines += _leaf_lines(f"data{jax.tree_util.keystr(path)}", np.asarray(leaf))
    if model is not None:
        lines += _density_lines(as_model(model, structure_of(records)), records, num_records)
    for line in lines or ["nothing unusual found."]:
        print(f"SENSITIVE (not private, do not share): {line}", file=sys.stderr)


def _leaf_lines(name: str, leaf: np.ndarray) -> list[str]:
    rows = leaf.reshape(leaf.shape[0], -1)
    lines = []
    if not np.issubdtype(leaf.dtype, np.floating):
        limits = np.iinfo(np.int32)
        if leaf.dtype != bool and ((rows > limits.max) | (rows < limits.min)).any():
            lines.append(f"{name} holds integers beyond 32 bits, which wrap around in a fit; recode them.")
        finite = np.ones(rows.shape, dtype=bool)
    else:
        finite = np.isfinite(rows)
        bad = int((~finite.all(axis=1)).sum())
        if bad:
            lines.append(
                f"{name} has values that are not finite in {bad} of {len(rows)} records; they contribute nothing."
            )
        large = int((np.abs(np.where(finite, rows, 0.0)) > _LARGE).any(axis=1).sum())
        if large:
            lines.append(
                f"{name} has values beyond {_LARGE:g} in absolute value in {large} of {len(rows)} records; "
                "scale it with public constants, or clipping will distort the fit."
            )
    constant = (
        np.flatnonzero(finite.all(axis=0) & (rows == rows[:1]).all(axis=0)) if len(rows) > 1 else np.array([], int)
    )
    if constant.size:
        which = f" in columns {', '.join(map(str, constant[:10]))}" if rows.shape[1] > 1 else ""
        lines.append(f"{name} is the same for every record{which}.")
    return lines


def _density_lines(model: Model, records: Any, num_records: int) -> list[str]:
    z = jnp.zeros((model.dimension,), dtype=jnp.result_type(float))

    def finite(record: Any) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(model.log_likelihood)(z, record)
        return jnp.isfinite(value), jnp.all(jnp.isfinite(gradient))

    density, gradient = jax.jit(lambda rows: jax.lax.map(finite, rows, batch_size=_CHUNK))(records)
    lines = []
    for what, flags in (("log-density", density), ("gradient", gradient)):
        bad = num_records - int(np.count_nonzero(flags))
        if bad:
            lines.append(
                f"the {what} at z = 0 is not finite for {bad} of {num_records} records; "
                "check supports and missing values."
            )
    return lines
