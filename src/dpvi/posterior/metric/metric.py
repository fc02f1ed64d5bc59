"""In which metric to clip: an ellipsoid in the shape of the model's information, as wide as the budget affords.

    W = (F + P (1/N + d/(Nμ)²))^(−½) / C

with F the information of one record at the point of measuring, simulated, and P the prior's precision: directions that
noise of signal μ drowns below the prior are not stretched. Whitened scores V g, V = C W, have E|V g|² ≈ d. C trades
noise against what clipping bends. In coordinate k of the whitened space the answer's variance is about

    v_k(C) = (N E min(n, C)²/d + C²/μ² + R² G_kk) / (N E[min(n, C) n]/d)²,     n = |V g|,   R = N E(n − C)₊,

sampling, noise, and doubt: what was clipped away points where long scores point, G, and all of it may be bias. C is the
largest that costs at most five per cent of mean log variance against the best: clip as little as the budget affords.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvi.posterior.metric.moments import power
from dpvi.posterior.metric.tails import LengthLaw, excess, mean, simulated_law, surprise

_LONGEST = 0.99  # the quantile of lengths beyond which a score is long
_EVENLY = 0.05  # of G: long scores of records need not point where simulated ones do
_LEAST = 0.15  # the same, where it shortens directions
_SIGNED = 0.25  # of the squared mean of long scores, that stays in doubt
_COHERENT = 3.0  # by how much more the longest scores point the same way
_UNSEEN = 2.0  # how much more than laws allow, where the model's own is not believed
_SLACK = 0.05
_NARROWEST, _WIDEST, _CANDIDATES = 0.3, 40.0, 40  # of C/√d


class Long(NamedTuple):
    """Where long scores point, u = V g / n of records with weights (n − q)₊, q a high quantile."""

    mean: np.ndarray  # ū, (d,)
    second: np.ndarray  # G: of u uᵀ, and a little in all directions, (d, d), of trace one

    def taken(self, laws: list[LengthLaw]) -> np.ndarray:
        """What clipping at 1 took from a record on average, (d,)."""
        surprised = surprise(laws)
        return mean(laws, _over) * ((1 - surprised) * self.mean + surprised * self._far)

    def doubt(self, laws: list[LengthLaw], num_records: float) -> np.ndarray:
        """Variance of what clipping took from a sum beside ``taken``, (d, d).

        How much it took is told by laws, as far as these agree. Which way it pointed is not known but for the mean. And
        where records have longer scores than the model's, a few may be longer than any count shows.
        """
        lost, most = mean(laws, _over), excess(laws)
        agreed = self.second - (1 - _SIGNED) * np.outer(self.mean, self.mean)
        known = max(most - lost, 0.0) ** 2 * self.second + lost**2 * agreed
        unseen = (_UNSEEN * surprise(laws) * most) ** 2 * np.outer(self._far, self._far)
        return num_records**2 * (known + unseen)

    @property
    def _far(self) -> np.ndarray:
        """Where scores point that are longer than any the model expects: more the same way than these."""
        length = float(np.linalg.norm(self.mean))
        return self.mean / max(length, 1e-300) * min(1.0, _COHERENT * length)


def _over(lengths: np.ndarray) -> np.ndarray:
    return np.maximum(lengths - 1, 0.0)


class Whitened(NamedTuple):
    """Scores of simulated records in the metric of the model's information at one point."""

    matrix: np.ndarray  # V, (d, d)
    plain: np.ndarray  # the same before any direction was shortened
    lengths: np.ndarray  # n of every simulated record
    weights: np.ndarray
    long: Long  # where long ones point

    def laws(self) -> list[LengthLaw]:
        return simulated_law(self.lengths, self.weights)


def whitened(
    scores: np.ndarray, weights: np.ndarray, information: np.ndarray, ridge: np.ndarray, bounded: bool
) -> Whitened:
    """V, n and G.

    Parameters
    ----------
    scores, weights
        Of simulated records, (M, d) and (M,).
    information
        F of one record, simulated or measured.
    ridge
        Added to it; see :func:`prior_ridge`.
    bounded
        Whether responses have a finite support. Where they do not, scores may be longer than any simulation shows, in
        the directions where simulated ones are long already. These directions are shortened, V ← (d G)^(−¾) V: heavy
        tails then cost width where they are, and not everywhere.
    """
    plain = matrix = power(information + ridge, -0.5)
    if not bounded:
        white = scores @ matrix.T
        long = long_directions(white, np.linalg.norm(white, axis=1), weights, evenly=_LEAST)
        matrix = power(len(matrix) * long.second, -0.75) @ matrix
        size = np.sqrt(len(matrix) / np.trace(matrix @ information @ matrix.T))
        matrix = size * matrix
    white = scores @ matrix.T
    lengths = np.linalg.norm(white, axis=1)
    return Whitened(matrix, plain, lengths, weights, long_directions(white, lengths, weights))


def prior_ridge(prior_precision: np.ndarray, num_records: float, signal: float) -> np.ndarray:
    """P (1/N + d/(Nμ)²), with μ the signal of all scores: what noise drowns below the prior need not be stretched."""
    return prior_precision * (1 / num_records + len(prior_precision) / (num_records * signal) ** 2)


def long_directions(white: np.ndarray, lengths: np.ndarray, weights: np.ndarray, evenly: float = _EVENLY) -> Long:
    """ū and G of whitened scores."""
    dimension = white.shape[1]
    over = weights * np.maximum(lengths - np.quantile(lengths, _LONGEST), 0.0) + 1e-300
    units = white / np.maximum(lengths, 1e-300)[:, None]
    second = (units * over[:, None]).T @ units
    total = max(float(np.trace(second)), 1e-300)
    average = (1 - evenly) * over @ units / total
    return Long(average, (1 - evenly) * second / total + evenly * np.eye(dimension) / dimension)


def clip_norm(laws: list[LengthLaw], long: Long, num_records: float, signal: float) -> float:
    """C for lengths of whitened scores that follow ``laws``, with signal μ left for the blocks to come."""
    dimension = len(long.mean)
    candidates = np.geomspace(_NARROWEST, _WIDEST, _CANDIDATES) * np.sqrt(dimension)
    costs = np.array([_cost(float(c), laws, long, num_records, signal) for c in candidates])
    return float(candidates[costs <= costs.min() + _SLACK].max())


def _cost(clip: float, laws: list[LengthLaw], long: Long, num_records: float, signal: float) -> float:
    """The mean of log v_k."""
    dimension = len(long.mean)
    usual = 3 * np.sqrt(dimension)  # longer scores are not the model's, so they carry no information on its parameters
    sampling = num_records * mean(laws, lambda n: np.minimum(n, clip) ** 2) / dimension
    slope = num_records * mean(laws, lambda n: np.minimum(n, clip) * np.minimum(n, usual)) / dimension
    lost = num_records * clip * excess([law.scaled(1 / clip) for law in laws])
    variances = sampling + (clip / signal) ** 2 + lost**2 * np.diag(long.second)
    return float(np.mean(np.log(variances))) - 2 * float(np.log(max(slope, 1e-300)))
