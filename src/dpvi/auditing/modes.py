"""``dpvi.audit``: run the shipped mechanism on canaries and compare what it gives away with what a plan promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpvi.auditing.bounds import (
    choose_test,
    count,
    epsilon_of_any_mechanism,
    judged,
    measured_points,
    noise_share,
)
from dpvi.auditing.canaries import BACKGROUNDS
from dpvi.auditing.fits import DEFAULT_TRIALS, run_fits, steps_alone
from dpvi.auditing.measuring import DEFAULT_TRIALS as DEFAULT_MEASURING_TRIALS
from dpvi.auditing.measuring import run_measuring
from dpvi.auditing.one_run import DEFAULT_CANARIES, Guesses, one_run_noise_share, run_once
from dpvi.auditing.report import Audit
from dpvi.auditing.step import Trials, default_trials, run_steps
from dpvi.declared import validation
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.privacy.accounting import plan_epsilon
from dpvi.privacy.gaussian import gaussian_signal
from dpvi.privacy.planning import checked_guarantee
from dpvi.privacy.trade_off import gaussian_signal_of, scaled, trade_off

MODES = ("step", "fits", "one_run", "measuring")
_FEWEST = 100


def audit(
    plan: Plan,
    *,
    mode: str | None = None,
    num_trials: int | None = None,
    confidence: float = 0.99,
    background: str = "orthogonal",
    seed: int | None = None,
) -> Audit:
    """Measure what the mechanism of ``plan`` gives away about one record, and compare it with what the plan promises.

    Nobody's records are needed. A canary, a made-up record that counts as much as a record can, is put among others
    that are known. Then somebody guesses from what is released whether it was there. How often the guess is right
    bounds ε from below.

    Parameters
    ----------
    plan
        A private plan from :func:`dpvi.plan`, with one fixed clip norm.
    mode
        ``"step"``, the default for plans of steps: the very function that takes a step, in the exact worst case, very
        many times; seconds. ``"fits"``: whole fits of 50 records and a canary; a minute. ``"one_run"``: one fit of very
        many canaries. ``"measuring"``, the only one for plans that measure: whole runs of 8 records and a canary, one
        question of every kind; a minute.
    num_trials
        Trials without the canary, and as many with it; in one run, the number of canaries. More trials bring the bound
        nearer to the truth, with the square root of their number.
    confidence
        The probability with which the bound holds. An honest mechanism is accused with probability 1 − ``confidence``
        at most.
    background
        The other records: ``"orthogonal"`` to the canary, the worst case of the accountant, or ``"opposed"`` to it,
        which finds sums that are divided by their number of records, and batches of a fixed size.
    seed
        ``None`` takes keys from the operating system. A number makes the audit repeatable.

    Returns
    -------
    Audit

    Guarantees
    ----------
    :mod:`dpvi.auditing.bounds` and :mod:`dpvi.auditing.one_run_bound` state what is bounded, and prove it. An audit can
    show that a promise is broken. It cannot show that one holds: it looks at one canary and at a few tests.

    Examples
    --------
    >>> import dpvi
    >>> plan = dpvi.plan(epsilon=1.0, delta=1e-5, sampling_rate=1.0, num_steps=10, clip_norm=1.0)
    >>> found = audit(plan, num_trials=20_000, seed=1)
    >>> found.holds, 0.5 < found.epsilon_lower < 1.0
    (True, True)
    """
    mode = _check(plan, mode, background, confidence)
    if mode == "one_run":
        num_canaries = validation.whole_number("num_trials", num_trials or DEFAULT_CANARIES, _FEWEST)
        guesses = run_once(plan, num_canaries, seed)
        return report_guesses(plan, guesses, confidence, seed)
    if num_trials is None:
        others = {"fits": DEFAULT_TRIALS, "measuring": DEFAULT_MEASURING_TRIALS}
        num_trials = default_trials(plan) if mode == "step" else others[mode]
    num_trials = validation.whole_number("num_trials", num_trials, _FEWEST)
    run: Any = {"step": run_steps, "fits": run_fits, "measuring": run_measuring}[mode]
    return report_trials(plan, run(plan, num_trials, seed, background), mode, confidence, background, seed)


def report_trials(
    plan: Plan, trials: Trials, mode: str, confidence: float, background: str = "orthogonal", seed: int | None = None
) -> Audit:
    """Choose a test on a part of the trials, judge it on the others, and compare with the plan."""
    choosing, judging = judged(trials.scores)
    curves = {releases: trade_off(releases, plan.adjacency) for releases in set(trials.releases.values())}
    promises = {name: curves[releases] for name, releases in trials.releases.items()}
    statistic, threshold = choose_test(choosing, promises, confidence)
    releases, counts = trials.releases[statistic], count(judging[statistic], threshold)
    alpha, beta = counts.upper_rates(confidence)
    share = noise_share(releases, plan.adjacency, alpha, beta)
    return Audit(
        mode=mode,
        plan=plan,
        background=background,
        num_trials=len(trials.scores[statistic][0]),
        num_steps=trials.num_steps,
        releases=releases,
        confidence=confidence,
        statistic=statistic,
        counts={
            "false positives": counts.false_positives,
            "false negatives": counts.false_negatives,
            "judged on each side": counts.num_trials,
        },
        noise_share=share,
        epsilon_lower=_epsilon(plan, share, releases),
        epsilon_of_any_mechanism=epsilon_of_any_mechanism(alpha, beta, plan.delta),
        signal_lower=max(0.0, float(gaussian_signal_of(alpha, beta))),
        points=measured_points(judging[statistic], confidence),
        seed=seed,
    )


def report_guesses(plan: Plan, guesses: Guesses, confidence: float, seed: int | None = None) -> Audit:
    """Compare the guesses of one run with the plan."""
    share = one_run_noise_share(plan, guesses, confidence)
    releases = steps_alone(plan).releases
    lower = _epsilon(plan, share, releases)
    return Audit(
        mode="one_run",
        plan=plan,
        background="orthogonal",
        num_trials=guesses.num_canaries,
        num_steps=plan.num_steps,
        releases=releases,
        confidence=confidence,
        statistic="surest guesses",
        counts={"right": guesses.num_right, "guesses": guesses.num_guesses},
        noise_share=share,
        epsilon_lower=lower,
        epsilon_of_any_mechanism=None,
        signal_lower=gaussian_signal(lower, plan.delta) if lower > 0 else 0.0,
        points=measured_points(guesses.scores, confidence),
        seed=seed,
    )


def _epsilon(plan: Plan, share: float, tried: Sequence[GaussianRelease]) -> float:
    """ε of the plan with ``share`` times the noise of the releases that were ``tried``, and the others as planned."""
    if math.isinf(share):
        return 0.0
    names = {release.name for release in tried}
    others = [release for release in plan.releases if release.name not in names]
    noisier = scaled([release for release in plan.releases if release.name in names], share)
    return plan_epsilon([*noisier, *others], plan.delta, plan.adjacency)


def _check(plan: Any, mode: Any, background: Any, confidence: Any) -> str:
    """The mode, or the default of a plan of this kind."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must come from dpvi.plan(...), got {type(plan).__name__}.")
    if not plan.private:
        raise ValueError("This plan adds no noise and promises nothing, so there is nothing to audit.")
    if plan.clipping is not None:
        raise ValueError(
            "An audit knows the worst canary of plans with one fixed clip norm alone; this plan clips by layers or by "
            "a quantile. Audit the same plan without clipping=."
        )
    mode = ("step" if plan.measuring is None else "measuring") if mode is None else mode
    if plan.rows_per_unit > 1:
        raise ValueError(
            "An audit puts in one row and takes it out, and this plan protects units of several. Audit a plan of the "
            "same noise_multiplier with rows_per_unit=1: it runs the same mechanism."
        )
    for name, value, known in (("mode", mode, MODES), ("background", background, BACKGROUNDS)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}.")
    if (mode == "measuring") != (plan.measuring is not None):
        raise ValueError(
            "A plan that measures takes no steps, and is audited with mode='measuring'; plans of steps with one of the "
            f"other modes, got {mode!r}. Leave mode out for the default of the plan."
        )
    if not 0.5 <= validation.number("confidence", confidence) < 1:
        raise ValueError(f"confidence must lie in [0.5, 1), such as 0.99, got {confidence!r}.")
    checked_guarantee(plan)  # a plan that promises more than it keeps on paper need not run
    return mode
