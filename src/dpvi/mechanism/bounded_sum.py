"""The clipped sum over a batch: the only place where records are added up."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.mechanism.exchange import everyones
from dpvi.mechanism.gaussian import COUNT_BITS, FORMED_BITS, exact_sum, is_unbounded, per_unit, plain_sum
from dpvi.mechanism.layers import Layers
from dpvi.mechanism.quantile_clipping import unclipped
from dpvi.release.clip import clip_ratio


class Clipped(NamedTuple):
    """A clipped sum, and how many records it left alone. Sensitive, both of them: noise is still to come."""

    total: jax.Array  # int64, in units of the clip norm; float64 where nothing is clipped, which no private plan allows
    centred_count: jax.Array  # int64: Σ over included records of what `unclipped` says, in units of 2⁻³⁰

    def plus(self, other: Clipped) -> Clipped:
        """Over the records of both; exact, so that no order matters."""
        with jax.enable_x64(True):
            return Clipped(*map(jax.lax.add, self, other))


def bounded_sum(
    releases: jax.Array, included: jax.Array, clip_norm: float | jax.Array, layers: Layers | None = None
) -> Clipped:
    """Sum of the clipped rows of ``releases`` that are ``included``, and their centred count.

    Parameters
    ----------
    releases
        One release vector per physical slot, (slots, r).
    included
        Which slots hold a sampled record, (slots,).
    clip_norm
        Bound on each row's norm: a number, or a scalar array that reads no record. Not used where there are ``layers``.
    layers
        Clip every layer of a row to a norm of its own. A record counts by the layer that is clipped most.

    Guarantees
    ----------
    What a record adds is a vector of whole numbers that depends on its own row alone, of norm at most C in units of
    2⁻³⁰ C₂ (:mod:`dpvi.mechanism.gaussian`), each layer of it at most that layer's: adding or removing a record moves
    the sum by exactly that. A record with a non-finite release adds zero, to every layer, as does an empty slot,
    whatever it holds.
    """
    if layers is None:
        ratio = clip_ratio(releases, clip_norm)
        factor = jnp.minimum(ratio, 1.0)[:, None]
        bound = clip_norm
    else:
        labels = layers.labels(releases.shape[1])
        columns = [releases[:, labels == layer] for layer in range(len(layers.clip_norms))]
        ratios = [clip_ratio(part, bound) for part, bound in zip(columns, layers.clip_norms, strict=True)]
        ratio = jnp.min(jnp.stack(ratios), axis=0)
        factor = jnp.minimum(jnp.stack(ratios, axis=1), 1.0)[:, labels]
        bound = np.asarray(layers.clip_norms)[labels]
    present = included & (ratio > 0)  # zero times a non-finite number is not zero
    count = centred_count(ratio, included)
    if is_unbounded(bound):
        return Clipped(plain_sum(releases, present), count)
    # scaling by a power of two does not round, so the product is what `clip_ratio` allows for; cutting shortens it
    units = releases * (factor * per_unit(bound, FORMED_BITS, releases.dtype))
    return Clipped(exact_sum(units, present, FORMED_BITS), count)


def centred_count(ratio: jax.Array, included: jax.Array) -> jax.Array:
    """Σ over included records of what ``unclipped`` says of their ratio C/‖release‖, in units of 2⁻³⁰."""
    return exact_sum(unclipped(ratio) * np.asarray(2.0**COUNT_BITS, ratio.dtype), included, COUNT_BITS)


def all_reduced(own: Clipped, axis: str) -> Clipped:
    """The sum and the count over all devices along a mesh axis, the same on each of them; inside ``shard_map`` only.

    Whole numbers are added, so the sum is the one that a single device would have made.
    """
    with jax.enable_x64(True):
        return Clipped(*(jnp.sum(everyones(part, axis), axis=0) for part in own))
