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

from dpvi.models.base import GenerativeModel, Model
from dpvi.models.constants import bound
from dpvi.models.numpyro import as_model
from dpvi.records.arrays import as_arrays, fits, structure_of, with_dtypes
from dpvi.records.frames import arguments_of
from dpvi.records.sources.base import RowSource, SourceError, blocks, described
from dpvi.records.sources.mapped import as_source

_LARGE = 100.0
_CHUNK = 1024


def validate(model: Model | Callable | None, data: Any, *, static: Mapping[str, Any] | None = None) -> None:
    """Print what is unusual about the records, each line marked SENSITIVE, to the console's error stream.

    Looks for values that are not finite, columns that never change, integers that do not fit, and values of a size that
    would make most gradients hit the clip; with a model also for records whose density or gradient is not finite at
    z = 0, and for observed values outside of what their distribution can give, such as labels 1 and 2 for a Bernoulli.

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
        data, (model,) = bound(arguments_of(model, data, static or ()), (model,), static)
    source = as_source(data)
    structure = structure_of(described(source))
    ready = None if model is None else as_model(model, structure)
    density = None if ready is None else _counts(ready, _fineness(ready))
    outside = _counts(ready, _outside(ready)) if isinstance(ready, GenerativeModel) else None
    looks: dict[str, _Look] = {}
    fine: dict[str, int] = {}
    beyond: dict[str, int] = {}
    try:
        for block in blocks(source) if isinstance(source, RowSource) else [as_arrays(data)]:
            for path, leaf in jax.tree_util.tree_leaves_with_path(block):
                name = f"data{jax.tree_util.keystr(path)}"
                looks[name] = _look(leaf, looks.get(name))
            for counted, count in ((fine, density), (beyond, outside)):
                if count is not None and _all_fit(looks):
                    for name, number in count(with_dtypes(block, structure)).items():
                        counted[name] = counted.get(name, 0) + number
    except SourceError as error:
        lines = [f"{error} The rest was not looked at."]
    else:
        lines = [line for name, look in looks.items() for line in _leaf_lines(name, look)]
        if density is not None and _all_fit(looks):
            num_records = next(iter(looks.values())).num_records
            lines += _support_lines(beyond, num_records) + _density_lines(fine, num_records)
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


def _counts(model: Model, flags: Callable[[jax.Array, Any], dict[str, jax.Array]]) -> Callable[[Any], dict[str, int]]:
    """Of rows, how many have each of the flags that ``flags`` gives a record at z = 0."""
    z = jnp.zeros((model.dimension,), dtype=jnp.result_type(float))
    of_all = jax.jit(lambda rows: jax.lax.map(lambda record: flags(z, record), rows, batch_size=_CHUNK))

    def count(rows: Any) -> dict[str, int]:
        found = of_all(jax.tree.map(jnp.asarray, rows))
        return {name: int(np.count_nonzero(each)) for name, each in found.items()}

    return count


def _fineness(model: Model) -> Callable[[jax.Array, Any], dict[str, jax.Array]]:
    """Whether the log-density of a record is finite, and its gradient."""

    def finite(z: jax.Array, record: Any) -> dict[str, jax.Array]:
        value, gradient = jax.value_and_grad(model.log_likelihood)(z, record)
        return {"log-density": jnp.isfinite(value), "gradient": jnp.all(jnp.isfinite(gradient))}

    return finite


def _outside(model: GenerativeModel) -> Callable[[jax.Array, Any], dict[str, jax.Array]]:
    """By observed site, whether a value of the record is outside of the distribution's support."""

    def outside(z: jax.Array, record: Any) -> dict[str, jax.Array]:
        inside = model.supported(z, jax.tree.map(lambda leaf: leaf[None], record))
        return {name: ~each for name, each in inside.items()}

    return outside


def _support_lines(beyond: dict[str, int], num_records: int) -> list[str]:
    return [
        f"site {name!r} observes values that its distribution cannot give in {number} of {num_records} records; they "
        "contribute nothing, or nothing that means anything. Recode them, for example labels to 0 and 1, or choose "
        "another distribution."
        for name, number in beyond.items()
        if number
    ]


def _density_lines(fine: dict[str, int], num_records: int) -> list[str]:
    return [
        f"the {what} at z = 0 is not finite for {num_records - fine[what]} of {num_records} records; "
        "check supports and missing values."
        for what in ("log-density", "gradient")
        if fine[what] < num_records
    ]
