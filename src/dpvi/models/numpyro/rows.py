"""Values of a site as one row per record, and back."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp


def rows_of(values: jax.Array, axis: int) -> jax.Array:
    """(records, entries) for ``values`` with the records along ``axis``, a negative number."""
    rows = jnp.moveaxis(values, axis, 0)
    return jnp.reshape(rows, (rows.shape[0], -1))


def from_rows(rows: jax.Array, shape: Sequence[int], axis: int) -> jax.Array:
    """The inverse of :func:`rows_of`; ``shape`` is that of the values, whatever stands there at ``axis``.

    Examples
    --------
    >>> values = jnp.arange(12).reshape(2, 3, 2)
    >>> bool(jnp.array_equal(from_rows(rows_of(values, -2), values.shape, -2), values))
    True
    """
    place = len(shape) + axis
    others = (*shape[:place], *shape[place + 1 :])
    return jnp.moveaxis(jnp.reshape(rows, (rows.shape[0], *others)), 0, axis)
