"""What a measuring run asks, one question after the other, each made from what was released before.

1. Histograms came first: the number of records, and rows of independent columns.
2. Second moments of the covariates in rounds: rows that go together as the records' columns do.
3. Six blocks of scores, each twice as long as the one before, in the metric of the best answer so far. The first three
   find the way. They are measured far from the answer, where what a sum of scores says rests on the model's global
   shape, which misfit bends; so they choose points and nothing else.
4. Before the fourth, counts of records by the length of their scores, unless the response is bounded: tails are seen and
   not assumed.
5. The last three, with nine tenths of the scores' budget, are the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dpvi.core.plan import GRADIENTS, MOMENTS, NORMS, Plan
from dpvi.core.requests import Answered, Request, ScoreNorms, Scores
from dpvi.models.covariate_law import draw_columns
from dpvi.models.covariates import as_leaves
from dpvi.models.generative import covariate_leaves, prior_center
from dpvi.posterior.metric.answer import Answer, Measured, solve
from dpvi.posterior.metric.metric import Whitened, clip_norm, whitened
from dpvi.posterior.metric.moments import measured_rows
from dpvi.posterior.metric.simulator import Blocks, Simulator
from dpvi.posterior.metric.tails import LengthLaw, counted_laws, excess
from dpvi.posterior.score.blocks import simulation_seed
from dpvi.posterior.score.model import ScoreModel

Strategy = Generator[Request, np.ndarray, Answer]
_GROWTH, _NUM_BLOCKS, _COUNTING = 2, 6, 3  # blocks from number _COUNTING on are the answer
_KEPT = _NUM_BLOCKS - _COUNTING
_ROWS = 8000  # simulated, for responses that are drawn or enumerated
_UNMEASURED = 0.3  # the relative error of a curvature from columns that are only thought to be independent


class Known(NamedTuple):
    """Who was measured: the number of records, and simulated ones."""

    simulator: Simulator
    variance_of_size: float
    error: float  # relative, of a curvature


def make_strategy(scores: ScoreModel, histograms: np.ndarray | None) -> Strategy:
    """The questions of a run for ``scores``; what it returns is the answer."""
    known = yield from _known(scores, histograms)
    model, plan = scores.model, scores.plan
    z = np.asarray(prior_center(model, scores.key(0)), np.float64)
    blocks: list[_Block] = []
    lengths: list[LengthLaw] | None = None
    answer: Answer | None = None
    for number, units in enumerate(block_units(plan)):
        ahead = signal_of(plan, sum(block_units(plan)[number:]))
        white = _whitened(known, z, plan)
        clip = clip_norm(lengths or white.laws(), white.directions, known.simulator.num_records, ahead)
        if number == _COUNTING and not scores.enumerates:
            request = ScoreNorms(z, white.matrix / clip, plan.release(NORMS).count)
            counts = yield request
            lengths = _lengths(request, counts, plan, clip)
            clip = clip_norm(lengths, white.directions, known.simulator.num_records, ahead)
        request = Scores(z, white.matrix / clip, units)
        released = yield request
        blocks.append(_Block(request, released, _doubt(white, lengths, clip, known.simulator.num_records)))
        answer = solve(known.simulator, measured(plan, blocks[-_KEPT:]), known.variance_of_size, z, known.error)
        z = np.where(np.all(np.isfinite(answer.mean)), answer.mean, z)
    assert answer is not None
    return answer


class _Block(NamedTuple):
    request: Scores
    released: np.ndarray
    doubt: np.ndarray


def answer_of(scores: ScoreModel, histograms: np.ndarray | None, answers: Sequence[Answered]) -> Answer:
    """The answer of a run from what it asked and was told: its strategy, told the same again."""
    strategy = make_strategy(scores, histograms)
    released: Any = None
    try:
        for each in [*answers, None]:
            strategy.send(released)
            released = None if each is None else each.released
    except StopIteration as done:
        return done.value
    raise ValueError("These measurements are not those of a whole run; fit again.")


def block_units(plan: Plan) -> list[int]:
    """How many units each block takes; the last takes what is left."""
    units = plan.num_steps
    if units < _NUM_BLOCKS:
        return [units]
    total = sum(_GROWTH**k for k in range(_NUM_BLOCKS))
    counts = [max(1, units * _GROWTH**k // total) for k in range(_NUM_BLOCKS - 1)]
    return [*counts, units - sum(counts)]


def signal_of(plan: Plan, units: int) -> float:
    """μ of that many units of scores."""
    return float(np.sqrt(units)) / plan.release(GRADIENTS).noise_multiplier


def measured(plan: Plan, blocks: Sequence[_Block]) -> Measured:
    """Blocks as arrays, filled up with blocks that say nothing, so that one compiled program serves every stage."""
    dimension = len(blocks[0].request.query)
    empty = _Block(Scores(blocks[0].request.query, np.zeros((dimension, dimension)), 0), np.zeros(dimension), 0.0)  # type: ignore[arg-type]
    filled = [*blocks, *[empty] * (_KEPT - len(blocks))]
    noise = [1 / signal_of(plan, block.request.units) if block.request.units else 1.0 for block in filled]
    return Measured(
        Blocks(np.stack([b.request.query for b in filled]), np.stack([b.request.metric for b in filled])),
        np.stack([b.released for b in filled]),
        np.array(noise),
        np.stack([b.doubt * np.ones((dimension, dimension)) for b in filled]),
    )


def _known(scores: ScoreModel, histograms: np.ndarray | None) -> Generator[Request, np.ndarray, Known]:
    plan, people = scores.plan, scores.population(histograms)
    size, variance = float(people.num_records), float(people.variance)
    seed = simulation_seed(np.zeros(1) if histograms is None else histograms)
    leaves, error = [], 0.0
    _, structures = covariate_leaves(scores.model)
    if structures:
        key = jax.random.key(seed)
        with jax.enable_x64(True):
            if scores.covariate_law is not None:
                leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(scores.covariate_law(key, _ROWS))]
            else:
                rows = np.asarray(draw_columns(plan.covariates or (), people.law, key, _ROWS), np.float64)
                error = _UNMEASURED
                whole = all(np.issubdtype(leaf.dtype, np.floating) for leaf in structures)
                if whole and any(release.name == MOMENTS for release in plan.releases):
                    moments = plan.release(MOMENTS)
                    rows, error = yield from measured_rows(rows, size, moments.noise_multiplier, moments.count)
                leaves = as_leaves(scores.model, rows)
    return Known(Simulator(scores, leaves, size, seed), variance, error)


def _whitened(known: Known, z: np.ndarray, plan: Plan) -> Whitened:
    found, weights = known.simulator.scores(z)
    signal = signal_of(plan, plan.num_steps)
    return whitened(found, weights, known.simulator.prior_precision(z), known.simulator.num_records, signal)


def _lengths(request: ScoreNorms, counts: np.ndarray, plan: Plan, clip: float) -> list[LengthLaw]:
    noise = plan.release(NORMS).noise_multiplier / np.sqrt(request.units)
    return [law.scaled(clip) for law in counted_laws(counts, noise)]


def _doubt(white: Whitened, lengths: list[LengthLaw] | None, clip: float, num_records: float) -> np.ndarray:
    """R² G in units of the clip norm."""
    lost = num_records * excess([law.scaled(1 / clip) for law in lengths or white.laws()])
    return lost**2 * white.directions
