"""The loop of a measuring run: a strategy asks, from what was released before, until it is done."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm.auto import tqdm

from dpvi.families.base import Family
from dpvi.release.measurements import measurements_of
from dpvi.release.requests import KINDS, Answered, CovariateMoments, Request
from dpvi.release.trace import BlockSums, Trace
from dpvi.run.measuring.answers import Answers
from dpvi.run.placement.hosts import from_first, ready_together, several

Strategy = Generator[Request, np.ndarray, None]


def measure(
    answers: Answers,
    strategy: Strategy,
    bar: tqdm | None = None,
    begun: Sequence[Answered] = (),
    keep: Callable[[list[Answered]], None] | None = None,
) -> list[Answered]:
    """Answer what ``strategy`` asks for until it returns.

    Parameters
    ----------
    answers
        Sees the records, and keeps the budget.
    strategy
        Yields a request and is sent the noisy answer. It sees nothing else of the records.
    bar
        Counts units; it shows nothing that saw records.
    begun
        What was answered before, where the run goes on: the strategy is sent it again.
    keep
        Called with all answers so far, after each of them.
    """
    released = _told_again(strategy, begun)
    answers.go_on(begun)
    done = list(begun)
    if bar is not None:
        bar.update(sum(each.request.units for each in begun))
    while True:
        with ready_together():
            asked = _next(strategy, released) if jax.process_index() == 0 else None
            asked = None if asked is None else answers.checked(asked)  # before another process waits for it
        request = _from_first(asked)
        if request is None:
            return done
        found = answers(request)
        done.append(found)
        if keep is not None:
            keep(done)
        released = found.released
        if bar is not None:
            bar.update(found.request.units)


def measured_trace(done: list[Answered], family: Family, start: jax.Array, dimension: int) -> Trace:
    """A trace without a step: what was answered, and, as its final iterate, the point at which it was asked last."""
    queries = [each.request.query for each in done if not isinstance(each.request, CovariateMoments)]
    final = np.asarray(family.initial(jnp.asarray(queries[-1] if queries else start, start.dtype)))
    rows = {width: np.zeros((0, width), final.dtype) for width in (len(final), dimension)}
    none, sums = np.zeros(0), np.zeros((0, len(final)))
    return Trace(
        steps=np.zeros(0, np.int64),
        iterates=rows[len(final)],
        queries=rows[dimension],
        noisy_sums=rows[dimension],
        final=final,
        thinning=1,
        block_length=1,
        blocks=BlockSums(none, none, none, *[sums] * 6),
        segments=None,
        measurements=measurements_of(done, dimension),
    )


def _told_again(strategy: Strategy, begun: Sequence[Answered]) -> np.ndarray | None:
    """Send ``strategy`` what was answered before, but for the last answer, which it is sent next."""
    released = None
    for each in begun:
        asked = _next(strategy, released)
        if type(asked) is not type(each.request) or asked is None or asked.units != each.request.units:
            raise ValueError(
                "Told the same answers as before, the strategy asks for something else than it did: the checkpoint is "
                "of another version of dpvi, or of JAX. Go on with the version that began the run."
            )
        released = each.released
    return released


def _next(strategy: Strategy, released: np.ndarray | None) -> Request | None:
    try:
        return next(strategy) if released is None else strategy.send(released)
    except StopIteration:
        return None


def _from_first(asked: Any) -> Request | None:
    """Process 0's request in every process, to the last bit: a strategy may round differently elsewhere."""
    if not several():
        return asked
    head = np.full(5, -1, np.int64)
    if asked is not None:
        query = () if isinstance(asked, CovariateMoments) else asked.query
        head[:] = [KINDS.index(type(asked)), asked.units, *asked.metric.shape, len(query)]
    kind, units, rows, columns, size = from_first(head).tolist()
    if kind < 0:
        return None
    metric = from_first(np.zeros((rows, columns)) if asked is None else asked.metric)
    if KINDS[kind] is CovariateMoments:
        return CovariateMoments(metric, units)
    query = from_first(np.asarray(getattr(asked, "query", np.zeros(size))))
    at_a_point: Any = KINDS[kind]
    return at_a_point(query, metric, units)
