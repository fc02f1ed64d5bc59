"""Arrays that a model holds beside its record: refused where they can be the records, listed everywhere else.

A term is computed from one record and the parameters, and clipped. What a model reads from a global or a closure is in
every term and in the prior, and no noise covers it: a prior that is centred at ``x.mean(0)``, for a global ``x``, gives
that mean away to the last digit. So before a record is read, everything that the callables of a run can reach is looked
through.

====================================================  ======================================================
what is found                                         what happens
====================================================  ======================================================
a source of records, or a file that the data is in    refused
an array that shares memory with the data             refused
an array with one row per record, along any axis      refused, also where it is so by accident
any other array or number                             listed in the guarantee, by name and shape
====================================================  ======================================================

A mean that was computed before, and is now three numbers in a closure, cannot be told from a public constant. It is on
the list, where whoever answers for the records can ask about it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from dpvi.declared.guarantee import Captured
from dpvi.models.base import Model, ModelError
from dpvi.models.numpyro.guides.model import GuidedModel
from dpvi.models.reachable import is_array, is_source, reachable, shape_of
from dpvi.models.recipes import recipe_of
from dpvi.records.sources.base import described

_FEW = 2  # records so few that arrays of as many rows are everywhere
_SHORT = 8  # entries of a plain list, such as sizes of layers
_COMPARED = 2**20  # entries of a constant that is compared with what was found
_UNPROTECTED = "It would count in full, without noise, whatever epsilon is."


class Found(NamedTuple):
    """An array or a number that a callable of a run can reach."""

    name: str
    value: Any
    listed: bool


class _Memory(NamedTuple):
    """A stretch of addresses of the host or of a device."""

    space: str
    first: int
    end: int

    def overlaps(self, other: _Memory) -> bool:
        return self.space == other.space and self.first < other.end and other.first < self.end


class _Records(NamedTuple):
    """What tells an array of records from others."""

    num_records: int
    sizes: set[int]  # of all entries of an array
    memory: list[_Memory]
    files: set[Path]

    @classmethod
    def of(cls, data: Any, origin: Any = None) -> _Records:
        leaves = jax.tree.leaves(described(data))
        num_records, sizes = int(leaves[0].shape[0]), {math.prod(leaf.shape) for leaf in leaves}
        leaves += jax.tree.leaves(described(origin))
        files = {path for leaf in leaves if (path := _file(leaf)) is not None}
        if hasattr(data, "extents"):
            files |= {stamp.path.resolve() for held in data.extents() for stamp in held.files}
        return cls(num_records, sizes, [each for leaf in leaves for each in _memory(leaf)], files)


def captured(
    held: Mapping[str, Any], data: Any, unlisted: Mapping[str, Any] | None = None, origin: Any = None
) -> list[Found]:
    """Refuse callables that reach records by another way than their arguments; return what else they reach.

    Parameters
    ----------
    held
        ``{what the user calls it: callable}``; ``None`` is passed over.
    data
        The records, in arrays or on disk. No value is read.
    unlisted
        Further callables, which are refused all the same but whose numbers are nobody's concern: learning rates.
    origin
        Arrays that ``data`` is a copy of.

    Raises
    ------
    ModelError
        With one sentence for every array, that names its variable; no shape, since that may be a number of records.
    """
    records, found, findings = _Records.of(data, origin), [], []
    for role, root in [*held.items(), *(unlisted or {}).items()]:
        if recipe_of(root) is not None:  # made of declarations alone, which the guarantee speaks of anyway
            continue
        for name, value in reachable(role, root):
            finding = _finding(f"The {role} holds {name!r}", value, records)
            findings += [finding] if finding else []
            found.append(Found(name, value, role in held))
    if findings:
        raise ModelError(list(dict.fromkeys(findings)))
    return found


def with_constants(found: list[Found], model: Model | GuidedModel, structure: Any, data: Any) -> list[Found]:
    """Further arrays, which stand in the traced program of ``model`` and are not among ``found``.

    An array that the walk over variables cannot see (from a file that the model reads, from ``globals()``) is a
    constant of the jaxpr. The parameters are those of :func:`captured`, and the structure of one record.
    """
    if recipe_of(model) is not None:
        return found
    records, further, findings = _Records.of(data), [], []
    known = [each.value for each in found if is_array(each.value)]
    for place, constant in _constants(model, structure):
        if any(_same(constant, each) for each in known):
            continue
        finding = _finding(f"The {place} has a constant", constant, records)
        findings += [finding] if finding else []
        known.append(constant)
        # JAX's random numbers have unsigned constants of their own
        further.append(Found(f"a constant of the {place}", constant, np.dtype(constant.dtype).kind != "u"))
    if findings:
        raise ModelError(list(dict.fromkeys(findings)))
    return [*found, *further]


def listed(found: Iterable[Found]) -> tuple[Captured, ...]:
    """Names and shapes, each once and in order, of what the guarantee names."""
    every = [Captured(each.name, shape_of(each.value) or ()) for each in found if each.listed and _counts(each.value)]
    return tuple(sorted(set(every), key=lambda each: (each.name, each.shape)))


def _counts(value: Any) -> bool:
    """Whether this can be a statistic: plain lists of whole numbers are sizes and settings."""
    return is_array(value) or not all(isinstance(leaf, numbers.Integral) for leaf in jax.tree.leaves(value))


def _finding(held: str, value: Any, records: _Records) -> str | None:
    """The sentence about an array that may be the records; it begins with ``held``."""
    shape = shape_of(value) or ()
    fewest = _FEW if is_array(value) else _SHORT
    if is_source(value):
        return f"{held}, records on disk. {_UNPROTECTED} Pass them as data alone."
    if any(mine.overlaps(theirs) for mine in _memory(value) for theirs in records.memory):
        return (
            f"{held}, an array that shares memory with the data. {_UNPROTECTED} Let it read its own record alone, "
            "which it is given as an argument, and take centres, scales and sizes from public knowledge."
        )
    if records.num_records > fewest and (records.num_records in shape or math.prod(shape) in records.sizes):
        return (
            f"{held}, an array with as many rows or entries as the data. {_UNPROTECTED} If it belongs to the records, "
            "pass it as data or compute it from their columns; if its length is so by accident, give it another one."
        )
    if _file(value) in records.files:
        return f"{held}, an array of a file that holds the data. {_UNPROTECTED} Pass it as data alone."
    return None


def _file(value: Any) -> Path | None:
    name = getattr(value, "filename", None) if isinstance(value, np.memmap) else None
    return None if name is None else Path(name).resolve()


def _memory(value: Any) -> list[_Memory]:
    """Where the values of an array are, without a look at them; a type that needs converting has no address."""
    if isinstance(value, jax.Array):
        return _device_memory(value)
    if hasattr(value, "to_numpy") and hasattr(value, "columns"):
        return [each for name in value.columns for each in _memory(value[name])]
    if hasattr(value, "to_numpy") and isinstance(getattr(value, "dtype", None), np.dtype):
        value = value.to_numpy()
    elif hasattr(value, "__array_interface__"):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or value.size == 0:
        return []
    return [_Memory("host", *np.lib.array_utils.byte_bounds(value))]


def _device_memory(value: jax.Array) -> list[_Memory]:
    try:
        shards = [shard.data for shard in value.addressable_shards]
        starts = [(shard, shard.unsafe_buffer_pointer()) for shard in shards]
    except Exception:  # keys, tracers and deleted arrays have none
        return []
    space = {"cpu": "host"}
    return [
        _Memory(space.get(device.platform, str(device)), start, start + shard.nbytes)
        for shard, start in starts
        for device in shard.devices()
    ]


def _constants(model: Model | GuidedModel, structure: Any) -> list[tuple[str, Any]]:
    """(where, array) for all arrays in the programs of a model."""
    vector = jax.ShapeDtypeStruct((model.dimension,), jnp.result_type(float))
    if isinstance(model, GuidedModel):
        eta = jax.ShapeDtypeStruct((model.num_base,), vector.dtype)
        xi = jax.ShapeDtypeStruct((model.num_parameters,), vector.dtype)
        key = jax.eval_shape(lambda: jax.random.key(0))
        programs = {
            "part of model and guide that reads no record": (model.record_free, (xi, eta)),
            "term of a record": (model.term, (xi, eta, key, structure)),
        }
    else:
        programs = {
            "log prior": (model.log_prior, (vector,)),
            "log-likelihood": (model.log_likelihood, (vector, structure)),
        }
    return [
        (place, constant)
        for place, (function, arguments) in programs.items()
        for constant in _of_jaxpr(jax.make_jaxpr(function)(*arguments))
    ]


def _of_jaxpr(jaxpr: Any) -> list[Any]:
    """Constants of a jaxpr and of those inside of it; single numbers are left out, code is full of them."""
    inner = [
        each
        for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns
        for value in equation.params.values()
        for each in (value if isinstance(value, (tuple, list)) else (value,))
        if isinstance(each, (core.Jaxpr, core.ClosedJaxpr))
    ]
    own = [each for each in getattr(jaxpr, "consts", ()) if math.prod(getattr(each, "shape", ())) > 1]
    return own + [constant for each in inner for constant in _of_jaxpr(each)]


def _same(constant: Any, other: Any) -> bool:
    if constant is other:
        return True
    if shape_of(constant) != shape_of(other) or math.prod(shape_of(constant) or ()) > _COMPARED:
        return False
    try:
        mine = np.asarray(constant)
        return bool(np.array_equal(mine, np.asarray(other).astype(mine.dtype)))
    except (TypeError, ValueError):  # keys, and columns of text
        return False
