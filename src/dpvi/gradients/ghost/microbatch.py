"""A batch cut into equal parts, one after the other: less memory, the same sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from dpvi.core import validation
from dpvi.mechanism.bounded_sum import TwoFold

Total = TypeVar("Total")
LARGEST = 2048  # more would take memory and save no time, fewer leave a graphics processor idle


def in_microbatches(
    part_sum: Callable[[Any, jax.Array], Total],
    records: Any,
    included: jax.Array,
    microbatch_size: int | None = None,
) -> Total:
    """Add ``part_sum(records, included)`` over parts of at most ``microbatch_size`` slots.

    Parameters
    ----------
    part_sum
        Gives a pytree of arrays and ``TwoFold`` numbers; arrays are added plainly, ``TwoFold`` numbers as such.
    records, included
        Arrays with a leading axis of slots. The last part is filled up with excluded slots.
    microbatch_size
        ``None`` for parts of up to 2,048 slots.

    Guarantees
    ----------
    A record is clipped in its part as it would be in the batch, so the mechanism does not depend on
    ``microbatch_size``: only the order of additions does.
    """
    microbatch_size = checked_microbatch_size(microbatch_size)
    slots = included.shape[0]
    size = min(microbatch_size or LARGEST, LARGEST)
    if slots <= size:
        return part_sum(records, included)
    count = -(-slots // size)
    size = -(-slots // count)  # equal parts, so that few slots are filled up
    order = jnp.arange(count * size).reshape(count, size)

    def part(index: jax.Array) -> Total:
        batch = jax.tree.map(lambda leaf: leaf.at[index].get(mode="clip"), records)
        return part_sum(batch, included.at[index].get(mode="fill", fill_value=False))

    def another(total: Total, index: jax.Array) -> tuple[Total, None]:
        return jax.tree.map(_plus, total, part(index), is_leaf=lambda leaf: isinstance(leaf, TwoFold)), None

    return jax.lax.scan(another, part(order[0]), order[1:])[0]


def checked_microbatch_size(microbatch_size: int | None) -> int | None:
    return None if microbatch_size is None else validation.whole_number("microbatch_size", microbatch_size)


def _plus(total: Any, part: Any) -> Any:
    return total.plus(part) if isinstance(total, TwoFold) else total + part
