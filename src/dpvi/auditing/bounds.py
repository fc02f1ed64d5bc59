"""From counts of right and wrong guesses to a lower bound on ε.

A test on what was released guesses whether the canary was there. Its threshold is chosen on one part of the trials and
judged on the others. There Clopper-Pearson gives upper bounds on its false positive rate, α ≤ ᾱ, and on its false
negative rate, β ≤ β̄, which hold together with the stated confidence.

Why the bound is one
--------------------
Let f_s be the trade-off curve that the accountant promises of the plan with s times its noise
(:func:`dpvi.privacy.trade_off.trade_off`). It is never above the true curve, it falls as α grows, and it rises with s,
because noise can be added afterwards. If the mechanism kept f_s, every test would have β ≥ f_s(α), so

    β̄ ≥ β ≥ f_s(α) ≥ f_s(ᾱ).

So every s with f_s(ᾱ) > β̄ is refuted. :func:`noise_share` returns the smallest such s. Two statements follow, each
with the stated confidence:

* If that s is below 1, the mechanism does not keep the curve that its plan promises. This needs no assumption.
* If the mechanism is one of the plan's kind (the same rates and counts, Gaussian noise of whatever size), its noise is
  at most s times what is planned, and its ε at the plan's δ is at least that of the plan with s times the noise (and,
  where only a part of the plan was tried, the noise of the others as planned). This is the ε that an audit reports. At
  sampling rate 1 it is the usual conversion by Gaussian differential privacy: μ ≥ Φ⁻¹(1 − ᾱ) − Φ⁻¹(β̄).

One pair (ε, δ) alone, of any mechanism, is refuted by far fewer counts: :func:`epsilon_of_any_mechanism`, which has
little power and is given for comparison.

References
----------
Dong, Roth and Su (2022), Gaussian differential privacy. Nasr, Hayes, Steinke, Balle, Tramèr, Jagielski, Carlini and
Terzis (2023), Tight auditing of differentially private machine learning. The library jax_privacy has the same bounds
for Gaussian mechanisms (``auditing.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv

from dpvi.declared.plan import GaussianRelease
from dpvi.privacy.trade_off import TradeOff, gaussian_signal_of, scaled, trade_off

HELD_OUT = 0.25  # of the trials, to choose statistic and threshold
_NUM_THRESHOLDS = 60
_STRICTER = 1e-4
_NUM_POINTS = 25
_TOLERANCE = 1e-3  # relative, of the share of noise; the upper end is taken
_SMALLEST_NOISE, _LARGEST_SHARE = 0.05, 1e3

Scores = Mapping[str, tuple[np.ndarray, np.ndarray]]  # by statistic: (without, with), larger where the canary is there


class Counts(NamedTuple):
    """Errors of one test in ``num_trials`` trials without the canary and as many with it."""

    false_positives: int
    false_negatives: int
    num_trials: int

    def upper_rates(self, confidence: float) -> tuple[float, float]:
        """ᾱ and β̄, which hold together with ``confidence``."""
        each = 1 - (1 - confidence) / 2
        rates = clopper_pearson(np.array([self.false_positives, self.false_negatives]), self.num_trials, each)
        return float(rates[0]), float(rates[1])


class Points(NamedTuple):
    """A measured trade-off curve: rates of one statistic at several thresholds, with bounds at each by itself."""

    false_positive_rate: np.ndarray
    false_negative_rate: np.ndarray
    signal_lower: np.ndarray  # μ at each threshold, with the confidence of the audit
    signal_upper: np.ndarray


def clopper_pearson(successes: np.ndarray, num_trials: np.ndarray | int, confidence: float) -> np.ndarray:
    """The upper bound on a probability, given counts of successes.

    Examples
    --------
    >>> clopper_pearson(np.array([0, 50, 100]), 100, 0.95).round(4)
    array([0.0295, 0.5864, 1.    ])
    """
    successes = np.asarray(successes)
    inside = np.minimum(successes, num_trials - 1)
    return np.where(successes < num_trials, betaincinv(inside + 1, num_trials - inside, confidence), 1.0)


def count(scores: tuple[np.ndarray, np.ndarray], threshold: float) -> Counts:
    """Errors of the test that guesses "there" above ``threshold``."""
    without, with_canary = scores
    return Counts(int(np.sum(without > threshold)), int(np.sum(with_canary <= threshold)), len(without))


def choose_test(scores: Scores, promises: Mapping[str, TradeOff], confidence: float) -> tuple[str, float]:
    """The statistic and threshold whose bounds lie furthest below its promised curve, for the held-out trials.

    How far is the ratio of two signals, the measured one and that of the promise at the same ᾱ. Bounds are stricter
    here than where the test is judged, so that chance does not favour thresholds at which few trials err.
    """
    strict = 1 - _STRICTER * (1 - confidence)

    def distance(name: str, threshold: float) -> float:
        alpha, beta = count(scores[name], threshold).upper_rates(strict)
        promised = gaussian_signal_of(alpha, np.clip(promises[name].false_negative_rate(alpha), 1e-12, 1.0))
        return float(gaussian_signal_of(alpha, beta) / max(float(promised), 1e-9))

    candidates = [(name, threshold) for name, pair in scores.items() for threshold in _thresholds(pair)]
    return max(candidates, key=lambda candidate: distance(*candidate))


def judged(scores: Scores) -> tuple[Scores, Scores]:
    """Trials to choose a test on, and those that judge it."""

    def part(begin: float, end: float) -> Scores:
        return {
            name: (_stretch(without, begin, end), _stretch(with_canary, begin, end))
            for name, (without, with_canary) in scores.items()
        }

    return part(0.0, HELD_OUT), part(HELD_OUT, 1.0)


def noise_share(
    releases: Sequence[GaussianRelease], adjacency: str, false_positive_rate: float, false_negative_rate: float
) -> float:
    """The smallest s for which f_s(ᾱ) > β̄: more than s times the planned noise is refuted.

    Infinite where no noise is, which is wherever ᾱ + β̄ ≥ 1.

    Examples
    --------
    >>> releases = [GaussianRelease("gradients", 1.0, 4, 2.0, 1.0)]  # a signal of 1
    >>> round(noise_share(releases, "add_remove", 0.3085375, 0.3085375), 2)  # exactly its curve
    1.0
    """

    def refuted(share: float) -> bool:
        curve = trade_off(scaled(releases, share), adjacency)
        return bool(curve.false_negative_rate(false_positive_rate) > false_negative_rate)

    if false_positive_rate + false_negative_rate >= 1:
        return math.inf
    smallest = _SMALLEST_NOISE / min(release.noise_multiplier for release in releases)
    return smallest_refuted(refuted, smallest)


def smallest_refuted(refuted: Callable[[float], bool], smallest: float) -> float:
    """The smallest share of noise that is ``refuted``, to 1e-3 and never below it; ``refuted`` changes once.

    Not looked for below ``smallest``, nor above 1,000, where it is infinite.
    """
    low = high = 1.0
    if refuted(1.0):
        while refuted(low):
            high, low = low, low / 1.5
            if low < smallest:
                return high
    else:
        while not refuted(high):
            low, high = high, high * 1.5
            if high > _LARGEST_SHARE:
                return math.inf
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high


def epsilon_of_any_mechanism(false_positive_rate: float, false_negative_rate: float, delta: float) -> float:
    """The smallest ε that these error rates leave to an (ε, ``delta``)-private mechanism of any kind.

    Examples
    --------
    >>> round(epsilon_of_any_mechanism(0.1, 0.5, 1e-5), 3)
    1.609
    """
    pairs = (false_positive_rate, false_negative_rate), (false_negative_rate, false_positive_rate)
    odds = [(1 - other - delta) / rate for rate, other in pairs]
    return math.log(max(1.0, *odds))


def measured_points(scores: tuple[np.ndarray, np.ndarray], confidence: float) -> Points:
    """Rates at evenly spread thresholds, for a plot."""
    pooled = np.sort(np.concatenate(scores))
    thresholds = np.unique(np.quantile(pooled, np.linspace(0.02, 0.98, _NUM_POINTS)))
    counts = [count(scores, threshold) for threshold in thresholds]
    wrong = np.array([[each.false_positives, each.false_negatives] for each in counts]).T
    num_trials, each = np.array([[len(side)] for side in scores]), 1 - (1 - confidence) / 2
    upper = clopper_pearson(wrong, num_trials, each)
    lower = 1 - clopper_pearson(num_trials - wrong, num_trials, each)
    rates = wrong / num_trials
    signals = (gaussian_signal_of(alpha, beta) for alpha, beta in (upper, lower))
    return Points(rates[0], rates[1], *signals)


def _thresholds(pair: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    pooled = np.sort(np.concatenate(pair))
    # halfway between neighbours: where scores are few different numbers, a threshold stands beside none of them
    values = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, _NUM_THRESHOLDS)))
    return (values[1:] + values[:-1]) / 2 if len(values) > 1 else values


def _stretch(values: np.ndarray, begin: float, end: float) -> np.ndarray:
    return values[int(begin * len(values)) : int(end * len(values))]
