"""Made-up records of several kinds, so that a model can be tried without looking at anybody's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.backend.compiling import SharedProgram, plain_fusions
from dpvi.models.base import GenerativeModel

_VARIED = ("normal", "uniform", "positive", "proportions")
_CONSTANT = ("zeros", "ones")
_SCALES = (1e3, -1e3, 1e6, -1e6)
_SMALL_MODEL = 2**20  # parameters


class Simulated(NamedTuple):
    """Two batches of one kind that differ in every record, where the kind varies at all."""

    kind: str
    varied: bool
    first: Any
    second: Any

    def among_others(self, row: int) -> Any:
        """The first batch, all of whose records but ``row`` are those of the second."""

        def exchanged(mine: Any, others: Any) -> np.ndarray:
            kept = np.arange(len(mine)) == row
            return np.where(kept.reshape(-1, *[1] * (np.ndim(mine) - 1)), mine, others)

        return jax.tree.map(exchanged, self.first, self.second)


def simulate(structure: Any, num_records: int) -> list[Simulated]:
    """Batches of ``num_records`` records of each kind, the same on every call.

    Parameters
    ----------
    structure
        The structure of one record.
    num_records
        Length of the leading axis.
    """
    batches = []
    for kind in (*_VARIED, *_CONSTANT):
        random = np.random.default_rng(0)
        first = jax.tree.map(lambda leaf, k=kind, r=random: made_up(k, leaf, num_records, r), structure)
        second = jax.tree.map(lambda leaf, k=kind, r=random: made_up(k, leaf, num_records, r), structure)
        second = jax.tree.map(_differ, first, second) if kind in _VARIED else second
        batches.append(Simulated(kind, kind in _VARIED, first, second))
    return batches


def with_responses(model: GenerativeModel, z: jax.Array, kinds: list[Simulated]) -> list[Simulated]:
    """Replace the responses (leaves that a site takes as ``obs``) by draws from that site, which lie in its support."""
    if not model.responses:
        return kinds
    respond = compiled_for_few_calls(lambda batch, key: _respond(model, z, batch, key), model.dimension)
    keys = jax.random.split(jax.random.key(0))
    return [
        each._replace(first=respond(each.first, keys[0]), second=respond(each.second, keys[1])) if each.varied else each
        for each in kinds
    ]


def responded(model: GenerativeModel, z: jax.Array, batch: Any) -> Any:
    """``batch`` with responses drawn at ``z``; what cannot be drawn stays as it is."""
    if not model.responses:
        return batch
    respond = compiled_for_few_calls(lambda batch, key: _respond(model, z, batch, key), model.dimension)
    return jax.tree.map(np.asarray, respond(batch, jax.random.key(0)))


def compiled_for_few_calls(function: Callable, num_parameters: int = 0) -> Callable:
    """``function`` of a model with so many parameters, compiled for a few calls before a run.

    On a processor, optimising the program of a model takes longer than all of these calls, unless the model is large.
    """
    quick = jax.default_backend() == "cpu" and num_parameters <= _SMALL_MODEL
    options = {"xla_backend_optimization_level": 0, **plain_fusions()} if quick else None
    return SharedProgram(function, options)


def differs(a: Any, b: Any, tolerance: float) -> bool:
    """Whether results on simulated records differ by more than ``tolerance``, relatively; two non-finite ones agree."""
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(invalid="ignore"):
        close = np.abs(a - b) <= tolerance * (1 + np.abs(b))
    return not bool(np.all(close | (a == b) | (~np.isfinite(a) & ~np.isfinite(b))))


def _respond(model: GenerativeModel, z: jax.Array, batch: Any, key: jax.Array) -> Any:
    leaves, treedef = jax.tree.flatten(batch)
    for index, draw in model.draw_responses(z, batch, key).items():  # without a sampler, the plain kinds remain
        if jnp.shape(draw) == leaves[index].shape:
            drawn = draw.astype(leaves[index].dtype)
            leaves[index] = jnp.where(jnp.isfinite(draw), drawn, leaves[index])  # at this z some have no draw
    return jax.tree.unflatten(treedef, leaves)


def ill_conditioned(structure: Any, few: bool = False) -> Any:
    """One record of every kind, and large ones of both signs, whose terms cancel but for rounding; ``few`` of them."""
    parts = [each.first for each in simulate(structure, 1)]

    def scaled(leaf: np.ndarray, scale: float) -> np.ndarray:
        return leaf * leaf.dtype.type(scale) if np.issubdtype(leaf.dtype, np.floating) else leaf

    parts += [jax.tree.map(lambda leaf, k=scale: scaled(leaf, k), parts[0]) for scale in _SCALES]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *(parts[:3:2] if few else parts))


def of_all_sizes(structure: Any, num_records: int, rng: np.random.Generator) -> Any:
    """Different records, normal and positive ones in turn, of sizes from a hundredth to a thousand."""
    sizes, positive = 10.0 ** rng.uniform(-2, 3, num_records), np.arange(num_records) % 2 == 1

    def leaf(one: jax.ShapeDtypeStruct) -> np.ndarray:
        normal, other = (made_up(kind, one, num_records, rng) for kind in ("normal", "positive"))
        along = (-1, *[1] * len(one.shape))
        drawn = np.where(positive.reshape(along), other, normal)
        return (drawn * sizes.reshape(along)).astype(one.dtype) if drawn.dtype.kind == "f" else drawn

    return jax.tree.map(leaf, structure)


def made_up(kind: str, leaf: jax.ShapeDtypeStruct, num_records: int, random: np.random.Generator) -> np.ndarray:
    """One array of ``num_records`` records of a kind that :func:`simulate` knows."""
    shape = (num_records, *leaf.shape)
    if kind in _CONSTANT:
        return np.full(shape, kind == "ones", dtype=leaf.dtype)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return random.integers(0, 2, shape).astype(leaf.dtype)
    if kind == "normal":
        return random.standard_normal(shape).astype(leaf.dtype)
    values = random.uniform(0.05, 0.95, shape)
    if kind == "positive":
        values = 0.5 + 3 * values
    if kind == "proportions" and leaf.shape:
        values = values / values.sum(axis=-1, keepdims=True)
    return values.astype(leaf.dtype)


def _differ(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    # Two draws of a bit agree half of the time, and a coupling through them would then go unseen.
    return second if np.issubdtype(first.dtype, np.floating) else (1 - first.astype(np.int32)).astype(first.dtype)
