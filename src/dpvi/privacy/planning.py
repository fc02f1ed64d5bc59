"""Plans: from a budget to a complete, frozen description of what will be released, and back again to check it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dpvi.declared import validation
from dpvi.declared.clipping import Clipping, PerLayer
from dpvi.declared.columns import Column, checked_columns
from dpvi.declared.guarantee import Guarantee
from dpvi.declared.measuring import Measuring
from dpvi.declared.plan import GRADIENTS, GaussianRelease, Plan
from dpvi.declared.schedule import Schedule
from dpvi.declared.validation import PrivacyWarning
from dpvi.privacy import accounting
from dpvi.privacy.calibration import release_noise_multiplier
from dpvi.privacy.gaussian import gaussian_signal, limit_signal
from dpvi.privacy.measuring import (
    checked_measuring,
    histograms,
    measured_columns,
    measuring_releases,
    refuse_measuring,
)

LARGE_EPSILON = 10.0
_MADE_HERE: set[Plan] = set()  # plans whose claims were computed by this process
_ON_TRUST = "The plan's ε was not recomputed here, where the accountant is not installed, but taken from its file."
_NO_ACCOUNTANT = "no accountant: nothing is protected"
_COVARIATE_SHARE = 0.05
_SLACK = 1e-6  # relative; room for another machine's rounding when a stored plan is checked


def plan(
    epsilon: float | None = None,
    delta: float | None = None,
    sampling_rate: float | None = None,
    num_steps: int | None = None,
    clip_norm: float | None = None,
    *,
    noise_multiplier: float | None = None,
    adjacency: str = "add_remove",
    other_releases: Sequence[GaussianRelease] = (),
    num_records: int | None = None,
    covariates: Sequence[Column] | None = None,
    covariate_share: float | None = None,
    schedule: Schedule | None = None,
    clipping: Clipping | None = None,
    measuring: Measuring | None = None,
    unit: str = "one record",
    rows_per_unit: int = 1,
) -> Plan:
    """Plan a private run: the noise that a budget needs, or the budget that a noise spends.

    Parameters
    ----------
    epsilon, noise_multiplier
        Exactly one of the two. With ``epsilon`` the noise on the gradients is calibrated so that everything in the plan
        together is (ε, δ)-private; with ``noise_multiplier`` (relative to the clip norm) ε is computed.
    delta
        The probability with which the bound may fail; choose it well below one over the number of records.
    sampling_rate, num_steps, clip_norm
        κ in (0, 1], T ≥ 1 and C > 0 of the gradient steps. Leave out all three for a plan that measures: a run then
        takes no steps but asks a handful of questions of all records, each chosen from the answers before it.
    adjacency
        ``"add_remove"`` or ``"substitute"``.
    other_releases
        Further Gaussian releases of the same plan (a histogram, a quantile), composed with the gradients.
    num_records
        Only when the number of records is public. Leave it out otherwise: under add/remove it is private. With it,
        the statement is about blanking a record, not about removing it: the number stays the same.
    covariates
        The columns of what the model conditions on, declared: :class:`dpvi.Numeric`, ``Levels``, ``OneHot``,
        ``Constant``. One noisy histogram of each is released, which is all that the score posterior needs to know of
        covariates; their totals give the number of records. An empty sequence releases the number of records alone.
    covariate_share
        The share of the budget (of the squared signal) that histograms cost, by default 0.05.
    schedule
        Which steps move and which measure. Measuring is planned by default where the number of records will be known:
        where it is public, or ``covariates`` are declared. ``Schedule(move_share=1)`` plans none.
    clipping
        ``dpvi.PerLayer({"encoder*": 1.0, "*": 2.0})`` clips groups of parameters apart; leave ``clip_norm`` out.
        ``dpvi.QuantileClipping()`` lets the clip norm follow a quantile, from ``clip_norm`` on. Neither costs more than
        ``noise_multiplier`` says. Nothing is then measured: the score posterior needs one fixed clip norm.
    measuring
        How a plan that measures divides its budget; see :class:`dpvi.Measuring`. It needs the number of records: where
        it is not public, and no columns are declared, the plan pays for it.
    unit
        Who is protected, as a noun phrase.
    rows_per_unit
        The most rows that one unit (a patient with several visits) has in the data; the plan then protects all of them
        together, with about so many times the noise. That no unit has more is the custodian's to know: a run does not
        look. Several rows are not possible for sampled steps under ``"substitute"``. Where a plan has
        ``other_releases``, these are taken to be of the same units.

    Returns
    -------
    Plan

    Guarantees
    ----------
    Releasing everything the plan describes, with Poisson sampling at the stated rates, clipping and noise as stated, is
    (``plan.epsilon``, ``plan.delta``)-differentially private under ``adjacency``. All input is checked before any work.

    Examples
    --------
    >>> agreed = plan(epsilon=1.0, delta=1e-5, sampling_rate=0.1, num_steps=10_000, clip_norm=3.0)
    >>> round(agreed.noise_multiplier, 2), round(agreed.noise_scale, 1)
    (37.33, 112.0)
    >>> plan(delta=1e-5, sampling_rate=1.0, num_steps=1, clip_norm=1.0, noise_multiplier=4.0).epsilon < 1
    True

    With a histogram of one column, which costs the gradients a little:

    >>> from dpvi.declared.columns import Constant, Numeric
    >>> columns = [Numeric(-3, 3), Constant()]
    >>> shared = plan(1.0, 1e-5, sampling_rate=0.1, num_steps=10_000, clip_norm=3.0, covariates=columns)
    >>> round(shared.noise_multiplier, 1), round(shared.release("histograms").noise_multiplier, 1)
    (38.3, 16.7)

    A plan that measures, and pays for the number of records:

    >>> [release.name for release in plan(epsilon=1.0, delta=1e-6).releases]
    ['gradients', 'histograms']

    One that protects people with up to three rows each:

    >>> people = plan(epsilon=1.0, delta=1e-6, unit="one person", rows_per_unit=3)
    >>> round(people.noise_multiplier / plan(epsilon=1.0, delta=1e-6).noise_multiplier, 6)
    3.0
    >>> people.guarantee.change
    'adding or removing one person with at most 3 rows'
    """
    if (epsilon is None) == (noise_multiplier is None):
        raise ValueError(
            "Give exactly one of epsilon (the noise is calibrated) and noise_multiplier (epsilon is computed)."
        )
    adjacency, delta = validation.adjacency(adjacency), validation.delta(delta)
    if not isinstance(other_releases, Sequence) or not all(isinstance(r, GaussianRelease) for r in other_releases):
        raise TypeError(f"other_releases must be a sequence of GaussianRelease, got {other_releases!r}.")
    rows_per_unit = validation.whole_number("rows_per_unit", rows_per_unit)
    other_releases = _of_units(other_releases, rows_per_unit)
    if (sampling_rate, num_steps, clip_norm) == (None, None, None) and not isinstance(clipping, PerLayer):
        measuring = checked_measuring(measuring, covariate_share, epsilon, schedule, clipping)
        covariates = measured_columns(covariates, num_records)
        assert epsilon is not None
        own = measuring_releases(epsilon, delta, adjacency, measuring, covariates, other_releases, rows_per_unit)
        gradients, other_releases = own[0], (*own[1:], *other_releases)
    else:
        refuse_measuring(measuring)
        multiplier = 1.0 if noise_multiplier is None else validation.noise_multiplier(noise_multiplier)
        clip_norm = validation.clip_norm(_stated_clip_norm(clip_norm, clipping))
        gradients = _gradients(sampling_rate, num_steps, multiplier, clip_norm, rows_per_unit)
        if covariates is not None:
            columns = covariates = checked_columns(covariates)
            share = _COVARIATE_SHARE if covariate_share is None else covariate_share
            signal = _histogram_signal(epsilon, delta, gradients, adjacency, share)
            other_releases = (*other_releases, histograms(columns, signal, adjacency, rows_per_unit))
        if schedule is None and clipping is None and (covariates is not None or num_records is not None):
            schedule = _default_schedule(gradients.count)
    # A provisional plan checks every field, the other releases included, before anything is computed.
    budget = LARGE_EPSILON if epsilon is None else validation.epsilon(epsilon)
    draft = Plan(
        epsilon=budget,
        delta=delta,
        releases=(gradients, *other_releases),
        accountant=accounting.accountant_name((gradients, *other_releases)),
        adjacency=adjacency,
        unit=unit,
        num_records=num_records,
        covariates=covariates,
        schedule=schedule,
        clipping=clipping,
        measuring=measuring,
    )
    finished = _with_epsilon(draft) if epsilon is None else _calibrated(draft)
    _warn_about_epsilon(finished.epsilon)
    _MADE_HERE.add(finished)
    return finished


def plan_nonprivate(
    sampling_rate: float, num_steps: int, clip_norm: float | None = None, clipping: Clipping | None = None
) -> Plan:
    """Plan a run without noise: the named way to switch privacy off, and its guarantee says so.

    Examples
    --------
    >>> print(plan_nonprivate(0.1, 100).guarantee)
    NOT PRIVATE: no noise was planned, so nothing computed from this run protects the records.
    """
    stated = _stated_clip_norm(clip_norm, clipping)
    clip_norm = math.inf if clipping is None and stated in (None, math.inf) else validation.clip_norm(stated)
    gradients = _gradients(sampling_rate, num_steps, 0.0, clip_norm)
    return Plan(epsilon=math.inf, delta=0.0, releases=(gradients,), accountant=_NO_ACCOUNTANT, clipping=clipping)


def verify(plan: Plan) -> float:
    """Recompute what a plan spends and refuse it when it promises more than it keeps.

    Returns
    -------
    float
        ε of the plan's releases at its δ, by the accountant; infinite for a plan that promises nothing.

    Raises
    ------
    ValueError
        When the releases spend more than ``plan.epsilon``, or the accountant that the plan names is another one.

    Guarantees
    ----------
    If it returns, the statement ``plan.guarantee`` is true of the releases the plan lists (up to 1e-6 relative in ε,
    for rounding on another machine).

    Examples
    --------
    >>> stored = plan(epsilon=1.0, delta=1e-5, sampling_rate=1.0, num_steps=10, clip_norm=1.0)
    >>> round(verify(stored), 6)
    1.0
    """
    if not plan.private:
        return math.inf
    spent = accounting.plan_epsilon(plan.releases, plan.delta, plan.adjacency)
    if spent > plan.epsilon * (1 + _SLACK):
        raise ValueError(
            f"The plan claims epsilon = {plan.epsilon:.6g} at delta = {plan.delta:.3g}, but its releases spend "
            f"{spent:.6g}. The file was changed or made by other means; make a new plan with dpvi.plan(...)."
        )
    accountant = accounting.accountant_name(plan.releases)
    if plan.accountant != accountant:
        raise ValueError(
            f"The plan says that its epsilon was computed by {plan.accountant!r}, but of such releases it is computed "
            f"by {accountant!r}. The file was changed or made by other means; make a new plan with dpvi.plan(...)."
        )
    return spent


def checked_guarantee(plan: Plan) -> Guarantee:
    """The plan's guarantee, once what it claims has been recomputed: here and now, unless this process made the plan.

    A stored plan may have been changed on the way. Where the accountant is not installed, the guarantee says that its ε
    was taken on trust.
    """
    if plan.private and plan not in _MADE_HERE:
        try:
            verify(plan)
        except ImportError:
            return plan.guarantee.assuming(_ON_TRUST)
        _MADE_HERE.add(plan)
    return plan.guarantee


def warn_about_delta(plan: Plan, num_records: int) -> None:
    """Warn the custodian, on the console, when δ is not below one over the number of records.

    That there is a warning tells one bit about a number that is private, so it is marked unless the plan declares the
    number public; the number itself is not in it. Say nothing of it in a result.
    """
    if num_records > 0 and plan.delta >= 1 / num_records:
        mark = "SENSITIVE (tells of the number of records, do not share): " if plan.num_records is None else ""
        warnings.warn(
            f"{mark}delta = {plan.delta:g} is at least one over the number of records. A mechanism that publishes a "
            "random record in full satisfies such a delta; choose one well below it.",
            PrivacyWarning,
            stacklevel=4,  # the line that called fit
        )


def _stated_clip_norm(clip_norm: float | None, clipping: Any) -> float | None:
    """The clip norm as given, or the one that layers combine to."""
    if not isinstance(clipping, PerLayer):
        return clip_norm
    if clip_norm is not None:
        raise ValueError(
            f"PerLayer states a clip norm for every layer, which combine to {clipping.clip_norm:.6g}; leave clip_norm "
            f"out, got {clip_norm!r}."
        )
    return clipping.clip_norm


def _of_units(releases: Sequence[GaussianRelease], rows_per_unit: int) -> tuple[GaussianRelease, ...]:
    """The same releases for units of so many rows, unless they were stated for others, which the plan then refuses."""
    return tuple(
        replace(release, rows_per_unit=rows_per_unit) if release.rows_per_unit == 1 else release for release in releases
    )


def _gradients(
    sampling_rate: Any, num_steps: Any, multiplier: float, clip_norm: float, rows_per_unit: int = 1
) -> GaussianRelease:
    return GaussianRelease(
        name=GRADIENTS,
        sampling_rate=validation.sampling_rate(sampling_rate),
        count=validation.num_steps(num_steps),
        noise_multiplier=multiplier,
        clip_norm=clip_norm,
        rows_per_unit=rows_per_unit,
    )


def _histogram_signal(
    epsilon: float | None, delta: float, gradients: GaussianRelease, adjacency: str, share: float
) -> float:
    """μ of the histograms: their share of the squared signal of the whole plan, by its Gaussian limit.

    The limit only divides the budget; what is promised is computed from the releases by the accountant.
    """
    if not 0 < validation.number("covariate_share", share) < 1:
        raise ValueError(f"covariate_share must lie strictly between 0 and 1, got {share!r}.")
    if epsilon is not None:
        return math.sqrt(share) * gaussian_signal(validation.epsilon(epsilon), delta)
    return math.sqrt(share / (1 - share)) * limit_signal([gradients], adjacency)


def _default_schedule(num_steps: int) -> Schedule | None:
    """The default schedule, or none where the steps are too few for it."""
    schedule = Schedule()
    return schedule if num_steps >= 10 * schedule.num_blocks else None


def _calibrated(draft: Plan) -> Plan:
    gradients, *others = draft.releases
    multiplier = release_noise_multiplier(
        draft.epsilon,
        draft.delta,
        gradients.sampling_rate,
        gradients.count,
        draft.adjacency,
        others,
        draft.rows_per_unit,
    )
    return replace(draft, releases=(replace(gradients, noise_multiplier=multiplier), *others))


def _with_epsilon(draft: Plan) -> Plan:
    return replace(draft, epsilon=accounting.plan_epsilon(draft.releases, draft.delta, draft.adjacency))


def _warn_about_epsilon(epsilon: float) -> None:
    if epsilon > LARGE_EPSILON:
        warnings.warn(
            f"epsilon = {epsilon:g} is above {LARGE_EPSILON:g}: one record may change the odds of an outcome by a "
            "factor of exp(epsilon), more than 20,000, so the formal guarantee says little. "
            "Aim for 1 or below where the data allow it.",
            PrivacyWarning,
            stacklevel=3,
        )
