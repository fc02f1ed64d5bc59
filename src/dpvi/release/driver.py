"""Steering a run between chunks, from released quantities only."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np


class Released(NamedTuple):
    """What a driver sees: where the run stands, and means over the stretch it asked for last.

    Everything here is post-processing of noisy sums, so whatever a driver does with it costs no privacy. Arrays of runs
    side by side have a leading axis of runs, here and in a directive's query.
    """

    step: int  # steps taken so far
    steps_left: int
    iterate: np.ndarray  # ξ now, (p,)
    mean_iterate: np.ndarray  # over the last stretch, float64; NaN before the first
    mean_query: np.ndarray
    mean_noisy_sum: np.ndarray


class Directive(NamedTuple):
    """What to do next: ``num_steps`` steps of the optimiser, or, with ``query``, of measuring at that point z."""

    num_steps: int
    query: np.ndarray | None = None


class Driver(Protocol):
    """Called before the first step and after every stretch; ``None`` means: move until the plan's steps are done."""

    def __call__(self, released: Released) -> Directive | None: ...
