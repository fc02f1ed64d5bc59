"""What a measuring run believes: a value that every answer changes, from which the posterior is read at the end.

``learned`` takes an answer in; ``conclusion`` reads the posterior off. Both look at nothing but requests and what was
released, so the posterior of a stored run is the fold of ``learned`` over its answers. What to ask next is another
matter, of :mod:`~dpvi.posterior.metric.strategy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import jax
import numpy as np

from dpvi.declared.columns import Column, Levels, Numeric
from dpvi.declared.plan import HISTOGRAMS, Plan
from dpvi.population.covariate_law import draw_columns
from dpvi.population.covariates import as_leaves
from dpvi.population.generative import covariate_leaves
from dpvi.posterior.metric.answer import Answer, answer
from dpvi.posterior.metric.blocks import Blocks, Measured
from dpvi.posterior.metric.curvature import MeasuredCurvature, assumed_curvature, elsewhere, measured_curvature
from dpvi.posterior.metric.leverage import decided_by, far_rows
from dpvi.posterior.metric.metric import Long, Whitened, long_directions, prior_ridge, whitened
from dpvi.posterior.metric.moments import moved_rows, power
from dpvi.posterior.metric.simulator import Simulator
from dpvi.posterior.metric.tails import LengthLaw, counted_laws, kept_slope, simulated_law, surprise
from dpvi.posterior.score.blocks import simulation_seed
from dpvi.posterior.score.model import ScoreModel
from dpvi.release.requests import Answered, CovariateMoments, Curvature, Request, ScoreNorms, Scores

COUNTING = 2  # blocks at the end that are the answer; those before only find the way
REMEMBERED = 4  # blocks that a way is found from
_ROWS = 8000  # simulated
_UNMEASURED = 0.3  # the relative error of a curvature from columns that are only thought to be independent


class Belief(NamedTuple):
    """Everything that was released so far, and what it says of the records."""

    scores: ScoreModel
    num_records: float
    variance_of_size: float
    seed: int  # of simulated records
    rows: np.ndarray | None  # simulated covariates that plain moments can move
    leaves: list[np.ndarray]  # simulated covariates as the model takes them
    error: float  # relative, of the model's own curvature
    far: np.ndarray | None = None  # which rows have a number far from all others
    curvature: MeasuredCurvature | None = None
    counted: tuple[np.ndarray, list[LengthLaw]] | None = None  # a metric, and laws of |W g| in it
    blocks: tuple[Answered, ...] = ()
    spent: int = 0  # units

    @property
    def plan(self) -> Plan:
        return self.scores.plan

    @property
    def simulator(self) -> Simulator:
        return Simulator(self.scores, self.leaves, self.num_records, self.seed)

    @property
    def left(self) -> int:
        return self.plan.num_steps - self.spent

    def noise(self, units: int) -> float:
        """Standard deviation of an answer to so many units."""
        return self.plan.noise_multiplier / float(np.sqrt(units))


def first_belief(scores: ScoreModel, histograms: np.ndarray | None) -> Belief:
    """What histograms tell: the number of records, and rows of independent columns."""
    plan, people = scores.plan, scores.population(histograms)
    size, variance = float(people.num_records), float(people.variance)
    seed = simulation_seed(np.zeros(1) if histograms is None else histograms)
    belief = Belief(scores, size, variance, seed, None, [], 0.0)
    _, structures = covariate_leaves(scores.model)
    if not structures:
        return belief
    key = jax.random.key(seed)
    with jax.enable_x64(True):
        if scores.covariate_law is not None:
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(scores.covariate_law(key, _ROWS))]
            return belief._replace(leaves=leaves)
        columns = plan.covariates or ()
        shares = plausible_shares(columns, people.law.shares, size, plan.release(HISTOGRAMS).noise_scale)
        rows = np.asarray(draw_columns(columns, people.law._replace(shares=shares), key, _ROWS), np.float64)
        whole = all(np.issubdtype(leaf.dtype, np.floating) for leaf in structures)
        leaves = as_leaves(scores.model, rows)
    far = far_rows(rows, columns)
    return belief._replace(rows=rows if whole else None, leaves=leaves, error=_UNMEASURED, far=far)


def learned(belief: Belief, asked: Request, released: np.ndarray) -> Belief:
    """``belief`` after one more answer."""
    noise = belief.noise(asked.units)
    belief = belief._replace(spent=belief.spent + asked.units)
    match asked:
        case CovariateMoments():
            rows = cast(np.ndarray, belief.rows)
            rows, error = moved_rows(rows, asked.metric, released, belief.num_records, noise)
            return belief._replace(rows=rows, leaves=as_leaves(belief.scores.model, rows), error=error)
        case Curvature():
            hessians = belief.simulator.hessians(asked.query)
            expected = expected_curvature(belief, asked.query)
            found = measured_curvature(asked, released, expected, *hessians, noise, belief.num_records)
            return belief._replace(curvature=found)
        case ScoreNorms():
            simulated = length_laws(belief._replace(counted=None), asked.query, asked.metric)[0]
            laws = counted_laws(released, noise, simulated, belief.num_records)
            return belief._replace(counted=(asked.metric, laws))
        case Scores():
            return belief._replace(blocks=(*belief.blocks, Answered(asked, released)))


def conclusion(belief: Belief) -> Answer:
    """The answer that the last blocks give, with the curvature that was measured."""
    counting = belief.blocks[-COUNTING:]
    curvature = belief.curvature or expected_curvature(belief, cast(Scores, counting[-1].request).query)
    blocks = measured(belief, corrected(belief, counting))
    found = answer(belief.simulator, blocks, curvature, _kept(belief, counting), belief.variance_of_size)
    query = cast(Scores, counting[-1].request).query
    return found._replace(
        surprise=surprise(belief.counted[1]) if belief.counted else 0.0, far_out=_far_out(belief, query)
    )


def _far_out(belief: Belief, query: np.ndarray) -> np.ndarray:
    """How much of each parameter records far out decide; nothing where responses are bounded, and scores too."""
    if belief.far is None or belief.scores.enumerates:
        return np.zeros(len(query))
    return decided_by(belief.far, *belief.simulator.scores(query))


def measured(belief: Belief, blocks: Sequence[Answered]) -> Measured:
    """Blocks as arrays, filled up with blocks that say nothing, so that one compiled program serves every stage."""
    dimension, missing = len(blocks[0].released), REMEMBERED - len(blocks)
    asked = [cast(Scores, block.request) for block in blocks]
    doubts = [_doubt(belief, each) for each in asked]
    nothing = np.zeros((dimension, dimension))
    return Measured(
        Blocks(
            np.stack([each.query for each in asked] + [asked[0].query] * missing),
            np.stack([each.metric for each in asked] + [nothing] * missing),
        ),
        np.stack([block.released for block in blocks] + [np.zeros(dimension)] * missing),
        np.array([belief.noise(each.units) for each in asked] + [1.0] * missing),
        np.stack(doubts + [nothing] * missing),
    )


def corrected(belief: Belief, blocks: Sequence[Answered]) -> list[Answered]:
    """Blocks with what clipping took from them on average, by the laws of lengths, given back."""
    found = []
    for block in blocks:
        asked = cast(Scores, block.request)
        taken = _long(belief, asked).taken(length_laws(belief, asked.query, asked.metric))
        found.append(block._replace(released=block.released + belief.num_records * taken))
    return found


def _doubt(belief: Belief, asked: Scores) -> np.ndarray:
    laws = length_laws(belief, asked.query, asked.metric)
    return _long(belief, asked).doubt(laws, belief.num_records)


def _long(belief: Belief, asked: Scores) -> Long:
    simulated, weights = belief.simulator.scores(asked.query)
    white = simulated @ asked.metric.T
    long = long_directions(white, np.linalg.norm(white, axis=1), weights)
    # responses that are bounded leave long scores to covariates, and these point where no simulation knows
    return long._replace(mean=0 * long.mean) if belief.scores.enumerates else long


def _kept(belief: Belief, blocks: Sequence[Answered]) -> np.ndarray:
    """κ of each block: the share of a shift that clipping leaves."""
    asked = [cast(Scores, block.request) for block in blocks]
    kept = [kept_slope(length_laws(belief, each.query, each.metric), len(each.query)) for each in asked]
    return np.array(kept + [1.0] * (REMEMBERED - len(blocks)))


def length_laws(belief: Belief, query: np.ndarray, metric: np.ndarray) -> list[LengthLaw]:
    """Laws of |W g| at a point: those that counts allow, or the one of simulated records."""
    if belief.counted is None:
        simulated, weights = belief.simulator.scores(query)
        return simulated_law(np.linalg.norm(simulated @ metric.T, axis=1), weights)
    before, laws = belief.counted
    curvature = belief.curvature or expected_curvature(belief, query)
    sizes = [float(np.trace(each @ curvature.matrix @ each.T)) for each in (metric, before)]
    return [law.scaled(float(np.sqrt(sizes[0] / sizes[1]))) for law in laws]


def metric_at(belief: Belief, query: np.ndarray) -> Whitened:
    """The model's own metric at a point, with the curvature that was measured where there is one."""
    simulated, weights = belief.simulator.scores(query)
    matrix = expected_curvature(belief, query).matrix / belief.num_records
    return whitened(simulated, weights, matrix, ridge_at(belief, query), belief.scores.enumerates)


def expected_curvature(belief: Belief, query: np.ndarray) -> MeasuredCurvature:
    """What the curvature should be at a point: the model's own, or what was measured before, carried there."""
    simulator = belief.simulator
    information = simulator.information(query)
    if belief.curvature is None:
        return assumed_curvature(information, power(information + ridge_at(belief, query), -0.5), belief.num_records)
    matrix = elsewhere(belief.curvature, information)
    whitener = power(matrix / belief.num_records + ridge_at(belief, query), -0.5)  # not of a point before
    return belief.curvature._replace(matrix=matrix, information=information, whitener=whitener)


def ridge_at(belief: Belief, query: np.ndarray) -> np.ndarray:
    signal = 1 / belief.noise(belief.plan.num_steps)
    return prior_ridge(belief.simulator.prior_precision(query), belief.num_records, signal)


def plausible_shares(
    columns: Sequence[Column], shares: np.ndarray, num_records: float, noise_scale: float
) -> np.ndarray:
    """Shares of bins, those of a category not below half of what noise hides, nor below a quarter of an even share.

    A level that noise hides is not absent: in a metric that knows no record of it, its records would all be clipped.
    Bins of a number, and of a count with many values, are left as they are. Generous bounds have many empty bins, and
    records put into them would make the column vary, and the curvature be, many times what it is: an interval would be
    far too narrow.
    """
    counted = [column for column in columns if column.bins]
    parts = np.split(np.asarray(shares, np.float64), np.cumsum([column.bins for column in counted])[:-1])
    least = [
        0.0 if _is_number(column) else min(0.25 / len(part), 0.5 * noise_scale / num_records)
        for column, part in zip(counted, parts, strict=True)
    ]
    raised = [np.maximum(part, floor) for part, floor in zip(parts, least, strict=True)] if counted else []
    return np.concatenate([part / part.sum() for part in raised]) if counted else shares


def _is_number(column: Column) -> bool:
    """Whether bins are sizes of something. A yes or no is a category with a level that may be rare."""
    return isinstance(column, Numeric) or (isinstance(column, Levels) and column.bins > 2)
