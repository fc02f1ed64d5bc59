"""One budget for several runs on the same records, and what runs together have spent.

A model whose likelihood factorises, log p(x | a, b) = f(x, a) + g(x, b) with independent priors, has a posterior that
factorises, and each block can be fitted by itself, with the steps, clip norm and posterior that suit it. The runs are
one composition: each plan lists the releases of the others, so that any of them states what all spend together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpvi.declared import validation
from dpvi.declared.guarantee import Guarantee
from dpvi.declared.plan import GRADIENTS, HISTOGRAMS, GaussianRelease, Plan
from dpvi.privacy.gaussian import gaussian_signal, limit_noise_multiplier
from dpvi.privacy.planning import plan

_BASIC = "basic composition of the runs' own bounds"


def plan_together(
    epsilon: float,
    delta: float,
    blocks: Mapping[str, Mapping[str, Any]],
    shares: Mapping[str, float],
    *,
    adjacency: str = "add_remove",
) -> dict[str, Plan]:
    """Plans of several runs on the same records that are (ε, δ)-private together.

    Parameters
    ----------
    epsilon, delta
        The budget of all runs together.
    blocks
        ``{name: settings}``: what :func:`dpvi.plan` needs of each run besides budget and noise, such as
        ``dict(sampling_rate=0.01, num_steps=4000, clip_norm=2.0, covariates=[...])``. Only the last one may measure
        (``dict(covariates=[...])`` alone).
    shares
        The share of the budget (of the squared signal) of every block but the last, which gets what is left.
    adjacency
        As for :func:`dpvi.plan`.

    Returns
    -------
    ``{name: plan}``. Each plan's ε is that of all runs, and its releases are all of theirs.

    Guarantees
    ----------
    Running each plan once is (``plan.epsilon``, ``delta``)-differentially private for any of the plans, by the
    accountant's composition of all releases, whatever later runs make of what earlier ones released.

    Examples
    --------
    >>> settings = dict(sampling_rate=0.01, num_steps=1000, clip_norm=2.0)
    >>> plans = plan_together(1.0, 1e-5, {"mixture": settings, "regression": settings}, {"mixture": 0.5})
    >>> [round(one.epsilon, 2) for one in plans.values()], round(plans["mixture"].noise_multiplier, 2)
    ([1.0, 1.0], 1.8)
    """
    names = list(blocks)
    _check_shares(names, shares)
    signal = gaussian_signal(validation.epsilon(epsilon), validation.delta(delta))
    fixed = {name: _draft(blocks[name], delta, math.sqrt(shares[name]) * signal, adjacency) for name in names[:-1]}
    last = names[-1]
    others = [release for name in fixed for release in _renamed(own_releases(fixed[name]), name)]
    plans = {last: plan(epsilon, delta, **blocks[last], adjacency=adjacency, other_releases=others)}
    for name in names[:-1]:
        every = fixed | {last: plans[last]}
        others = [r for other in names if other != name for r in _renamed(own_releases(every[other]), other)]
        draft = fixed[name]
        plans[name] = plan(
            None,
            delta,
            **{**blocks[name], "noise_multiplier": draft.noise_multiplier},
            adjacency=adjacency,
            other_releases=others,
        )
    return {name: plans[name] for name in names}


def joint_guarantee(plans: Sequence[Plan], guarantees: Sequence[Guarantee]) -> Guarantee:
    """What holds for all runs together: run k followed ``plans[k]`` and by itself has ``guarantees[k]``.

    ==========================================================  ========================================
    plans                                                       bound
    ==========================================================  ========================================
    one of them lists the releases of all (``plan_together``)   that plan's (ε, δ)
    any others on the same records                              (Σ ε, Σ δ)
    one without privacy, or with a weakness                     none
    ==========================================================  ========================================
    """
    if len({(one.adjacency, one.unit, one.rows_per_unit) for one in plans}) > 1:
        raise ValueError(
            "The runs protect against different changes of the records; plan them with one adjacency, unit and "
            "rows_per_unit."
        )
    weaknesses = dict.fromkeys(one.weakness for one in guarantees if one.weakness)
    if weaknesses:
        return joint_guarantee(plans, [one.planned or one for one in guarantees]).broken_by(" ".join(weaknesses))
    fixed_size = any(one.fixed_size for one in guarantees)  # what one run makes public is public
    assumptions = tuple(dict.fromkeys(sentence for one in guarantees for sentence in one.assumptions))
    released = Counter(_content(release) for one in plans for release in own_releases(one))
    for one, guarantee in zip(plans, guarantees, strict=True):
        listed = Counter(_content(release) for release in one.releases)
        if guarantee.private and all(listed[key] >= count for key, count in released.items()):
            return replace(guarantee, assumptions=assumptions, fixed_size=fixed_size)
    return replace(
        guarantees[0],
        epsilon=sum(one.epsilon for one in guarantees),
        delta=min(1.0, sum(one.delta for one in guarantees)),
        accountant=_BASIC,
        assumptions=assumptions,
        fixed_size=fixed_size,
    )


def own_releases(plan: Plan) -> list[GaussianRelease]:
    """What a run of ``plan`` makes itself: its gradients, histograms where it declares covariates, and what it asks."""
    return [release for release in plan.releases if release.name in (GRADIENTS, HISTOGRAMS)]


def _draft(settings: Mapping[str, Any], delta: float, signal: float, adjacency: str) -> Plan:
    """A block's own releases at the noise its share allows."""
    if settings.get("covariates") is not None:
        raise ValueError("Only the last block may declare covariates: histograms are paid for out of what is left.")
    if all(settings.get(name) is None for name in ("sampling_rate", "num_steps", "clip_norm", "clipping")):
        raise ValueError("Only the last block may measure: give the others sampling_rate, num_steps and clip_norm.")
    rate, steps = (
        validation.sampling_rate(settings.get("sampling_rate")),
        validation.num_steps(settings.get("num_steps")),
    )
    multiplier = settings.get("rows_per_unit", 1) * limit_noise_multiplier(signal, rate, steps, adjacency)
    return plan(None, delta, **{**settings, "noise_multiplier": multiplier}, adjacency=adjacency)


def _renamed(releases: Sequence[GaussianRelease], owner: str) -> list[GaussianRelease]:
    return [replace(release, name=f"{owner}: {release.name}") for release in releases]


def _content(release: GaussianRelease) -> tuple[float, ...]:
    return (release.sampling_rate, release.count, release.noise_multiplier, release.clip_norm, release.rows_per_unit)


def _check_shares(names: Sequence[str], shares: Mapping[str, float]) -> None:
    if len(names) < 2 or set(shares) != set(names[:-1]):
        raise ValueError(
            f"shares must give a share to every block but the last, {', '.join(map(repr, names[:-1])) or 'none'} here; "
            f"got {dict(shares)!r}."
        )
    if not all(0 < validation.number("a share", share) < 1 for share in shares.values()) or sum(shares.values()) >= 1:
        raise ValueError(f"shares must be positive and leave something to {names[-1]!r}, got {dict(shares)!r}.")
