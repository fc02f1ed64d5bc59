"""The sum of clipped gradients of a batch without any gradient of a single record.

One forward and one backward pass give, for every contraction of a parameter matrix, its data A and its errors B. Norms
follow from these (:mod:`dpvi.gradients.ghost.norms`), and so does the clipped sum, Σ_i γ_i A_iᵀB_i: one contraction
over the batch, as in a gradient without privacy, of whole numbers (:mod:`dpvi.gradients.ghost.whole_rows`). No second
backward pass with weighted records is taken: it would cost more, and its rounding errors could differ from those of the
first. The sum is made of the very numbers whose norms were bounded, so the clip holds even where a backward pass is
inexact.

References
----------
Goodfellow (2015), Efficient per-example gradient computations. Li et al. (2022), Large language models can be strong
differentially private learners: Gram form for sequences. Bu et al. (2023), Differentially private optimization on large
model at small cost: one backward pass.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dpvi.backend.compiling import compiled_apart
from dpvi.gradients.ghost.analysis import analyse
from dpvi.gradients.ghost.contractions import Rows
from dpvi.gradients.ghost.microbatch import in_microbatches
from dpvi.gradients.ghost.parts import Part, assemble, parts_of, side_by_side
from dpvi.gradients.ghost.replay import Taps, evaluate, flatten, zero_taps
from dpvi.gradients.ghost.whole_rows import allowance, largest_ratio, sizes_of
from dpvi.mechanism.bounded_sum import Clipped, centred_count
from dpvi.mechanism.gaussian import is_unbounded, per_unit, power_of_two_above
from dpvi.mechanism.layers import Layers
from dpvi.release.clip import clip_ratio

Term = Callable[[Any, Any], jax.Array]  # (params, record) -> scalar


def clipped_gradient_sum(
    term: Term,
    params: Any,
    records: Any,
    included: jax.Array,
    clip_norm: float | jax.Array,
    *,
    layers: Layers | None = None,
    microbatch_size: int | None = None,
    fill_up: bool = False,
) -> Clipped:
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
        Clip every layer to a norm of its own; see :class:`dpvi.declared.clipping.PerLayer` for what that costs.
    microbatch_size, fill_up
        Slots to work on at a time, rounded up to a multiple of 64, and whether a smaller batch is filled up; see
        :func:`~dpvi.gradients.ghost.microbatch.in_microbatches`.

    Returns
    -------
    The sum in units of 2⁻³⁸ C₂ and the centred count, as :func:`dpvi.mechanism.bounded_sum.bounded_sum` gives them.

    Guarantees
    ----------
    Every record adds a vector of norm at most C as a real number: norms are bounded from above by what their own
    rounding can hide, and the sum is formed from the same numbers, cut to whole ones whose products float64 adds up
    exactly (:mod:`dpvi.gradients.ghost.whole_rows`), whatever the precision of the model's own products. What a record
    adds depends on nothing but that record, and the order of records on nothing at all. A record whose gradient, or its
    norm, is not finite adds zero, to every layer. With layers it counts by the layer that is clipped most.

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
    >>> total = clipped_gradient_sum(term, weights, records, included, 2.0).total
    >>> total.shape, round(float(np.linalg.norm(total)) * 4 / 2**38, 3)  # three equal records, each clipped to 2
    ((25,), 6.0)
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
        taps, data = jax.vmap(one)(batch)
        parts = list(parts_of(analysis, taps, data, present.size, vector.dtype))
        return _clip_and_add(parts, [int(labels[part.positions[0]]) for part in parts], clip_norms, present, vector)

    return in_microbatches(compiled_apart(part_sum), records, included, microbatch_size, fill_up)


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
    of_layer = [
        [part for part, owner in zip(parts, layers, strict=True) if owner == layer] for layer in range(len(clip_norms))
    ]
    pairs = list(zip(of_layer, clip_norms, strict=True))
    ratio = jnp.stack([_ratio(own, bound, included.size, vector.dtype) for own, bound in pairs], axis=1)
    worst = jnp.min(ratio, axis=1)
    present = included & (worst > 0)
    sums = []
    for layer, (own, bound) in enumerate(pairs):
        scale = None if is_unbounded(bound) else jnp.minimum(ratio[:, layer], 1.0) * per_unit(bound, 0, ratio.dtype)
        sums += [(part.positions, part.exact_sum(scale, present)) for part in side_by_side(own)]
    with jax.enable_x64(True):
        return Clipped(assemble(sums, vector.size), centred_count(worst, included))


def _ratio(parts: Sequence[Part], clip_norm: Any, size: int, dtype: Any) -> jax.Array:
    """C/‖gradient‖ of every record in one layer, not cut off at 1; 0 for a broken one."""
    # per record a short vector, at least as long as the gradient
    ratio = clip_ratio([jnp.zeros((size, 1), dtype), *(part.norms() for part in parts)], clip_norm)
    if is_unbounded(clip_norm):
        return ratio
    matrices = [part.gradient for part in parts if isinstance(part.gradient, Rows)]
    limits = [largest_ratio(rows, power_of_two_above(clip_norm)) for rows in matrices]
    lengthened = math.hypot(*(allowance(*sizes_of(rows)) for rows in matrices))
    return functools.reduce(jnp.minimum, [limit for limit in limits if limit is not None], ratio * (1 - lengthened))
