"""Failures of a device and of memory, told without sizes: those of arrays follow from the number of records."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import jax

T = TypeVar("T")


def run_within_memory(remedy: str, run: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call ``run``; where memory ends, say what to do, and where the device fails otherwise, say how.

    The messages of JAX and NumPy name sizes of arrays: no number in them is passed on.

    Parameters
    ----------
    remedy
        How to hold less at a time, as part of a sentence.
    run
        Called with ``arguments`` and ``options``.

    Examples
    --------
    >>> run_within_memory("sample less", bytes, 2**62)
    Traceback (most recent call last):
    MemoryError: The records of a step must fit into memory, but did not; nothing was released. To hold less at a ...
    """
    try:
        return run(*arguments, **options)
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        text = str(error)
        exhausted = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text
    # outside of the handler, so that this error does not carry the other along
    if exhausted:
        raise MemoryError(
            "The records of a step must fit into memory, but did not; nothing was released. To hold less at a time, "
            f"{remedy}: time and memory change, the mechanism does not. Or make a plan with a smaller sampling_rate."
        )
    numberless = re.sub(r"\d+", "#", text)
    raise jax.errors.JaxRuntimeError(
        f"{numberless} (Numbers are left out here: sizes of arrays tell how many records there are.)"
    )
