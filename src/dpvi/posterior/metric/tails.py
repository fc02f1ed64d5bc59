"""How long scores can be: laws of |W g| that noisy counts allow, and how much clipping at 1 then takes away.

Counts by length (:data:`~dpvi.release.requests.NORM_EDGES`, half octaves) are plain in the bulk and drowned by noise in
the tail, where few records may carry much. So the tail is not read off but fitted, from the bin on beyond which an
eighth of the records lies: counts fall by a factor r from bin to bin, which itself shrinks by a factor a,

    c_i = c_0 rⁱ a^(i(i−1)/2),

a power law for a = 1 (index α = −2 log₂ r), lighter tails for a < 1. Every (r, a) of a grid counts with its likelihood.
So do laws in which the records are the model's but for some that lie apart; these need better evidence.
Power laws down to α = 2 are allowed, beyond which scores have no variance. What is heavier, such as the squares of
t-distributed residuals with three degrees of freedom, stays partly unseen: no private method sees one record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpvi.release.requests import NORM_EDGES

_FINE = 2.0 ** np.arange(-2, 14.5, 0.5)  # edges of the bins in which laws are written down
_MIDDLES = np.concatenate([[_FINE[0] / 2], np.sqrt(_FINE[1:] * _FINE[:-1]), [1.2 * _FINE[-1]]])
_COUNTED_IN = np.searchsorted(NORM_EDGES, _MIDDLES, "right")
_LAST_NARROW = 8  # the first of a tail is one of the bins that are as narrow as those of laws
_RATIOS = (0.03, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.65, 0.75, 0.9)
_BENDS = (1.0, 0.85, 0.7, 0.5, 0.3, 0.1)
_HEAVIEST = 0.5  # the ratio of a power law with α = 2
_APART = tuple((first, last) for first in (0.5, 1.5, 3.0) for last in (3.0, 5.0, 8.0) if first < last)  # log₂ lengths
_UNLIKELY = np.exp(-5.0)  # that some records are not the model's and lie apart, beside a tail of another form
_TAIL = 0.12  # the share of records whose lengths the fit describes
_MISFIT = 0.1  # relative: no tail has exactly this form
_FEWEST = 0.3  # a bin with fewer expected records has none
_IMPROBABLE = 1e-3
_VISIBLE = 2.0  # standard deviations of noise, above which a bin is thought to hold records
_DROWNED = 0.03  # noise, as a share of the records, under which a bin says nothing
_MISSING = 0.5  # of the records: where visible bins miss more, or hold as many too many, counts say nothing
_MOST = 0.9  # of the laws, by probability, take away at most what is doubted
_INNOCENT = 4.0  # how much more the model's own law is believed beforehand than all others together


class LengthLaw(NamedTuple):
    """A law of |W g| that may be, and how likely it is beside others."""

    probability: float
    lengths: np.ndarray
    shares: np.ndarray  # of the records, summing to one

    def scaled(self, factor: float) -> LengthLaw:
        """In a metric that is ``factor`` times as large."""
        return self._replace(lengths=self.lengths * factor)


def simulated_law(lengths: np.ndarray, shares: np.ndarray) -> list[LengthLaw]:
    """The one law of simulated records."""
    return [LengthLaw(1.0, lengths, shares)]


def counted_laws(counts: np.ndarray, noise_scale: float, simulated: LengthLaw, num_records: float) -> list[LengthLaw]:
    """The laws that noisy ``counts`` with noise of standard deviation ``noise_scale`` allow.

    The model's own law, ``simulated``, is believed as much as all others together times four, until counts speak.
    """
    visible = np.where(counts > _VISIBLE * noise_scale, counts, 0.0)
    if noise_scale > _DROWNED * num_records or abs(visible.sum() - num_records) > _MISSING * num_records:
        return [simulated]
    first = len(counts) - 1 - int(np.argmax(np.cumsum(visible[::-1]) > _TAIL * max(visible.sum(), 1.0)))
    first = min(first, _LAST_NARROW)
    seen = counts[first:]
    known = np.maximum(seen, 0.0)
    variance = noise_scale**2 + known + (_MISFIT * known) ** 2

    def fit(masses: np.ndarray) -> float:
        return -0.5 * float(np.sum((seen - masses) ** 2 / variance))

    def height(shape: np.ndarray, counted: np.ndarray) -> float:
        return max(float((shape / variance) @ counted / max(float((shape / variance) @ shape), 1e-300)), 0.0)

    own = num_records * np.bincount(
        np.searchsorted(NORM_EDGES, simulated.lengths, "right"), simulated.shares, len(counts)
    )
    found = [(fit(own[first:]), _INNOCENT, simulated)]
    shapes = _tail_shapes(first)
    for shape in shapes:
        part = _counted(shape)[first:]
        masses = height(part, seen) * shape
        tail = np.where(masses < _FEWEST, 0.0, masses)
        tail[:first] = visible[:first]
        law = LengthLaw(0.0, _MIDDLES, tail / max(float(tail.sum()), 1e-9))
        found.append((fit(_counted(masses)[first:]), 1 / len(shapes), law))
    for shape in _shapes_apart():
        part = _counted(shape)[first:]
        number = height(part, seen - own[first:])
        share = min(number / num_records, 1.0)
        lengths = np.concatenate([simulated.lengths, _MIDDLES])
        shares = np.concatenate([(1 - share) * simulated.shares, share * shape])
        found.append((fit(own[first:] + number * part), _UNLIKELY / len(_APART), LengthLaw(0.0, lengths, shares)))
    best = max(quality for quality, _, _ in found)
    weights = np.array([np.exp(quality - best) * prior for quality, prior, _ in found])
    laws = [law._replace(probability=float(w)) for w, (_, _, law) in zip(weights / weights.sum(), found, strict=True)]
    return [laws[0], *(law for law in laws[1:] if law.probability > _IMPROBABLE)]


def _counted(masses: np.ndarray) -> np.ndarray:
    """Masses of fine bins in those of counts."""
    return np.bincount(_COUNTED_IN, masses, len(NORM_EDGES) + 1)


def _tail_shapes(first: int) -> list[np.ndarray]:
    """Tails that fall from the bin ``first`` on."""
    bins = np.arange(len(_MIDDLES) - first)
    steep = [(ratio, bend) for ratio in _RATIOS for bend in _BENDS if ratio <= _HEAVIEST or bend <= _BENDS[2]]
    tails = [np.exp(np.minimum(bins * np.log(r) + bins * (bins - 1) / 2 * np.log(a), 50.0)) for r, a in steep]
    return [np.concatenate([np.zeros(first), tail]) for tail in tails]


def _shapes_apart() -> list[np.ndarray]:
    """Records that lie apart from the others: as many in every half octave."""
    shapes = [((np.log2(_MIDDLES) > a) & (np.log2(_MIDDLES) < b)).astype(np.float64) for a, b in _APART]
    return [shape / shape.sum() for shape in shapes]


def surprise(laws: list[LengthLaw]) -> float:
    """How probable it is that scores are not as long as the model expects; its own law comes first."""
    return 1 - laws[0].probability


def excess(laws: list[LengthLaw]) -> float:
    """E(|W g| − 1)₊, what clipping takes from a record on average, as large as nine in ten of the laws have it."""
    lost = np.array([float(law.shares @ np.maximum(law.lengths - 1, 0.0)) for law in laws])
    order = np.argsort(lost)
    reached = np.cumsum([laws[index].probability for index in order])
    return float(lost[order][np.searchsorted(reached, _MOST * reached[-1])])


def mean(laws: list[LengthLaw], function: Callable[[np.ndarray], np.ndarray]) -> float:
    """The expectation of ``function(|W g|)`` over records and laws."""
    total = sum(law.probability * float(law.shares @ function(law.lengths)) for law in laws)
    return total / sum(law.probability for law in laws)


def kept_slope(laws: list[LengthLaw], dimension: int) -> float:
    """How much of a shift of scores clipping at 1 leaves: all where n ≤ 1, and (1 − 1/d)/n of it where it is longer."""
    return mean(laws, lambda n: np.where(n > 1, (1 - 1 / dimension) / np.maximum(n, 1.0), 1.0))
