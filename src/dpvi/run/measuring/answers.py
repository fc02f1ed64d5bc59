"""Answers to requests, within the budget of a plan: the one place of a measuring run where records meet noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.backend.compiling import plain_fusions
from dpvi.declared import validation
from dpvi.declared.plan import Plan
from dpvi.mechanism.gaussian import FORMED_BITS, check_noise_multiplier, noisy_counts, noisy_on_host
from dpvi.mechanism.rng import measuring_stream, step_normals
from dpvi.release.requests import KINDS, Answered, CovariateMoments, Request, ScoreNorms
from dpvi.run.measuring.contributions import CLIP_NORM, Contributions

_FEWEST_NORMALS = 64


class Answers:
    """Answers the requests of one run.

    Parameters
    ----------
    contributions
        What a record adds, compiled and tried.
    plan
        Says how many units there are, and how much noise a unit has.
    blocks
        Gives pytrees of arrays in which every record of this process is once; called for every request.
    key
        The root key. One that answered before must never answer again: the noise would be the same.
    over_all
        Adds up here, and adds the sums of other processes, all of which then add the same noise to the same total.

    Guarantees
    ----------
    A record adds a vector of norm at most 1 to a total of whole numbers, and the noise on an answer of u units has
    standard deviation σ/√u. So an answer costs μ² = u s²/σ², with s = 1 under add/remove and 2 under substitution, and
    all answers together at most what the plan's units cost, in whatever order and however they were chosen: a request
    that would take more is refused before a record is read. Where fully adaptive requests have Σ μ² ≤ M² in every case,
    they are M-GDP together (Smith and Thakurta 2022, Fully adaptive composition for Gaussian differential privacy),
    which is what the accountant computes of the plan.
    """

    def __init__(
        self,
        contributions: Contributions,
        plan: Plan,
        blocks: Callable[[], Iterable[Any]],
        key: jax.Array,
        over_all: Callable[[Callable[[], np.ndarray]], np.ndarray] = lambda total: total(),
    ) -> None:
        if plan.measuring is None:
            raise ValueError(
                "The plan takes steps and does not measure; make one with dpvi.plan(epsilon=..., delta=...)."
            )
        self._contributions, self._blocks, self._over_all = contributions, blocks, over_all
        self._noise_multiplier = plan.noise_multiplier  # of one unit
        self._units_left = self._units = plan.measuring.units
        self._spending = Lock()  # two threads that ask at a time must not spend the same units, nor draw the same noise
        self._stream = measuring_stream(key)
        self._answers = 0
        self._moments_shape: tuple[int, ...] | None = None
        check_noise_multiplier(self._noise_multiplier)

    def go_on(self, done: Sequence[Answered]) -> None:
        """Count as answered what this run was answered before, in another process: no number of noise is used twice."""
        for each in done:
            request = self.checked(each.request)
            if isinstance(request, CovariateMoments):
                self._moments_shape = request.metric.shape
            self._units_left -= request.units
            self._answers += 1

    @property
    def units_left(self) -> int:
        """What answers to come may still take, all of them together."""
        return self._units_left

    def __call__(self, request: Request) -> Answered:
        """The noisy answer, float64; its units are spent, whatever happens on the way."""
        with self._spending:
            request = self.checked(request)
            kind, number = type(request), self._answers
            if kind is CovariateMoments:
                self._moments_shape = request.metric.shape
            self._units_left -= request.units
            self._answers += 1
        total = self._over_all(lambda: self._contributions.total(request, self._blocks()))
        multiplier = self._noise_multiplier / math.sqrt(request.units)
        with jax.enable_x64(True):
            drawn = np.asarray(_drawing()(self._stream, jnp.array([number], jnp.uint32), _drawn(len(total))))
        normals = drawn[0, : len(total)]
        if kind is ScoreNorms:
            return Answered(request, noisy_counts(total, normals, multiplier))
        return Answered(request, noisy_on_host(total, normals, multiplier, CLIP_NORM, FORMED_BITS))

    def checked(self, request: Any) -> Request:
        """``request`` with plain arrays, or a sentence that says why it is not answered."""
        kind = type(request)
        if kind not in KINDS:  # nor one derived of them, whose fields could change from one look to the next
            raise TypeError(
                f"A strategy asks for CovariateMoments, Curvature, ScoreNorms or Scores, got {kind.__name__}."
            )
        units = validation.whole_number("units", request.units)
        if units > self._units_left:
            raise ValueError(
                f"{kind.__name__} were asked for {units} units, and {self._units_left} of {self._units} are left in "
                "the plan. Nothing was released for this request."
            )
        metric = self._checked_metric(kind, request.metric)
        if isinstance(request, CovariateMoments):
            return request._replace(metric=metric, units=units)
        query = _finite("query", request.query)
        if query.shape != (self._contributions.model.dimension,):
            raise ValueError(f"query must have shape {(self._contributions.model.dimension,)}, got {query.shape}.")
        return request._replace(query=query, metric=metric, units=units)

    def _checked_metric(self, kind: type, given: Any) -> np.ndarray:
        metric = _finite("metric", given)
        if kind is CovariateMoments:
            columns = self._contributions.columns
            before = self._moments_shape or metric.shape
            if metric.ndim != 2 or metric.shape[1] != columns or not len(metric) or metric.shape != before:
                raise ValueError(
                    f"The metric of moments must have {columns} columns, and in one run as many rows every time, got "
                    f"shape {metric.shape}."
                )
        elif metric.shape != (self._contributions.model.dimension,) * 2:
            raise ValueError(
                f"metric must have shape {(self._contributions.model.dimension,) * 2}, got {metric.shape}."
            )
        return metric


@cache
def _drawing() -> Callable[..., jax.Array]:
    """Compiled once for all runs: operation by operation, a cipher takes a tenth of a second."""
    return jax.jit(step_normals, static_argnums=2, compiler_options=plain_fusions())


def _drawn(size: int) -> int:
    """How many normals are drawn for ``size`` numbers: a few sizes do, so that few programs are compiled."""
    return max(_FEWEST_NORMALS, 2 ** (size - 1).bit_length())


def _finite(name: str, value: Any) -> np.ndarray:
    array = np.array(value, np.float64)  # a copy: what was asked must not change later
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must hold finite numbers.")
    return array
