"""How much noise a budget needs: the inverse of :mod:`dpvi.privacy.accounting`.

The search starts at the Gaussian limit, which is within a few per cent for most settings, and widens from there. It
never probes very small noise without need: there one evaluation can cost gigabytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpvi.declared import validation
from dpvi.declared.plan import GaussianRelease
from dpvi.privacy import accounting
from dpvi.privacy.gaussian import find_root, gaussian_signal, limit_noise_multiplier, limit_signal

RELATIVE_TOLERANCE = 2e-5
_SMALLEST, _LARGEST = 0.01, 1e12


def noise_multiplier(
    epsilon: float, delta: float, sampling_rate: float, num_steps: int, adjacency: str = "add_remove"
) -> float:
    """Smallest noise multiplier for which ``num_steps`` steps are (``epsilon``, ``delta``)-private.

    Parameters
    ----------
    epsilon, delta
        The budget: ε > 0 and 0 < δ < 1.
    sampling_rate, num_steps, adjacency
        As in :func:`dpvi.privacy.epsilon`.

    Returns
    -------
    float
        σ relative to the clip norm: the noise has standard deviation σC.

    Guarantees
    ----------
    The accountant's δ at the returned σ and the given ε is at most ``delta``, so the promise holds. σ is within 2e-5
    (relative) of the smallest one the accountant accepts.

    Examples
    --------
    >>> round(noise_multiplier(1.0, 1e-5, 0.1, 10_000), 2)
    37.33
    """
    return release_noise_multiplier(epsilon, delta, sampling_rate, num_steps, adjacency)


def release_noise_multiplier(
    epsilon: float,
    delta: float,
    sampling_rate: float,
    num_steps: int,
    adjacency: str = "add_remove",
    other_releases: Sequence[GaussianRelease] = (),
    rows_per_unit: int = 1,
) -> float:
    """Smallest noise multiplier of one release, given what other releases of the same plan already cost.

    One unit has at most ``rows_per_unit`` rows, in this release as in the others.

    Raises
    ------
    ValueError
        When the other releases alone spend the budget.

    Examples
    --------
    >>> histogram = GaussianRelease("histogram", sampling_rate=1.0, count=1, noise_multiplier=20.0, clip_norm=1.0)
    >>> alone = release_noise_multiplier(1.0, 1e-5, 0.1, 10_000)
    >>> release_noise_multiplier(1.0, 1e-5, 0.1, 10_000, other_releases=[histogram]) > alone
    True
    """
    epsilon, delta = validation.epsilon(epsilon), validation.delta(delta)
    rate, count = validation.sampling_rate(sampling_rate), validation.num_steps(num_steps)
    adjacency, others = validation.adjacency(adjacency), list(other_releases)
    accounting.check_delta(delta, [*others, accounting.single_release(1.0, rate, count, rows_per_unit)])
    if others and accounting.plan_delta(others, epsilon, adjacency) >= delta:
        raise ValueError(
            f"The other releases alone already spend epsilon = {epsilon:g} at delta = {delta:g}, so no noise on this "
            "one can meet the budget. Give them more noise or raise epsilon."
        )
    if rate == 1 and all(release.sampling_rate == 1 for release in others):
        left = gaussian_signal(epsilon, delta) ** 2 - limit_signal(others, adjacency) ** 2
        return rows_per_unit * limit_noise_multiplier(math.sqrt(left), rate, count, adjacency)

    def spent_delta(multiplier: float) -> float:
        release = accounting.single_release(multiplier, rate, count, rows_per_unit)
        return accounting.plan_delta([*others, release], epsilon, adjacency)

    start = _first_guess(gaussian_signal(epsilon, delta), rate, count, adjacency, others, rows_per_unit)
    return smallest_safe(spent_delta, delta, start)


def smallest_safe(spent: Callable[[float], float], budget: float, start: float) -> float:
    """Smallest x with ``spent(x) <= budget`` for a decreasing ``spent``, to 2e-5 relative, never on the wrong side.

    Parameters
    ----------
    spent
        Positive and decreasing.
    budget
        What may be spent.
    start
        A first guess; the bracket widens from here as far as needed.

    Examples
    --------
    >>> x = smallest_safe(lambda x: 1 / x, 0.25, start=1.0)
    >>> 4 <= x < 4 * (1 + 2e-5)
    True
    """
    known: dict[float, float] = {}

    def excess(log_value: float) -> float:
        if log_value not in known:
            known[log_value] = math.log(max(spent(math.exp(log_value)), 1e-300) / budget)
        return known[log_value]

    low, high = _bracket(excess, math.log(start))
    root = high if excess(high) == 0 else find_root(excess, low, high, RELATIVE_TOLERANCE / 8)
    nudge = RELATIVE_TOLERANCE / 8
    while excess(root) > 0:
        root, nudge = root + nudge, 2 * nudge
    return math.exp(root)


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Walk from ``start`` in ever longer steps until the sign changes."""
    step, here = 0.01, start
    sign = 1 if excess(here) > 0 else -1
    while True:
        there = here + sign * step
        if not math.log(_SMALLEST) < there < math.log(_LARGEST):
            raise ValueError(
                f"No noise_multiplier between {_SMALLEST:g} and {_LARGEST:g} uses up this budget. "
                "Check epsilon, delta, sampling_rate and num_steps."
            )
        if (excess(there) > 0) != (sign > 0):
            return (here, there) if sign > 0 else (there, here)
        here, step = there, min(3 * step, 0.7)


def _first_guess(
    signal: float,
    sampling_rate: float,
    num_steps: int,
    adjacency: str,
    others: Sequence[GaussianRelease],
    rows_per_unit: int,
) -> float:
    used = limit_signal(others, adjacency)
    left = math.sqrt(signal**2 - used**2) if used < 0.98 * signal else 0.2 * signal
    guess = rows_per_unit * limit_noise_multiplier(left, sampling_rate, num_steps, adjacency)
    return min(max(guess, 2 * _SMALLEST), _LARGEST / 2)
