"""Tight accounting: ε and δ of compositions of Poisson-sampled Gaussian releases.

The privacy loss of each kind of release is discretised pessimistically (:mod:`dpvi.privacy.privacy_loss`) and composed
by dp-accounting's privacy loss distributions, each direction of the adjacency separately. The grid follows the loss:
h = 0.015 standard deviations of the one-step loss. Discretising adds about h²/6 to the variance of each step, hence
a relative (h/s)²/12 to the noise; a fixed grid of 1e-4 costs 0.8 % at ε = 0.1 and one of 1e-3 costs 145 %.

Guarantees
----------
Every ε and δ returned is an upper bound on the true one. Over σ ≥ 0.8 and 0.01 ≤ ε ≤ 10 it is at most 2e-4 above it
(relative, in ε), as the tests hold against an independent oracle.

============================  ========================================================================================
edge                          what happens
============================  ========================================================================================
every sampling rate is 1      closed form of the Gaussian mechanism; dp-accounting is not needed
δ so large that ε = 0         0.0 is returned
δ below 1e-12, or so small    refused: double precision cannot resolve it (the sentence names the smallest δ that works)
that rounding reaches it
grid larger than memory       h is coarsened, which keeps the bound and loosens it; refused when even that does not fit
============================  ========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpvi.declared import validation
from dpvi.declared.plan import GRADIENTS, GaussianRelease
from dpvi.privacy import privacy_loss
from dpvi.privacy.gaussian import gaussian_delta, gaussian_epsilon, sensitivity

ACCOUNTANT = "privacy loss distributions (dp-accounting)"
CLOSED_FORM = "the closed form of the Gaussian mechanism"
SMALLEST_DELTA = 1e-12

_GRID_FRACTION = 0.015
_MOST_STEP_POINTS = 250_000
_MOST_POINTS = 8_000_000  # about 50 bytes each at the peak of the transform
_TRUNCATION = 1e-15
_LARGE_COUNT = 100_000
# Rounding in dp-accounting's transforms can move δ by about 2e-17 per composed step; this allows five times that.
_ROUNDING_PER_STEP = 1e-16


def epsilon(
    noise_multiplier: float, delta: float, sampling_rate: float, num_steps: int, adjacency: str = "add_remove"
) -> float:
    """ε spent by ``num_steps`` Poisson-sampled Gaussian releases.

    Each step samples every record with probability κ = ``sampling_rate``, clips to C and adds N(0, (σC)²) to the sum,
    σ = ``noise_multiplier`` being relative to the clip norm under both adjacencies.

    Parameters
    ----------
    noise_multiplier, delta, sampling_rate, num_steps
        σ > 0, 0 < δ < 1, 0 < κ ≤ 1, T ≥ 1.
    adjacency
        ``"add_remove"`` one record, or ``"substitute"`` one record by another.

    Returns
    -------
    float
        The smallest ε ≥ 0 that the accountant can prove.

    Guarantees
    ----------
    Never below the true ε of the worst case, and both directions are bounded.

    Examples
    --------
    >>> round(epsilon(1.5, 1 / 60000, 128 / 60000, 9380), 3)
    0.536
    """
    release = single_release(noise_multiplier, sampling_rate, num_steps)
    return plan_epsilon([release], delta, adjacency)


def delta(
    noise_multiplier: float, epsilon: float, sampling_rate: float, num_steps: int, adjacency: str = "add_remove"
) -> float:
    """δ at which ``num_steps`` Poisson-sampled Gaussian releases are (``epsilon``, δ)-private.

    The arguments are those of :func:`epsilon`, with ε given and δ returned.

    Guarantees
    ----------
    Never below the true δ; includes the allowance for rounding, so it is never below 1e-15.

    Examples
    --------
    >>> f"{delta(37.3279, 1.0, 0.1, 10_000):.2e}"
    '1.00e-05'
    """
    release = single_release(noise_multiplier, sampling_rate, num_steps)
    return plan_delta([release], epsilon, adjacency)


def single_release(
    noise_multiplier: float, sampling_rate: float, num_steps: int, rows_per_unit: int = 1
) -> GaussianRelease:
    """A gradients release at clip norm 1 with checked settings: accounting does not depend on the clip norm."""
    return GaussianRelease(
        name=GRADIENTS,
        sampling_rate=validation.sampling_rate(sampling_rate),
        count=validation.num_steps(num_steps),
        noise_multiplier=validation.noise_multiplier(noise_multiplier),
        clip_norm=1.0,
        rows_per_unit=rows_per_unit,
    )


def plan_epsilon(releases: Sequence[GaussianRelease], delta: float, adjacency: str = "add_remove") -> float:
    """ε spent by all releases of a plan together, at ``delta``.

    Parameters
    ----------
    releases
        Any mix of rates, counts and noise multipliers; they may be chosen one after the other as long as the list of
        settings is fixed beforehand.
    delta, adjacency
        As in :func:`epsilon`.

    Guarantees
    ----------
    An upper bound on the ε of the adaptive composition of the listed releases, in any order.

    Examples
    --------
    >>> steps = single_release(37.4, 0.1, 10_000)
    >>> histogram = GaussianRelease("histogram", sampling_rate=1.0, count=1, noise_multiplier=20.0, clip_norm=1.0)
    >>> plan_epsilon([steps], 1e-5) < plan_epsilon([steps, histogram], 1e-5)
    True
    """
    delta, adjacency = validation.delta(delta), validation.adjacency(adjacency)
    if _unsampled(releases):
        return gaussian_epsilon(_signal(releases, adjacency), delta)
    usable = delta - _rounding(releases)
    check_delta(delta, releases)
    return max(0.0, float(_compose(releases, adjacency).get_epsilon_for_delta(usable)))


def plan_delta(releases: Sequence[GaussianRelease], epsilon: float, adjacency: str = "add_remove") -> float:
    """δ at which all releases of a plan together are (``epsilon``, δ)-private; see :func:`plan_epsilon`.

    Examples
    --------
    >>> round(plan_delta([single_release(1.0, 1.0, 1)], 1.0), 6)
    0.126937
    """
    epsilon, adjacency = validation.epsilon(epsilon), validation.adjacency(adjacency)
    if _unsampled(releases):
        return gaussian_delta(_signal(releases, adjacency), epsilon)
    return min(1.0, float(_compose(releases, adjacency).get_delta_for_epsilon(epsilon)) + _rounding(releases))


def check_delta(delta: float, releases: Sequence[GaussianRelease]) -> None:
    """Refuse a δ that double precision cannot resolve for this many sampled steps."""
    smallest = max(SMALLEST_DELTA, 4 * _rounding(releases))
    if not _unsampled(releases) and delta < smallest:
        raise ValueError(
            f"delta must be at least {smallest:.2g} for these releases, got {delta:.3g}: below that rounding errors "
            "are as large as delta itself. Choose a larger delta, fewer steps, or sampling_rate=1 (closed form)."
        )


def accountant_name(releases: Sequence[GaussianRelease]) -> str:
    """How the cost of these releases is computed, for the guarantee."""
    return CLOSED_FORM if _unsampled(releases) else ACCOUNTANT


def grid_interval(releases: Sequence[GaussianRelease], adjacency: str) -> float:
    """The common grid of losses: a fixed fraction of the count-weighted rms deviation of the one-step losses.

    The smaller direction decides, unless the grid would not fit in memory; then it is coarsened, which keeps the bound.
    """
    total = sum(release.count for release in releases)
    rms = min(
        math.sqrt(sum(r.count * _deviation(r, direction) ** 2 for r in releases) / total)
        for direction in privacy_loss.directions(adjacency)
    )
    widest = max(_range(release, adjacency) for release in releases)
    return max(_GRID_FRACTION * rms, widest / _MOST_STEP_POINTS)


def deltas_by_direction(
    releases: Sequence[GaussianRelease], epsilons: np.ndarray, adjacency: str = "add_remove"
) -> tuple[np.ndarray, np.ndarray]:
    """δ(ε) of all releases together at each of ``epsilons``, in each direction of the adjacency.

    Returns
    -------
    tuple of arrays
        Where the first law is that of the data with a record and the second that without it (the direction
        ``"remove"`` of :mod:`dpvi.privacy.privacy_loss`), and the other way round. Under substitution both are alike.

    Guarantees
    ----------
    Never below the true δ of that direction.
    """
    if _unsampled(releases):
        signal = _signal(releases, validation.adjacency(adjacency))
        deltas = [np.array([gaussian_delta(signal, float(epsilon)) for epsilon in epsilons])]
    else:
        pmfs = _compose_directions(releases, validation.adjacency(adjacency))
        deltas = [np.minimum(1.0, pmf.get_delta_for_epsilon(epsilons) + _rounding(releases)) for pmf in pmfs]
    return deltas[0], deltas[-1]


def _compose(releases: Sequence[GaussianRelease], adjacency: str) -> Any:
    """dp-accounting's privacy loss distribution of the whole composition."""
    return _dp_accounting()[1].PrivacyLossDistribution(*_compose_directions(releases, adjacency))


def _compose_directions(releases: Sequence[GaussianRelease], adjacency: str) -> list[Any]:
    """The composition in each direction of the adjacency, on one grid."""
    pld_pmf, _ = _dp_accounting()
    releases = _merge(releases, adjacency)
    interval = grid_interval(releases, adjacency)
    for _ in range(12):
        pmfs = [
            _compose_direction(pld_pmf, releases, direction, interval)
            for direction in privacy_loss.directions(adjacency)
        ]
        if all(pmf is not None for pmf in pmfs):
            return pmfs
        interval *= 2
    raise ValueError(
        "These releases are too many, or their noise_multiplier is too small, for the accountant's memory: the privacy "
        "loss spans more than any useful epsilon. Use a larger noise_multiplier or fewer steps."
    )


def _compose_direction(
    pld_pmf: Any, releases: Sequence[GaussianRelease], direction: str, interval: float
) -> Any | None:
    """Composition in one direction, or None where the grid would not fit in memory."""
    total, points = None, 0
    for release in releases:
        loss = privacy_loss.discretise(*_setting(release, direction), interval, release.rows_per_unit)
        step = pld_pmf.DensePLDPmf(interval, loss.lowest, loss.masses, loss.infinity_mass, True)
        composed = _self_compose(step, loss.masses, release.count)
        if composed is None or points + composed.size > _MOST_POINTS:
            return None
        points += composed.size
        total = composed if total is None else total.compose(composed, _TRUNCATION)
    return total


def _self_compose(step: Any, masses: Any, count: int) -> Any | None:
    from dp_accounting.pld import common

    if count == 1:
        return step
    if count > _LARGE_COUNT:
        return _compose_in_blocks(step, count)
    low, high = common.compute_self_convolve_bounds(masses, count, _TRUNCATION)
    return None if high - low > _MOST_POINTS else step.self_compose(count, _TRUNCATION)


def _compose_in_blocks(step: Any, count: int) -> Any | None:
    """Compose blocks of steps, then the blocks.

    dp-accounting bounds the window of the result with tail slopes tied to the width of its input; for very many steps
    they are too steep and the window is several times wider than needed. A block is wide enough for slopes that fit.
    """
    length = math.isqrt(count)
    truncation = _TRUNCATION / (2 * length)
    block = step.self_compose(length, truncation)
    if block.size * math.sqrt(count / length) > _MOST_POINTS:
        return None
    whole = block.self_compose(count // length, _TRUNCATION)
    rest = count % length
    return whole if rest == 0 else whole.compose(step.self_compose(rest, truncation), _TRUNCATION)


def _merge(releases: Sequence[GaussianRelease], adjacency: str) -> list[GaussianRelease]:
    """Join all releases without sampling into the one Gaussian they are, which the grid then meets once."""
    unsampled = [release for release in releases if release.sampling_rate == 1]
    sampled = [release for release in releases if release.sampling_rate < 1]
    if unsampled:
        multiplier = sensitivity(adjacency) / _signal(unsampled, adjacency)
        sampled.append(GaussianRelease("unsampled", 1.0, 1, multiplier, 1.0))
    return sampled


def _signal(releases: Sequence[GaussianRelease], adjacency: str) -> float:
    squares = sum(release.count * (release.rows_per_unit / release.noise_multiplier) ** 2 for release in releases)
    return sensitivity(adjacency) * math.sqrt(squares)


def _unsampled(releases: Sequence[GaussianRelease]) -> bool:
    return all(release.sampling_rate == 1 for release in releases)


def _rounding(releases: Sequence[GaussianRelease]) -> float:
    return _ROUNDING_PER_STEP * (10 + sum(release.count for release in releases if release.sampling_rate < 1))


def _deviation(release: GaussianRelease, direction: str) -> float:
    return privacy_loss.standard_deviation(*_setting(release, direction), release.rows_per_unit)


def _setting(release: GaussianRelease, direction: str) -> tuple[float, float, str]:
    return release.noise_multiplier, release.sampling_rate, direction


def _range(release: GaussianRelease, adjacency: str) -> float:
    spans = [
        privacy_loss.loss_range(*_setting(release, direction), release.rows_per_unit)
        for direction in privacy_loss.directions(adjacency)
    ]
    return max(high - low for low, high in spans)


def _dp_accounting() -> tuple[Any, Any]:
    try:
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    except ImportError:
        raise ImportError(
            "Accounting for sampled releases needs the package dp-accounting; install it with "
            "pip install 'dp-accounting>=0.6,<0.7'. A stored plan runs without it."
        ) from None
    return pld_pmf, privacy_loss_distribution
