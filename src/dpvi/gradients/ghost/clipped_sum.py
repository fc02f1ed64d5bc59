"""The sum of clipped gradients of a batch without any gradient of a single record.

One forward and one backward pass give, for every contraction of a parameter matrix, its data A and its errors B. Norms
follow from these (:mod:`dpvi.gradients.ghost.norms`), and so does the clipped sum, Σ_i γ_i A_iᵀB_i: one contraction
over the batch, as in a gradient without privacy. No second backward pass with weighted records is taken: it would cost
more, and its rounding errors could differ from those of the first. The sum is made of the very numbers whose norms were
bounded, so the clip holds even where a backward pass is inexact.

References
----------
Goodfellow (2015), Efficient per-example gradient computations. Li et al. (2022), Large language models can be strong
differentially private learners: Gram form for sequences. Bu et al. (2023), Differentially private optimization on large
model at small cost: one backward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dpvi.core.clip import clip_ratio
from dpvi.gradients.ghost.analysis import analyse
from dpvi.gradients.ghost.microbatch import in_microbatches
from dpvi.gradients.ghost.parts import Part, assemble, parts_of, side_by_side
from dpvi.gradients.ghost.replay import Taps, evaluate, flatten, zero_taps
from dpvi.mechanism.bounded_sum import Clipped, TwoFold, centred_count
from dpvi.mechanism.layers import Layers

Term = Callable[[Any, Any], jax.Array]  # (params, record) -> scalar
_TILE = 16  # rows that accelerators multiply at a time
_ADDED_PLAINLY = 512  # most records in one contraction, for it rounds more the more there are


def clipped_gradient_sum(
    term: Term,
    params: Any,
    records: Any,
    included: jax.Array,
    clip_norm: float | jax.Array,
    *,
    layers: Layers | None = None,
    microbatch_size: int | None = None,
) -> TwoFold:
    """Sum over included records of the clipped gradient of ``term``, in the layout of ``ravel_pytree(params)``.

    The same mechanism as ``bounded_sum(jax.vmap(jax.grad(term), (None, 0))(params, records), included, clip_norm)``.

    Parameters
    ----------
    term
        ``term(params, record)``, one number; sees one record.
    params
        A flat vector, or a pytree of floating-point arrays.
    records
        Pytree of arrays with a leading axis of slots.
    included
        Which slots hold a sampled record, (slots,).
    clip_norm
        C, a number or a scalar array that reads no record. Not used where ``layers`` carry their own.
    layers
        Clip every layer to a norm of its own; see :class:`dpvi.core.clipping.PerLayer` for what that costs.
    microbatch_size
        Most slots to work on at a time; accelerators fill them up to a multiple of 16. Changes time and memory, never
        the mechanism.

    Guarantees
    ----------
    Every record adds a vector of norm at most C as a real number, before the additions of the sum round: norms are
    bounded from above by what their own rounding can hide, and the sum is formed from the same numbers in full
    precision, whatever the precision of the model's own products. A record whose gradient, or its norm, is not finite
    adds zero, to every layer. Up to 512 records are added by one contraction in the precision of the parameters, and
    the sums of more in twofold precision. When a record leaves, all later ones move up a slot and the contraction
    rounds differently: in float32 the largest excess over C found was 1.3e-4 of it with 2,048 records, 7.4e-4 with 10⁵
    and 2.2e-3 with 10⁶ (``benchmarks/rounding.py``). Double precision, as in
    :func:`dpvi.mechanism.bounded_sum.bounded_sum`, would leave none, at many times the cost on most accelerators.

    | parameters | gradient of a single record |
    | --- | --- |
    | a matrix that meets data in contractions only, each on one row | never formed |
    | the same, on several rows or several times | never formed where two Gram matrices are smaller |
    | biases and everything else | formed, as many numbers as parameters |

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> def term(weights, record):
    ...     return jnp.sum(jnp.tanh(record @ weights["first"]) @ weights["second"])
    >>> weights = {"first": jnp.ones((3, 5)), "second": jnp.ones((5, 2))}
    >>> records, included = jnp.ones((4, 3)), jnp.array([True, True, True, False])
    >>> total = clipped_gradient_sum(term, weights, records, included, 2.0).value
    >>> total.shape, round(float(jnp.linalg.norm(total)), 3)  # three equal records, each clipped to 2
    ((25,), 6.0)
    """
    return clipped_gradient_sum_and_count(
        term, params, records, included, clip_norm, layers=layers, microbatch_size=microbatch_size
    ).total


def clipped_gradient_sum_and_count(
    term: Term,
    params: Any,
    records: Any,
    included: jax.Array,
    clip_norm: float | jax.Array,
    *,
    layers: Layers | None = None,
    microbatch_size: int | None = None,
) -> Clipped:
    """:func:`clipped_gradient_sum` and the centred count that :class:`dpvi.core.clipping.QuantileClipping` asks for.

    One record moves the count by at most ½ when it is added or removed. With layers it counts by the layer that is
    clipped most.
    """
    vector, unravel = ravel_pytree(params)
    _check_precision(vector.dtype)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), records)
    closed = flatten(lambda flat, record: term(unravel(flat), record), vector, shapes)
    labels = np.zeros(vector.size, int) if layers is None else layers.labels(vector.size)
    clip_norms = (clip_norm,) if layers is None else layers.clip_norms
    analysis = analyse(closed, labels)

    def one(record: Any) -> tuple[Taps, tuple[jax.Array, ...]]:
        def tapped(taps: Taps) -> tuple[jax.Array, tuple[jax.Array, ...]]:
            return evaluate(closed, analysis.places, taps, [vector, *jax.tree.leaves(record)])

        return jax.grad(tapped, has_aux=True)(zero_taps(closed, analysis.places))

    def part_sum(batch: Any, present: jax.Array) -> Clipped:
        batch, present = _filled_up(batch, present)
        taps, data = jax.vmap(one)(batch)
        parts = list(parts_of(analysis, taps, data, present.size, vector.dtype))
        return _clip_and_add(parts, [int(labels[part.positions[0]]) for part in parts], clip_norms, present, vector)

    return in_microbatches(part_sum, records, included, microbatch_size)


def _filled_up(batch: Any, included: jax.Array) -> tuple[Any, jax.Array]:
    """On an accelerator, the batch with empty slots behind it up to whole tiles; else products fill up one by one."""
    size = included.size
    filled = size if jax.default_backend() == "cpu" else -(-size // _TILE) * _TILE
    if filled == size:
        return batch, included
    index = np.minimum(np.arange(filled), size - 1)
    return jax.tree.map(lambda leaf: leaf[index], batch), included[index] & (np.arange(filled) < size)


def _check_precision(dtype: Any) -> None:
    if dtype not in (jnp.float32, jnp.float64):
        raise TypeError(
            f"Parameters must be float32 or float64 for their clipped sum, got {dtype}: with fewer digits rounding "
            "alone would exceed the clip norm. A model may compute in less; cast its parameters inside the term."
        )


def _clip_and_add(
    parts: Sequence[Part], layers: Sequence[int], clip_norms: Sequence[Any], included: jax.Array, vector: jax.Array
) -> Clipped:
    """Clip what each record adds to every layer, and add; ``layers`` says to which one a part belongs."""
    # per layer and record a short vector, at least as long as the gradient
    norms: list[list[jax.Array]] = [[jnp.zeros((included.size, 1), vector.dtype)] for _ in clip_norms]
    for part, layer in zip(parts, layers, strict=True):
        norms[layer].append(part.norms())
    ratio = jnp.stack([clip_ratio(each, bound) for each, bound in zip(norms, clip_norms, strict=True)], axis=1)
    factor, worst = jnp.minimum(ratio, 1.0), jnp.min(ratio, axis=1)
    usable = worst > 0
    weights = jnp.where((included & usable)[:, None], factor, 0)
    joined = [
        (layer, part)
        for layer in range(len(clip_norms))
        for part in side_by_side([part for part, owner in zip(parts, layers, strict=True) if owner == layer])
    ]

    def added(rows: slice) -> TwoFold:
        sums = [(part.positions, part.weighted_sum(weights[:, layer], usable, rows)) for layer, part in joined]
        total = assemble(sums, vector.size, vector.dtype)
        return TwoFold(total, jnp.zeros_like(total))

    blocks = [slice(first, first + _ADDED_PLAINLY) for first in range(0, included.size, _ADDED_PLAINLY)]
    return Clipped(functools.reduce(TwoFold.plus, map(added, blocks)), centred_count(worst, included))
