"""What a measuring run asks, one question after the other, each made from what was released before.

1. Histograms came first: the number of records, and rows of independent columns.
2. Second moments of the covariates in rounds: rows that go together as the records' columns do.
3. Six blocks of scores, each twice as long as the one before, at the best answer so far. The first four find the way:
   they are measured far from the answer, where what a sum of scores says rests on the model's global shape, which
   misfit bends. So they choose points and nothing else.
4. Before the third, the curvature there; before the fifth, counts of records by the length of their scores, and the
   curvature again, in the metric of the first. Tails and curvature are seen and not assumed.
5. The last two blocks, with three quarters of the scores' budget, are the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dpvi.core.columns import Column
from dpvi.core.measuring import has_moments
from dpvi.core.plan import HISTOGRAMS, Plan
from dpvi.core.requests import Answered, Curvature, Request, ScoreNorms, Scores
from dpvi.models.covariate_law import draw_columns
from dpvi.models.covariates import as_leaves
from dpvi.models.generative import covariate_leaves, prior_center
from dpvi.posterior.metric.answer import Answer, answer
from dpvi.posterior.metric.blocks import Blocks, Measured
from dpvi.posterior.metric.curvature import (
    MeasuredCurvature,
    assumed_curvature,
    curvature_clipping,
    elsewhere,
    measured_curvature,
)
from dpvi.posterior.metric.metric import Whitened, clip_norm, prior_ridge, whitened
from dpvi.posterior.metric.moments import measured_rows
from dpvi.posterior.metric.search import search
from dpvi.posterior.metric.simulator import Simulator
from dpvi.posterior.metric.tails import LengthLaw, counted_laws, excess, kept_slope
from dpvi.posterior.score.blocks import simulation_seed
from dpvi.posterior.score.model import ScoreModel

Strategy = Generator[Request, np.ndarray, Answer]
_GROWTH, _NUM_BLOCKS = 2, 6
_FIRST_LOOK, _COUNTING = 2, 4  # the block before which curvature is first measured; the first that counts
_KEPT = _NUM_BLOCKS - _COUNTING
_ROWS = 8000  # simulated
_MOMENT_SHARE, _CURVATURE_SHARES, _NORM_SHARE, _SCORE_SHARE = 0.063, (0.042, 0.084), 0.126, 0.685
_UNMEASURED = 0.3  # the relative error of a curvature from columns that are only thought to be independent
_SEARCHING = 0.15  # the same on the way, where a law of covariates has the measured moments
_FURTHEST = 6.0  # of a point to measure at from the prior's centre, in its standard deviations
_UNIT = 2.0  # counts of lengths are in units of twice the median of simulated ones


class Known(NamedTuple):
    """What is known of the records besides blocks of scores."""

    simulator: Simulator
    variance_of_size: float
    error: float  # relative, of the model's own curvature


class _Block(NamedTuple):
    request: Scores
    released: np.ndarray
    doubt: np.ndarray  # R² G
    kept: float  # κ


def make_strategy(
    scores: ScoreModel, histograms: np.ndarray | None, points: Sequence[np.ndarray] | None = None
) -> Strategy:
    """The questions of a run for ``scores``; what it returns is the answer.

    With ``points``, where the blocks of a run that is over were measured, nothing is searched for again.
    """
    known = yield from _known(scores, histograms)
    plan, size = scores.plan, known.simulator.num_records
    z = center = np.asarray(prior_center(scores.model, scores.key(0)), np.float64)
    blocks: list[_Block] = []
    curvature: MeasuredCurvature | None = None
    lengths: list[LengthLaw] | None = None
    found: Answer | None = None
    for number in range(len(block_units(plan))):
        z = _plausible(z, center, known) if points is None else points[number]
        white, own = _whitened(scores, known, z, curvature)
        if number == _COUNTING and not scores.exact:  # where all records are known, so are their scores
            lengths = yield from _counted(white, z, plan, size)
        if number in (_FIRST_LOOK, _COUNTING):
            expected = own if curvature is None else _carried(curvature, own)
            curvature = yield from _looked(expected._replace(whitener=white.plain), z, known, plan, number)
            before, (white, _) = white, _whitened(scores, known, z, curvature)
            if lengths is not None:
                lengths = [law.scaled(_ratio(white, before, curvature)) for law in lengths]
        block = yield from _block(white, lengths, z, known, plan, number)
        blocks.append(block)
        if points is not None and number < len(points) - 1:
            continue
        if curvature is None:
            z = search(known.simulator, measured(plan, blocks[-_KEPT:]), z, float(np.hypot(_SEARCHING, known.error)))
            continue
        counting = blocks[_FIRST_LOOK if number < _COUNTING else _COUNTING :]
        kept = np.array([each.kept for each in counting] + [1.0] * (_KEPT - len(counting)))
        found = answer(known.simulator, measured(plan, counting), curvature, kept, known.variance_of_size)
        z = found.mean
    assert found is not None
    return found._replace(surprise=1 - lengths[0].probability if lengths else 0.0)


def _plausible(z: np.ndarray, center: np.ndarray, known: Known) -> np.ndarray:
    """``z``, or, where it is further from the prior's centre than any parameters would be, a point on the way there."""
    away = z - center
    if not np.all(np.isfinite(away)):
        return center
    length = float(np.sqrt(away @ known.simulator.prior_precision(center) @ away))
    return center + away * min(1.0, _FURTHEST * np.sqrt(len(z)) / max(length, 1e-300))


def _block(
    white: Whitened, lengths: list[LengthLaw] | None, z: np.ndarray, known: Known, plan: Plan, number: int
) -> Generator[Request, np.ndarray, _Block]:
    """Scores at z in the metric ``white``, clipped as the budget of this block and those to come affords."""
    laws, units, size = lengths or white.laws(), block_units(plan), known.simulator.num_records
    clip = clip_norm(laws, white.directions, size, signal_of(plan, sum(units[number:])))
    request = Scores(z, white.matrix / clip, units[number])
    released = yield request
    laws = [law.scaled(1 / clip) for law in laws]
    return _Block(request, released, (size * excess(laws)) ** 2 * white.directions, kept_slope(laws, len(z)))


def _counted(
    white: Whitened, z: np.ndarray, plan: Plan, size: float
) -> Generator[Request, np.ndarray, list[LengthLaw]]:
    """Laws of whitened lengths that counts allow."""
    units, unit = units_of(plan, _NORM_SHARE), float(np.median(white.lengths)) * _UNIT
    counts = yield ScoreNorms(z, white.matrix / unit, units)
    simulated = [law.scaled(1 / unit) for law in white.laws()]
    laws = counted_laws(counts, 1 / signal_of(plan, units), simulated[0], size)
    return [law.scaled(unit) for law in laws]


def _looked(
    expected: MeasuredCurvature, z: np.ndarray, known: Known, plan: Plan, number: int
) -> Generator[Request, np.ndarray, MeasuredCurvature]:
    """The curvature at z; the first look takes a third of the units."""
    units, size = units_of(plan, _CURVATURE_SHARES[number != _FIRST_LOOK]), known.simulator.num_records
    noise = 1 / signal_of(plan, units) / size
    clipping = curvature_clipping(*known.simulator.hessians(z), expected.whitener, noise)
    released = yield Curvature(z, expected.whitener / np.sqrt(clipping.bound), units)
    return measured_curvature(released, expected, clipping, noise, size)


def _carried(curvature: MeasuredCurvature, own: MeasuredCurvature) -> MeasuredCurvature:
    """What was measured before, as it should be at another point, where the model expects ``own``."""
    matrix = elsewhere(curvature, own.information)
    return curvature._replace(matrix=matrix, information=own.information)


def _whitened(
    scores: ScoreModel, known: Known, z: np.ndarray, curvature: MeasuredCurvature | None
) -> tuple[Whitened, MeasuredCurvature]:
    """The metric at z, and the curvature that the model expects there."""
    simulated, weights = known.simulator.scores(z)
    size, plan = known.simulator.num_records, scores.plan
    information = (simulated * weights[:, None]).T @ simulated
    ridge = prior_ridge(known.simulator.prior_precision(z), size, signal_of(plan, plan.num_steps))
    used = information if curvature is None else elsewhere(curvature, information) / size
    white = whitened(simulated, weights, used, ridge, scores.enumerates)
    return white, assumed_curvature(information, white.plain, size)


def _ratio(after: Whitened, before: Whitened, curvature: MeasuredCurvature) -> float:
    """How much longer scores are in one metric than in another, by the curvature."""
    sizes = [float(np.trace(white.matrix @ curvature.matrix @ white.matrix.T)) for white in (after, before)]
    return float(np.sqrt(sizes[0] / sizes[1]))


def plausible_shares(
    columns: Sequence[Column], shares: np.ndarray, num_records: float, noise_scale: float
) -> np.ndarray:
    """Shares of bins, none below half of what noise hides, nor below a quarter of an even share.

    A level that noise hides is not absent: in a metric that knows no record of it, its records would all be clipped.
    """
    counted = [column.bins for column in columns if column.bins]
    parts = np.split(np.asarray(shares, np.float64), np.cumsum(counted)[:-1])
    raised = [np.maximum(part, min(0.25 / len(part), 0.5 * noise_scale / num_records)) for part in parts]
    return np.concatenate([part / part.sum() for part in raised]) if counted else shares


def answer_of(scores: ScoreModel, histograms: np.ndarray | None, answers: Sequence[Answered]) -> Answer:
    """The answer of a run from what it asked and was told: its strategy, told the same again."""
    points = [each.request.query for each in answers if isinstance(each.request, Scores)]
    if len(points) != len(block_units(scores.plan)):
        raise ValueError("These measurements are not those of a whole run of this plan; fit again.")
    strategy = make_strategy(scores, histograms, points)
    released: Any = None
    try:
        for each in [*answers, None]:
            strategy.send(released)
            released = None if each is None else each.released
    except StopIteration as done:
        return done.value
    raise ValueError("These measurements are not those of a whole run of this plan; fit again.")


def block_units(plan: Plan) -> list[int]:
    """How many units each block takes; the last takes what is left."""
    units = units_of(plan, _SCORE_SHARE)
    total = sum(_GROWTH**k for k in range(_NUM_BLOCKS))
    counts = [max(1, units * _GROWTH**k // total) for k in range(_NUM_BLOCKS - 1)]
    return [*counts, units - sum(counts)]


def units_of(plan: Plan, share: float) -> int:
    """A share of all units."""
    return max(1, round(share * plan.num_steps))


def signal_of(plan: Plan, units: int) -> float:
    """μ of that many units of scores."""
    return float(np.sqrt(units)) / plan.noise_multiplier


def measured(plan: Plan, blocks: Sequence[_Block]) -> Measured:
    """Blocks as arrays, filled up with blocks that say nothing, so that one compiled program serves every stage."""
    dimension = len(blocks[0].request.query)
    nothing = np.zeros((dimension, dimension))
    empty = _Block(Scores(blocks[0].request.query, nothing, 0), np.zeros(dimension), nothing, 1.0)
    filled = [*blocks, *[empty] * (_KEPT - len(blocks))]
    noise = [1 / signal_of(plan, block.request.units) if block.request.units else 1.0 for block in filled]
    return Measured(
        Blocks(np.stack([b.request.query for b in filled]), np.stack([b.request.metric for b in filled])),
        np.stack([b.released for b in filled]),
        np.array(noise),
        np.stack([b.doubt for b in filled]),
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
                columns = plan.covariates or ()
                shares = plausible_shares(columns, people.law.shares, size, plan.release(HISTOGRAMS).noise_scale)
                rows = np.asarray(draw_columns(columns, people.law._replace(shares=shares), key, _ROWS), np.float64)
                error = _UNMEASURED
                whole = all(np.issubdtype(leaf.dtype, np.floating) for leaf in structures)
                if whole and has_moments(columns):
                    rows, error = yield from measured_rows(rows, size, plan.noise_multiplier, units_of(plan, _MOMENT_SHARE))
                leaves = as_leaves(scores.model, rows)
    return Known(Simulator(scores, leaves, size, seed), variance, error)
