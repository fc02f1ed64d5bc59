"""The driver of a score posterior: move a while, then measure in blocks, each at the best answer so far.

Between blocks only released means are used, so the choice of query points costs no privacy.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dpvi.core.driver import Directive, Released
from dpvi.models.generative import prior_center
from dpvi.posterior.score.blocks import Blocks
from dpvi.posterior.score.gauss_newton import gauss_newton
from dpvi.posterior.score.model import ScoreModel


class ScoreDriver:
    """Moves for a share of the steps, then measures in blocks; a :class:`~dpvi.core.driver.Driver`.

    The first query point is the mean location over the second half of the moving phase, or ``start`` without one; each
    further one is the Gauss-Newton mean of all blocks so far (the last point again where that was not found).

    Parameters
    ----------
    scores
        The law of releases. Build it once and use it for the driver and for the posterior: its programs are compiled
        once.
    move_share
        Share of the steps for the optimiser, in [0, 1); none is right for models with few parameters, whose prior's
        centre is near enough.
    num_blocks
        J, how many blocks the remaining steps are cut into.
    start
        q_1 where nothing moves; the prior's centre by default.
    seed
        Of the simulation; that of ``scores`` where not given. It has nothing to do with the mechanism's randomness.

    Examples
    --------
    ``dpvi.fit(scores.model, data, scores.plan, driver=ScoreDriver(scores)).posterior("score")``
    """

    def __init__(
        self,
        scores: ScoreModel,
        move_share: float = 0.2,
        num_blocks: int = 8,
        start: np.ndarray | None = None,
        seed: int | None = None,
    ) -> None:
        if not 0 <= move_share < 1:
            raise ValueError(f"move_share must lie in [0, 1), or no step is left to measure with, got {move_share!r}.")
        if isinstance(num_blocks, bool) or not isinstance(num_blocks, (int, np.integer)) or num_blocks < 1:
            raise ValueError(f"num_blocks must be a whole number of at least 1, got {num_blocks!r}.")
        steps = scores.plan.num_steps
        self.scores = scores
        self.num_blocks = int(num_blocks)
        self.move_steps = 0 if move_share == 0 else max(2, round(move_share * steps))
        if steps - self.move_steps < self.num_blocks:
            raise ValueError(
                f"The plan has {steps} steps, too few to move for {self.move_steps} and measure in {num_blocks} blocks."
            )
        self.start = start
        self.seed = seed
        self._blocks: list[tuple[np.ndarray, int, np.ndarray]] = []
        self._measuring: Directive | None = None

    def __call__(self, released: Released) -> Directive | None:
        if released.step == 0:  # a driver may serve many runs, one after the other
            self._blocks, self._measuring = [], None
        half = self.move_steps // 2
        if released.step < self.move_steps:
            return Directive(half if released.step < half else self.move_steps - released.step)
        query = self._next_query(released)
        steps = -(-released.steps_left // (self.num_blocks - len(self._blocks)))
        self._measuring = Directive(steps, query)
        return self._measuring

    @property
    def blocks(self) -> Blocks:
        """The blocks of the run so far."""
        query, steps, sums = zip(*self._blocks, strict=True)
        return Blocks(np.stack(query).astype(np.float64), np.array(steps, np.float64), np.stack(sums))

    def _next_query(self, released: Released) -> np.ndarray:
        last = self._measuring
        if last is None or last.query is None:
            return self._as_run(self._first_query(released))
        self._blocks.append((last.query, last.num_steps, np.asarray(released.mean_noisy_sum, np.float64)))
        found = gauss_newton(self.scores, self.blocks.padded(self.num_blocks), last.query, self.seed)
        return self._as_run(found.mean) if found.converged else last.query

    def _first_query(self, released: Released) -> np.ndarray:
        if self.move_steps:
            return released.mean_iterate[: self.scores.model.dimension]
        if self.start is not None:
            return np.asarray(self.start, np.float64)
        return np.asarray(prior_center(self.scores.model, self.scores.key(self.seed)))

    @staticmethod
    def _as_run(query: np.ndarray) -> np.ndarray:
        """The query as the run will hold it, in its own precision: the law of the release is that at this point."""
        return np.asarray(jnp.asarray(query, jnp.result_type(float)))
