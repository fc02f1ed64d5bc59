"""The clipped sum over a batch: the only place where records are added up."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.core.clip import clip_ratio
from dpvi.mechanism.exchange import everyones
from dpvi.mechanism.layers import Layers
from dpvi.mechanism.quantile_clipping import unclipped


class TwoFold(NamedTuple):
    """A number kept as the unevaluated sum of two floats, twice as precise as one."""

    high: jax.Array
    low: jax.Array

    @property
    def value(self) -> jax.Array:
        """Rounded to one float."""
        return self.high + self.low

    def plus(self, other: TwoFold) -> TwoFold:
        """The sum, exact up to the square of the unit roundoff (Knuth's two-sum)."""
        high = self.high + other.high
        shadow = high - self.high
        error = (self.high - (high - shadow)) + (other.high - shadow)
        return TwoFold(high, error + self.low + other.low)


class Clipped(NamedTuple):
    """A clipped sum, and how many records it left alone. Sensitive, both of them: noise is still to come."""

    total: TwoFold
    centred_count: TwoFold  # Σ over included records of what `unclipped` says, from −½ to ½ each

    def plus(self, other: Clipped) -> Clipped:
        """Over the records of both."""
        return Clipped(self.total.plus(other.total), self.centred_count.plus(other.centred_count))


def bounded_sum(
    releases: jax.Array,
    included: jax.Array,
    clip_norm: float | jax.Array,
    careful: bool = True,
    layers: Layers | None = None,
) -> TwoFold:
    """Sum of the clipped rows of ``releases`` that are ``included``.

    Parameters
    ----------
    releases
        One release vector per physical slot, (slots, r).
    included
        Which slots hold a sampled record, (slots,).
    clip_norm
        Bound on each row's norm: a number, or a scalar array that reads no record. Not used where there are ``layers``.
    careful
        Blank non-finite rows. Without it such a row makes the sum non-finite, included or not, which whoever saves
        this pass has to look for.
    layers
        Clip every layer of a row to a norm of its own.

    Guarantees
    ----------
    Adding or removing one record changes the sum by a vector of norm at most ``clip_norm`` (each layer of it, at most
    that layer's), up to rounding: when a record leaves, all later ones move up a slot, where partial sums, and in the
    last digit their own clip factors, round differently. Rows are added in double precision: in float32 runs products
    are then exact and n additions move the sum by at most n² 2⁻⁵² of the clip norm, 2e-4 for 10⁶ rows if all errors
    conspired; measured, no excess was left of it in one pass, and 1e-6 in parts (``benchmarks/rounding.py``). A record
    with a non-finite release contributes zero, to every layer, as does an empty slot, whatever it holds.
    """
    return bounded_sum_and_count(releases, included, clip_norm, careful, layers).total


def bounded_sum_and_count(
    releases: jax.Array,
    included: jax.Array,
    clip_norm: float | jax.Array,
    careful: bool = True,
    layers: Layers | None = None,
) -> Clipped:
    """:func:`bounded_sum` and the centred count that :class:`dpvi.core.clipping.QuantileClipping` asks for.

    With layers a record counts by the layer that is clipped most.
    """
    if layers is None:
        ratio = clip_ratio(releases, clip_norm)
        factor = jnp.minimum(ratio, 1.0)
    else:
        labels = layers.labels(releases.shape[1])
        columns = [releases[:, labels == layer] for layer in range(len(layers.clip_norms))]
        ratios = [clip_ratio(part, bound) for part, bound in zip(columns, layers.clip_norms, strict=True)]
        ratio = jnp.min(jnp.stack(ratios), axis=0)
        releases = releases * jnp.minimum(jnp.stack(ratios, axis=1), 1.0)[:, labels]
        factor = jnp.where(ratio > 0, jnp.ones_like(ratio), 0)  # a record that is broken in one layer adds to none
    if careful:  # zero times a non-finite number is not zero, so a factor of zero does not blank such a row
        releases = jnp.where(factor[:, None] > 0, releases, 0)
    weights = jnp.where(included, factor, 0)
    return Clipped(_double_sum(weights, releases), centred_count(ratio, included))


def centred_count(ratio: jax.Array, included: jax.Array) -> TwoFold:
    """Σ over included records of what ``unclipped`` says of their ratio C/‖release‖."""
    return _double_sum(included.astype(ratio.dtype), unclipped(ratio))


def _double_sum(weights: jax.Array, values: jax.Array) -> TwoFold:
    """Σ_i w_i v_i in float64, whatever the precision of the run; ``values`` are (n,) or (n, r)."""
    with jax.enable_x64(True):
        weights, doubled = weights.astype(jnp.float64), values.astype(jnp.float64)
        # products and then a sum: as a product of vector and matrix it takes a processor up to half as long again
        products = jax.lax.mul(jax.lax.broadcast_in_dim(weights, doubled.shape, (0,)), doubled)
        total = jax.lax.reduce(products, np.float64(0), jax.lax.add, (0,))
        return _halves(total, values.dtype)


def _halves(total: jax.Array, dtype: Any) -> TwoFold:
    """A float64 as two floats of the run's precision; under ``jax.enable_x64``."""
    high = total.astype(dtype)
    return TwoFold(high, (total - high.astype(jnp.float64)).astype(dtype))


def all_reduced(own: Clipped, axis: str) -> Clipped:
    """The sum and the count over all devices along a mesh axis, the same on each of them; inside ``shard_map`` only.

    Guarantees
    ----------
    Parts are added in double precision and in the order of devices, so spreading records adds no rounding to speak of
    to what :func:`bounded_sum` says: an all-reduce in plain floats would round the sum of a large batch, which moves
    when a record leaves.
    """
    high, low = (jnp.append(*parts) for parts in zip(own.total, own.centred_count, strict=True))
    gathered = everyones(jnp.stack([high, low]), axis)
    with jax.enable_x64(True):
        total = _halves(jnp.sum(gathered.astype(jnp.float64), axis=(0, 1)), gathered.dtype)
    return Clipped(*(TwoFold(*(part[index] for part in total)) for index in (slice(-1), -1)))
