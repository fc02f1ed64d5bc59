"""The privacy filter of a ledger: what a run costs where each is planned after seeing the results of those before.

A ledger promises (ε, δ) for all of its runs together, however they are chosen. The tight accounting of one plan does
not do for that: it composes settings that were fixed beforehand, and to add up privacy losses along the way and stop at
a limit is wrong in general (Honkela, Koskela, Räisä and Tran 2026). Gaussian mechanisms are the exception. So every run
is replaced by a Gaussian mechanism that is at least as bad, of signal μᵢ, and refused where Σ μᵢ² would pass μ².

Fixed when a ledger is begun, and public: ε, δ, and the share s of δ that is kept for plans that sample records. μ is
the largest signal of a Gaussian mechanism that is (ε, (1 - s) δ)-private.

Why it is valid
---------------
Take two neighbouring data sets, P the law of everything released from the first and Q from the second.

1. *All records, Gaussian noise.* The releases of such a plan are together no worse than N(μᵢ, 1) against N(0, 1),
   with μᵢ² the sum of squared sensitivities over noise variances: what they release is a randomised function of one
   normal number (Blackwell). That number can be taken from a Brownian motion with drift 1 under P and 0 under Q, as
   its increment over time μᵢ². Runs chosen after each other take increments after each other (each takes its own when
   it is reserved, so runs may overlap); when the next one begins follows from what was seen, so it is a stopping time
   and the increment is still N(μᵢ², μᵢ²) or N(0, μᵢ²). As Σ μᵢ² ≤ μ² whatever is chosen, all that is released is a
   randomised function of the path up to time μ², whose end is all that tells P from Q: N(μ², μ²) against N(0, μ²), a
   Gaussian mechanism of signal μ. This is the filter of Smith and Thakurta (2022) and of Koskela, Tobaben and Honkela
   (2022), and it loses nothing: the bound is that of runs that were fixed beforehand.

2. *Sampled records.* Each release of a plan is a randomised function of a number of its own, drawn from its
   one-dimensional worst case, and of what came before (Blackwell). The numbers of a plan are independent and fixed in
   law by its settings, so they can be drawn when it is reserved. Below, P and Q are the laws of these numbers. Let
   δᵢ(ε) be the accountant's bound for the whole plan, in the worse direction, and G_μ(ε) that of a Gaussian
   mechanism. Find μᵢ with δᵢ(ε) ≤ G_μᵢ(ε) + dᵢ for all ε ≥ 0. Then P can be changed by dᵢ in total variation to a P'
   for which run i is no worse than the Gaussian mechanism. Proof: δᵢ bounds both directions, so the inequality holds
   for all real ε, and so P(S) ≤ v(Q(S)) + dᵢ for every set S, v the power of the best test of the Gaussian mechanism
   at a given level. v is concave, so S ↦ v(Q(S)) is submodular, and its core (all laws P' with P'(S) ≤ v(Q(S)) for
   every S) is convex and weakly compact (v is continuous at 0). For any 0 ≤ f ≤ 1 the largest expectation of f in the
   core is a Choquet integral, and E_P f exceeds it by ∫ P(f > t) - v(Q(f > t)) dt ≤ dᵢ at most. By the minimax
   theorem one P' of the core has E_P f - E_P' f ≤ dᵢ for all f. This is done for every plan when it is reserved, and
   needs no history; on every path the dᵢ add up, so the law of all releases changes by Σ dᵢ at most, which is kept to
   s δ. What is left is case 1, so P(S) ≤ exp(ε) Q(S) + (1 - s) δ + s δ.

3. *Declared runs.* Runs whose settings are fixed together are one mechanism for cases 1 and 2, composed tightly by
   the accountant. They may be made in any order, with others between them, and not all need be made: the numbers
   behind their releases can be drawn when they are declared; each release is made later, of its number and of all
   that was seen by then, other runs included.

Every dᵢ is the hundredth part of s δ, so a hundred plans that sample (a declaration counts once) are the most. s cannot
follow from what was released: a set that is seldom used would then have the whole δ twice. A run that is released
without having published anything has used no increment.

Guarantees
----------
:func:`charge` never returns less than what cases 1 and 2 need; between the points at which δᵢ is computed, convexity in
exp(ε) bounds both sides.

References
----------
Smith and Thakurta (2022), Fully adaptive composition for Gaussian differential privacy, arXiv:2210.17520. Koskela,
Tobaben and Honkela (2022), Individual privacy accounting with Gaussian differential privacy, arXiv:2209.15596. Honkela,
Koskela, Räisä and Tran (2026), f-differential privacy filters, arXiv:2602.06756, whose own filter for sampled Gaussian
mechanisms holds in the limit of small rates and is not used here. Case 2 is proved above and taken from no paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from dpvi.declared.plan import GaussianRelease
from dpvi.privacy.accounting import deltas_by_direction, plan_epsilon
from dpvi.privacy.gaussian import gaussian_signal, limit_signal

MOST_SAMPLED = 100
SMALLEST_SLACK = 1e-11  # per plan: what rounding of sampled releases leaves of δ, with room
_NUM_POINTS = 2000
_TOLERANCE = 1e-6
_ROUNDING = 1e-15  # of the closed form of a Gaussian mechanism
_BELOW_THE_ROOT = 1 + 1e-12  # gaussian_signal is rounded down by 1e-12; its square by twice that
_BEYOND_ANY_BUDGET = 1000.0  # of μ: an ε of half a million


class Charge(NamedTuple):
    """What a run takes of a ledger: of μ², and of the part of δ that is kept for sampling."""

    signal_squared: float
    slack: float

    def __add__(self, other: object) -> Charge:
        if not isinstance(other, Charge):
            return NotImplemented
        return Charge(self.signal_squared + other.signal_squared, self.slack + other.slack)


class Limit(NamedTuple):
    """What a ledger has in all, and what each plan that samples takes of the slack."""

    signal_squared: float
    slack: float

    @property
    def slack_of_one(self) -> float:
        return self.slack / MOST_SAMPLED

    def holds(self, charge: Charge) -> bool:
        """Whether this much may be spent; a hundred equal parts of the slack are the whole of it."""
        return charge.signal_squared <= self.signal_squared and charge.slack <= self.slack * (1 + 1e-9)


def limit_of(epsilon: float, delta: float, share_for_sampling: float) -> Limit:
    """The limit of a ledger.

    Examples
    --------
    >>> round(limit_of(1.0, 1e-5, 0.0).signal_squared, 4), round(limit_of(1.0, 1e-5, 0.1).signal_squared, 4)
    (0.0719, 0.071)
    """
    signal = gaussian_signal(epsilon, delta * (1 - share_for_sampling))
    return Limit(signal**2 * _BELOW_THE_ROOT, delta * share_for_sampling / (1 + 1e-9))


@lru_cache(maxsize=256)
def charge(releases: tuple[GaussianRelease, ...], adjacency: str, slack: float) -> Charge:
    """What releases whose settings are fixed together cost; ``slack`` is what each plan that samples may take.

    Examples
    --------
    >>> everyone = GaussianRelease("gradients", 1.0, 4, 10.0, 1.0)
    >>> tuple(round(part, 12) for part in charge((everyone,), "add_remove", 0.0))
    (0.04, 0.0)
    >>> sampled = GaussianRelease("gradients", 0.1, 10_000, 40.0, 1.0)
    >>> found = charge((sampled,), "add_remove", 1e-9)
    >>> round(found.signal_squared / limit_signal([sampled], "add_remove") ** 2, 3)
    1.001
    """
    if all(release.sampling_rate == 1 for release in releases):
        squares = [release.count * (release.rows_per_unit / release.noise_multiplier) ** 2 for release in releases]
        return Charge((2 if adjacency == "substitute" else 1) ** 2 * math.fsum(squares), 0.0)
    return Charge(_dominating_signal(releases, adjacency, slack) ** 2, slack)


def _dominating_signal(releases: Sequence[GaussianRelease], adjacency: str, slack: float) -> float:
    """The smallest μ found with δ(ε) ≤ G_μ(ε) + slack for all ε ≥ 0."""
    last = plan_epsilon(releases, slack, adjacency)  # beyond, δ is at most slack
    if last == 0:
        return 0.0  # the two laws differ by at most the slack in total variation
    epsilons = np.linspace(0.0, last, _NUM_POINTS)
    deltas = np.maximum(*deltas_by_direction(releases, epsilons, adjacency))

    def is_enough(signal: float) -> bool:
        return _excess(epsilons, deltas, signal) <= slack - _ROUNDING

    low = high = min(limit_signal(releases, adjacency), 100.0)  # where to begin; infinite for hardly any noise
    while not is_enough(high):
        if high > _BEYOND_ANY_BUDGET:  # or no number: exp(ε) overflows for hardly any noise
            return math.inf
        low, high = high, 1.2 * high
    while is_enough(low):
        low, high = low / 1.2, low
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _excess(epsilons: np.ndarray, deltas: np.ndarray, signal: float) -> float:
    """An upper bound on the most that δ exceeds G_μ by, over all ε up to the last one.

    Both are convex in exp(ε): between two points δ is below its chord, and G_μ above its tangent at the first.
    """
    below = log_ndtr(-signal / 2 - epsilons / signal)
    above = log_ndtr(signal / 2 - epsilons / signal)
    gaussian = -np.exp(above) * np.expm1(np.minimum(0.0, epsilons + below - above))
    steepness = np.exp((epsilons + below)[:-1])  # minus exp(ε) times the slope of G_μ with respect to exp(ε)
    tangent = gaussian[:-1] - steepness * np.expm1(np.diff(epsilons))
    return float(max(np.max(deltas - gaussian), np.max(deltas[1:] - tangent)))
