"""How long a compiled program takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


def seconds(program: Callable[[], Any], repeats: int = 5) -> float:
    """Median over ``repeats`` calls, after one that compiles."""
    jax.block_until_ready(program())
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(program())
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
