"""What a measuring run asks, one question after the other, each made from what was released before.

1. Histograms came first: the number of records, and rows of independent columns.
2. Second moments of the covariates in rounds, where noise leaves something of them.
3. Blocks of scores that find the way. Each is as long as it takes to know several times as much as before, so a large
   budget finds the way with many short blocks and a small one with few long ones. They are measured far from the
   answer, where what a sum of scores says rests on the model's global shape, which misfit bends. So they choose points
   and nothing else.
4. The curvature, on the way and at its end; counts of records by the length of their scores. Tails and curvature are
   seen and not assumed.
5. The last two blocks, with what is left, are the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from dpvi.declared.measuring import has_moments
from dpvi.population.generative import prior_center
from dpvi.posterior.metric.answer import Answer
from dpvi.posterior.metric.belief import (
    COUNTING,
    REMEMBERED,
    Belief,
    conclusion,
    expected_curvature,
    first_belief,
    learned,
    length_laws,
    measured,
    metric_at,
    ridge_at,
)
from dpvi.posterior.metric.curvature import curvature_request
from dpvi.posterior.metric.metric import Whitened, clip_norm
from dpvi.posterior.metric.moments import largest_of_noise, moments_request, power
from dpvi.posterior.metric.search import Found, search
from dpvi.posterior.score.model import ScoreModel
from dpvi.release.requests import Answered, Request, ScoreNorms, Scores

Strategy = Generator[Request, np.ndarray, Answer]
Asking = Generator[Request, np.ndarray, Belief]

_MOMENT_ROUNDS = (0.2, 0.2, 0.6)  # of the units for moments: the first rounds find the metric of the last
_MOMENT_SHARES = (0.02, 0.08)
_RESOLVED = 0.15  # the error of moments that is small enough
_DROWNED = 0.6  # and the one that tells nothing
_WAY = 0.35  # at most this share of the units finds the way
_LONGEST = 0.12  # and at most this one is a block of it
_SHORTEST = 4  # units
_MOST_BLOCKS = 16
_SHARPER = 0.3  # a block's noise, beside what is known before
_FAR = 1.5  # blocks go on while less than this is known, beside the noise of the last two
_NEAR = 3.0  # privacy's part of the answer beside sampling's, below which the log posterior is a parabola
_FIRST_LOOK = 2  # blocks before the curvature is measured on the way
_BLURRED = 0.7  # the error of a curvature that would not show the way
_LOOK_SHARES = (0.015, 0.2)
_NORM_SHARES = (0.06, 0.1)  # where responses are bounded, and elsewhere
_SECOND_LAST = 1 / 3
_SEARCHING = 0.15  # a relative error of the curvature, on the way
_FURTHEST = 6.0  # of a point to measure at from the prior's centre, in its standard deviations
_WIDEST = 100.0  # standard deviation of a prior
_CHANGE = 2.5  # most that the model's information may change from one point to the next
_STEPS = 0.75 ** np.arange(24)
_UNIT = 2.0  # counts of lengths are in units of twice the median of simulated ones


def make_strategy(scores: ScoreModel, histograms: np.ndarray | None) -> Strategy:
    """The questions of a run for ``scores``; what it returns is the answer."""
    belief = yield from _moments(first_belief(scores, histograms))
    center = np.asarray(prior_center(scores.model, scores.key(0)), np.float64)
    start = Found(center, _spread(belief.simulator.prior_precision(center)))
    belief, z, found = yield from _way(belief, start)
    if not scores.exact:  # where all records are known, so are their scores
        white = metric_at(belief, z)
        unit = _UNIT * float(np.median(white.lengths))
        counts = ScoreNorms(z, white.matrix / unit, _share(_NORM_SHARES[not scores.enumerates], belief))
        belief = yield from _ask(belief, counts)
    belief = yield from _look(belief, z, found, 1.0)
    belief = yield from _ask(belief, _scores(belief, z, _share(_SECOND_LAST, belief)))
    z = _trusted(belief, z, _last_point(belief, z), start)
    belief = yield from _ask(belief, _scores(belief, z, belief.left))
    return conclusion(belief)


def _spread(precision: np.ndarray) -> np.ndarray:
    """The covariance of a prior; one without curvature at its centre is as wide as any that says little."""
    values, vectors = np.linalg.eigh(precision)
    return (vectors / np.maximum(values, _WIDEST**-2)) @ vectors.T


def _ask(belief: Belief, request: Request) -> Asking:
    released = yield request
    return learned(belief, request, released)


def _moments(belief: Belief) -> Asking:
    """Rounds of second moments, as many units as make them tell something, or none."""
    if belief.rows is None or not has_moments(belief.plan.covariates):
        return belief
    size = belief.rows.shape[1]
    edge = largest_of_noise(1.3 * size * belief.noise(1) / belief.num_records, size)  # of one unit
    lowest, highest = (share * belief.plan.num_steps for share in _MOMENT_SHARES)
    units = min(max((edge / _RESOLVED) ** 2, lowest), highest)
    if edge / np.sqrt(units) > _DROWNED:
        return belief
    for share in _MOMENT_ROUNDS:
        count = max(1, round(share * units))
        assert belief.rows is not None
        request = moments_request(belief.rows, belief.num_records, belief.noise(count), count)
        belief = yield from _ask(belief, request)
    return belief


def _way(belief: Belief, start: Found) -> Generator[Request, np.ndarray, tuple[Belief, np.ndarray, Found]]:
    """Blocks until what they know is no further from the answer than the last two will have to go."""
    z, found, most = start.z, start, _WAY * belief.plan.num_steps
    for number in range(_MOST_BLOCKS):
        if number == _FIRST_LOOK and not belief.simulator.responsive(z):
            belief = yield from _look(belief, z, found, 0.33)
        unit, spread = _sharpness(belief, z, found)
        if number and spread < _FAR * unit / np.sqrt(_SECOND_LAST * belief.left):
            break
        units = int(np.ceil(min((unit / (_SHARPER * spread)) ** 2, _LONGEST * belief.plan.num_steps)))
        if number and belief.spent + units > most:
            break
        belief = yield from _ask(belief, _scores(belief, z, max(_SHORTEST, units)))
        doubt = float(np.hypot(_SEARCHING, belief.error))
        found = search(belief.simulator, measured(belief, belief.blocks[-REMEMBERED:]), z, doubt)
        z = _trusted(belief, z, found.z, start)
    return belief, z, found


def _sharpness(belief: Belief, z: np.ndarray, found: Found) -> tuple[float, float]:
    """In whitened coordinates: the noise of an answer to one unit of scores at z, and how much is not known yet."""
    white = metric_at(belief, z)
    clip = _clip(belief, white, z)
    unit = clip * belief.noise(1) / belief.num_records
    back = np.linalg.inv(white.matrix)
    return unit, float(np.exp(np.mean(np.log(np.linalg.eigvalsh(back.T @ found.covariance @ back))) / 2))


def _last_point(belief: Belief, z: np.ndarray) -> np.ndarray:
    """Where the blocks say that the answer is: near it as a posterior is read, and else as the way is found."""
    found = conclusion(belief)
    sampling = np.linalg.cholesky(found.sampling)
    away = np.linalg.solve(sampling, np.linalg.solve(sampling, found.privacy).T)
    if np.trace(away) < _NEAR**2 * len(z):
        return found.mean
    doubt = float(np.hypot(_SEARCHING, belief.error))
    return search(belief.simulator, measured(belief, belief.blocks[-REMEMBERED:]), z, doubt).z


def _look(belief: Belief, z: np.ndarray, found: Found, share: float) -> Asking:
    """The curvature at z, with units in proportion to the noise that its own noise brings to the answer."""
    unit, spread = _sharpness(belief, z, found)
    dimension = len(z)
    entry = 1.5 * dimension * belief.noise(1) / belief.num_records
    ratio = entry * np.sqrt(dimension) * spread / unit
    part = share * float(np.clip(ratio / (1 + ratio), *_LOOK_SHARES))
    units = _share(part, belief)
    if share < 1 and largest_of_noise(entry / np.sqrt(units), dimension) > _BLURRED:
        return belief
    hessians = belief.simulator.hessians(z)
    expected = expected_curvature(belief, z)
    asked = curvature_request(expected, z, *hessians, belief.num_records, belief.noise(units), units)
    return (yield from _ask(belief, asked))


def _scores(belief: Belief, z: np.ndarray, units: int) -> Scores:
    """Scores at z in the model's metric, clipped as the budget that is left affords."""
    white = metric_at(belief, z)
    return Scores(z, white.matrix / _clip(belief, white, z), units)


def _clip(belief: Belief, white: Whitened, z: np.ndarray) -> float:
    laws = length_laws(belief, z, white.matrix)
    return clip_norm(laws, white.long, belief.num_records, 1 / belief.noise(max(1, belief.left)))


def _share(share: float, belief: Belief) -> int:
    return max(1, round(share * belief.left))


def _trusted(belief: Belief, z: np.ndarray, wanted: np.ndarray, start: Found) -> np.ndarray:
    """``wanted``, or, where the model is another one there, a point on the way from z.

    Sums of scores at z tell little of parameters under which records carry many times the information: a scale may
    halve from block to block, but not vanish. Nor is any point far from where the prior allows parameters.
    """
    if not np.all(np.isfinite(wanted)):
        return z
    away = wanted - start.z
    length = float(np.sqrt(away @ np.linalg.solve(start.covariance, away)))
    wanted = start.z + away * min(1.0, _FURTHEST * np.sqrt(len(z)) / max(length, 1e-300))
    spread = power(belief.simulator.information(z) + ridge_at(belief, z), -0.5)
    for share in _STEPS:
        there = z + share * (wanted - z)
        values = np.linalg.eigvalsh(spread @ (belief.simulator.information(there) + ridge_at(belief, there)) @ spread)
        if values.max() < _CHANGE and values.min() > 1 / _CHANGE:
            return there
    return z


def answer_of(scores: ScoreModel, histograms: np.ndarray | None, answers: Sequence[Answered]) -> Answer:
    """The answer of a run from what it asked and was told."""
    belief = first_belief(scores, histograms)
    for each in answers:
        belief = learned(belief, each.request, each.released)
    if belief.left or len(belief.blocks) < COUNTING:  # a whole run leaves nothing
        raise ValueError("These measurements are not those of a whole run of this plan; fit again.")
    return conclusion(belief)
