"""The clipped sum over a batch: the only place where records are added up."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpvi.core.clip import clip_ratio
from dpvi.mechanism.exchange import everyones
from dpvi.mechanism.layers import Layers
from dpvi.mechanism.quantile_clipping import unclipped

# Beyond this many rows rounding errors of a plain sum, which move when a record leaves, are no longer far below C.
_PLAIN_ROWS = 2048


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
    centred_count: jax.Array  # Σ over included records of what `unclipped` says, from −½ to ½ each

    def plus(self, other: Clipped) -> Clipped:
        """Over the records of both."""
        return Clipped(self.total.plus(other.total), self.centred_count + other.centred_count)


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
    last digit their own clip factors, round differently. Up to 2,048 rows are added plainly, more in twofold
    precision. In float32 the excess over ``clip_norm`` stayed below 2e-4 of it up to 10⁶ rows
    (``benchmarks/rounding.py``). A record with a non-finite release contributes zero, to every layer, as does an empty
    slot, whatever it holds.
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
    count = jnp.sum(jnp.where(included, unclipped(ratio), 0))
    return Clipped(_weighted_sum(jnp.where(included, factor, 0), releases), count)


def _weighted_sum(weights: jax.Array, releases: jax.Array) -> TwoFold:
    if releases.shape[0] <= _PLAIN_ROWS:
        total = jnp.matmul(weights, releases, precision=jax.lax.Precision.HIGHEST)
        return TwoFold(total, jnp.zeros_like(total))
    # rounded here and now: fused into the sums below, the products would be used unrounded in some places only
    kind = jnp.finfo(releases.dtype)
    rows = jax.lax.reduce_precision(weights[:, None] * releases, kind.nexp, kind.nmant)
    return _twofold_sum(TwoFold(rows, jnp.zeros_like(rows)))


def all_reduced(own: Clipped, axis: str) -> Clipped:
    """The sum and the count over all devices along a mesh axis, the same on each of them; inside ``shard_map`` only.

    Guarantees
    ----------
    Parts are added in twofold precision and in the order of devices, so spreading records adds no rounding to speak of
    to what :func:`bounded_sum` says: an all-reduce in plain floats would round the sum of a large batch, which moves
    when a record leaves. Counts are added plainly, as those of several passes are.
    """
    total, count = own
    together = jnp.concatenate([*total, jnp.atleast_1d(count).astype(total.high.dtype)])
    high, low, counts = jnp.split(everyones(together, axis), [total.high.size, 2 * total.high.size], axis=1)
    return Clipped(_twofold_sum(TwoFold(high, low)), jnp.sum(counts[:, 0], axis=0).astype(count.dtype))


def _twofold_sum(total: TwoFold) -> TwoFold:
    """Sum over the first axis by halving: every level adds one half of the rows to the other."""
    while (count := total.high.shape[0]) > 1:
        half = (count + 1) // 2
        padding = [(0, 2 * half - count), (0, 0)]
        upper = TwoFold(*(jnp.pad(part[half:], padding) for part in total))
        total = TwoFold(*(part[:half] for part in total)).plus(upper)
    return TwoFold(total.high[0], total.low[0])
