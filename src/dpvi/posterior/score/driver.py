"""The driver of a score posterior: measure in blocks, each at the best answer so far, perhaps after moving a while.

Between blocks only released means are used, so the choice of query points costs no privacy.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared.schedule import Schedule
from dpvi.population.covariates import Population
from dpvi.population.generative import prior_center
from dpvi.posterior.score.blocks import Blocks, simulation_seed
from dpvi.posterior.score.gauss_newton import gauss_newton_many
from dpvi.posterior.score.model import ScoreModel
from dpvi.release.driver import Directive, Released


class ScoreDriver:
    """Measures in blocks, after moving for a share of the steps; a :class:`~dpvi.release.driver.Driver`.

    The first query point is ``start`` or, after a moving phase, the mean location over its second half. Each further
    one is the best point that Gauss-Newton finds for all blocks so far. It drives one run, or several side by side,
    each with query points of its own.

    Parameters
    ----------
    scores
        The law of releases. Build it once and use it for the driver and for the posterior: its programs are compiled
        once.
    schedule
        How steps are divided; by default the plan's, or the default one.
    populations
        One per run, from ``scores.population(histograms)``; not needed where the plan releases no histograms.
    start
        q_1 where nothing moves; the prior's centre by default.
    seed
        Of the simulation; by default it follows from what was released. It has nothing to do with the mechanism's
        randomness.

    Examples
    --------
    ``dpvi.fit(scores.model, data, scores.plan, driver=ScoreDriver(scores)).posterior("score")``
    """

    def __init__(
        self,
        scores: ScoreModel,
        schedule: Schedule | None = None,
        populations: list[Population] | None = None,
        start: np.ndarray | None = None,
        seed: int | None = None,
    ) -> None:
        self.scores = scores
        self.schedule = schedule or scores.plan.schedule or Schedule()
        if not self.schedule.measures:
            raise ValueError("A schedule that only moves leaves no step to measure with; use move_share below 1.")
        self.move_steps = self.schedule.move_steps(scores.plan.num_steps)
        self.populations = populations
        self.start = start
        self.seed = seed
        self._blocks: list[Blocks] = []  # with leading axes (run, one)
        self._measuring: Directive | None = None

    def __call__(self, released: Released) -> Directive | None:
        if released.step == 0:  # a driver may serve many runs, one after the other
            self._blocks, self._measuring = [], None
        half = self.move_steps // 2
        if released.step < self.move_steps:
            return Directive(half if released.step < half else self.move_steps - released.step)
        side_by_side = released.iterate.ndim == 2
        query = self._next_query(released if side_by_side else _one_run(released))
        query = np.asarray(jnp.asarray(query, jnp.result_type(float)))  # as the run will hold it, in its own precision
        steps = self.schedule.block_steps(released.steps_left, len(self._blocks))
        self._measuring = Directive(steps, query if side_by_side else query[0])
        return self._measuring

    def _next_query(self, released: Released) -> np.ndarray:
        """(runs, d)."""
        last = self._measuring
        if last is None or last.query is None:
            return self._first_query(released)
        query = np.atleast_2d(last.query).astype(np.float64)
        sums = np.asarray(released.mean_noisy_sum, np.float64)
        self._blocks.append(Blocks(query[:, None], np.full((len(query), 1), float(last.num_steps)), sums[:, None]))
        # any point will do to measure at, so this answer may be rough, or not quite found; the posterior's may not
        found = gauss_newton_many(
            self.scores.coarse, self._padded(), query, self._seeds(), self._population(len(query))
        )
        return np.stack(
            [np.where(np.all(np.isfinite(one.mean)), one.mean, q) for one, q in zip(found, query, strict=True)]
        )

    def _padded(self) -> Blocks:
        """All blocks so far, filled up with blocks of no steps, so that one compiled program serves every stage."""
        empty = self._blocks[-1]._replace(steps=0 * self._blocks[-1].steps)
        parts = [*self._blocks, *[empty] * (self.schedule.num_blocks - len(self._blocks))]
        return Blocks(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))

    def _population(self, runs: int) -> Population:
        people = self.populations or [self.scores.population()] * runs
        return jax.tree.map(lambda *parts: np.stack(parts), *people)

    def _seeds(self) -> list[int]:
        first = self._blocks[0].mean_noisy_sum[:, 0]
        return [simulation_seed(sums) if self.seed is None else self.seed for sums in first]

    def _first_query(self, released: Released) -> np.ndarray:
        if self.move_steps:
            return released.mean_iterate[:, : self.scores.model.dimension]
        start = self.start
        if start is None:
            start = np.asarray(prior_center(self.scores.model, self.scores.key(self.seed)))
        return np.broadcast_to(np.asarray(start, np.float64), (len(released.iterate), self.scores.model.dimension))


def _one_run(released: Released) -> Released:
    """With the leading axis that runs side by side have."""
    arrays = (released.iterate, released.mean_iterate, released.mean_query, released.mean_noisy_sum)
    return Released(released.step, released.steps_left, *(np.asarray(array)[None] for array in arrays))
