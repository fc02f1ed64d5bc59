"""Whether a compiled program of a measuring run keeps records apart: tried on simulated ones before it reads a record.

As :mod:`dpvi.run.program.program_check` does for steps: what a record adds must follow from that record alone, bit for
bit, and have norm at most 1. Totals are whole numbers and not yet noisy here, so they can be compared as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared.validation import CompilerError, PrivacyWarning
from dpvi.models.base import GenerativeModel
from dpvi.models.simulate import ill_conditioned, of_all_sizes, responded
from dpvi.run.program.program_check import failed_trial

_SHARES = (0.97, 0.5, 0.1)  # of the slots that are full
_SHIFTS = (1, 7)  # slots; a few, because kernels take a few at a time
_VACUOUS = (
    "A compiled program could not be tried: none of the simulated records adds anything to a sum. Whether it keeps "
    "records apart is not known; give the model priors under which its density is finite at ordinary values."
)


def check_apart(
    totalled: Callable[[Any, np.ndarray], np.ndarray], model: GenerativeModel, slots: int, largest: int
) -> None:
    """Raise a :class:`~dpvi.declared.validation.CompilerError` where records are not kept apart.

    Parameters
    ----------
    totalled
        (records of all slots, which of them are included) to the total, int64.
    model
        Gives the structure of a record, and responses that lie in their support.
    slots
        Of the program.
    largest
        The norm that a record may have, in units.

    1. Each of a few ill-conditioned records alone, in two slots and beside others that are not included, adds the same,
       and its norm, computed exactly, is at most ``largest``.
    2. Copies of them, in all slots or in some, add up to the sum of what they add alone.
    3. Different records in all slots have the same total when they are moved, and in two parts.
    """
    rng = np.random.default_rng(0)
    few, other = ill_conditioned(model.structure), of_all_sizes(model.structure, slots, rng)
    count = len(jax.tree.leaves(few)[0])
    records = jax.tree.map(lambda *parts: np.concatenate(parts), few, other)
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):  # drawn as the trial of steps draws them
        records = responded(model, jnp.zeros(model.dimension), records)
    # the program that reads records is the one for their types, and no other must be tried
    records = jax.tree.map(lambda leaf, one: leaf.astype(one.dtype), records, model.structure)

    def total(which: np.ndarray, included: np.ndarray) -> np.ndarray:
        return totalled(jax.tree.map(lambda leaf: leaf[which], records), included)

    def same(found: np.ndarray, expected: np.ndarray) -> None:
        if not np.array_equal(found, expected):
            raise CompilerError(failed_trial("what a record adds to a sum depends on the records beside it"))

    different, every = count + np.arange(slots), np.ones(slots, bool)
    alone = []
    for record in range(count):
        first, last = rng.integers(slots), rng.integers(slots)
        found = [
            total(np.where(np.arange(slots) == at, record, different), np.arange(slots) == at) for at in (first, last)
        ]
        same(*found)
        _check_norm(found[0], largest)
        alone.append(found[0])
    copies = rng.integers(count, size=slots)
    for share in (1.0, *_SHARES):
        included = rng.uniform(size=slots) < share
        same(total(copies, included), np.bincount(copies[included], minlength=count) @ np.stack(alone))
    whole, half = total(different, every), rng.uniform(size=slots) < 0.5
    for shift in _SHIFTS:
        same(total(np.roll(different, shift), every), whole)
    same(total(different, half) + total(different, ~half), whole)
    if not (np.any(whole) or np.any(alone)):
        warnings.warn(_VACUOUS, PrivacyWarning, stacklevel=2)


def _check_norm(added: np.ndarray, largest: int) -> None:
    """Exactly, in Python's whole numbers."""
    if sum(each * each for each in added.tolist()) > largest**2:
        raise CompilerError(failed_trial("what one record adds to a sum is longer than the clip norm"))
