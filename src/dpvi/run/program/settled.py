"""A run that stands still: all that it released so far, as plain arrays, from which it can go on.

A run can stand still where a window of steps ends, or a driver's stretch. Both follow from the plan, the model and what
was released, so where a run stood still tells nothing of the records. Chunks do not: their length may depend on how
many records there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpvi.release.driver import Driver, Released
from dpvi.run.program.step import State


class Stretch(NamedTuple):
    """Steps that a driver asked for, and what it was told before."""

    stop: int
    query: np.ndarray | None
    told: Released


class Settled(NamedTuple):
    """Everything a run released up to ``step``, and what it needs to go on; no key is in it.

    Attributes
    ----------
    step
        Steps that were taken.
    state
        What the optimiser carries.
    recorded
        Rows and sums, from the recorder.
    stretches
        Of a run with a driver: all so far, the open one last.
    totals
        Sums over the steps of the open stretch.
    released
        What the driver is told next, where no stretch is open.
    """

    step: int
    state: State
    recorded: dict[str, np.ndarray]
    stretches: tuple[Stretch, ...] = ()
    totals: tuple[np.ndarray, ...] | None = None
    released: Released | None = None


class Keep(Protocol):
    """Called where a run can stand still: it may look at the run, and may end it by an exception.

    ``due`` says that it has to look, because what was released is about to be shown to somebody, or the run is done.
    """

    def __call__(self, settled: Callable[[], Settled], due: bool) -> None: ...


def told_again(driver: Driver, stretches: tuple[Stretch, ...], check: Callable[[Any, int], Any]) -> None:
    """Tell ``driver`` what it was told before, so that it stands where it stood.

    Parameters
    ----------
    check
        (directive, step) to (stop, query), as for a directive that is followed.

    Raises
    ------
    ValueError
        Where it asks for something else than it did: a driver must be a function of what it is told.
    """
    for stretch in stretches:
        stop, query = check(driver(stretch.told), stretch.told.step)
        if stop != stretch.stop or (query is None) != (stretch.query is None):
            raise ValueError(
                f"Told the same as before at step {stretch.told.step}, the driver asks for something else than it did. "
                "A run can be resumed only if its driver is a function of what it is told; pass the same driver, or "
                "begin a new run with another checkpoint."
            )
