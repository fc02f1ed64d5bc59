"""What a result promises, in words for people whose records it is about, and what its budget was spent on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpvi.declared.guarantee import Guarantee
from dpvi.declared.plan import GRADIENTS, HISTOGRAMS, GaussianRelease, Plan
from dpvi.release.trace import Trace
from dpvi.reporting.page.elements import Markup, element, joined, number, percent, table

_ACCUSED = 0.05  # of those who are not in the data, by a test somebody might make
_KINDS = (
    ("how columns go together", "second moments of the covariates"),
    ("how sharply the fit is determined", "the curvature of the log likelihood"),
    ("how far single records may pull", "counts of records by the length of their score"),
    ("where the fit is", "sums of scores"),
)


def promise(guarantee: Guarantee) -> Markup:
    """The section about the guarantee."""
    if not guarantee.private:
        parts = [element("p", guarantee.warning, class_="bad-news")]
        if guarantee.planned is not None:
            parts.append(element("p", f"Without this weakness it would be {guarantee.planned}"))
        return joined(parts)
    lead = (
        "Whoever reads this page, or computes anything from it, learns nearly the same whether or not the data held "
        f"{guarantee.unit} more or less."
        if guarantee.adjacency == "add_remove" and not guarantee.fixed_size
        else f"Whoever reads this page, or computes anything from it, learns nearly the same after {guarantee.change}."
    )
    assumed = [
        element("h3", "What this rests on"),
        element("ul", *(element("li", each) for each in guarantee.assumptions)),
    ]
    stated = element("details", element("summary", "The statement in full"), element("p", str(guarantee)))
    return joined([element("p", lead, class_="lead"), _consequences(guarantee), *assumed, stated])


def _consequences(guarantee: Guarantee) -> Markup:
    epsilon, delta = guarantee.epsilon, guarantee.delta
    believed = 1 / (1 + math.exp(-epsilon))
    rows = guarantee.rows_per_unit
    unit = guarantee.unit if rows == 1 else f"{guarantee.unit}, with up to {rows} rows"
    return element(
        "ul",
        element(
            "li",
            f"Somebody who thinks it as likely as not that the data hold a certain person can become at most "
            f"{percent(believed)} sure of it: ε = {number(epsilon, 4)} bounds by how much any belief may change.",
        ),
        element(
            "li",
            f"A test that wrongly accuses {percent(_ACCUSED)} of those who are not in the data finds at most "
            f"{percent(_largest_power(epsilon, delta))} of those who are.",
        ),
        element("li", f"With a probability of at most δ = {number(delta)} more than that may come out."),
        element("li", f"What is protected: {unit}. The bound compares the data before and after {guarantee.change}."),
        element(
            "li",
            "What is not: anything that holds of people in general. A conclusion about people like somebody may "
            "concern them whether or not they took part.",
        ),
    )


def _largest_power(epsilon: float, delta: float) -> float:
    """The most that any test of (ε, δ)-private releases can find at the false positive rate above."""
    factor = math.exp(min(epsilon, 700.0))
    return min(1.0, factor * _ACCUSED + delta, 1 - (1 - delta - _ACCUSED) / factor)


def spending(plan: Plan, trace: Trace) -> Markup:
    """The section about what was asked and spent."""
    if not plan.private:
        return element("p", "No noise was planned, so there is no budget that could have been spent.")
    weights = np.array([_signal(release) for release in plan.releases])
    shares = weights / weights.sum() if weights.sum() > 0 else weights
    rows = [
        [
            _words(release, plan),
            _taking_part(release),
            _times(release, plan),
            number(release.noise_multiplier),
            percent(s),
        ]
        for release, s in zip(plan.releases, shares, strict=True)
    ]
    heads = ["Released", "Each record takes part", "Times", "Noise multiplier", "Share of the budget"]
    parts = [
        element(
            "p", f"Asked for: ε = {number(plan.epsilon, 4)} at δ = {number(plan.delta)}, for everything below together."
        ),
        _bar([(_words(release, plan), float(s)) for release, s in zip(plan.releases, shares, strict=True)]),
        table("What was released about the records", heads, rows, numbers=(2, 3, 4)),
    ]
    if trace.measurements is not None:
        parts.append(_questions(trace.measurements))
    note = "Shares are of the squared signal, which adds up over releases: twice the share is √2 times the precision."
    return joined([*parts, element("p", note, class_="note")])


def _questions(found: Any) -> Markup:
    """The questions of a run without steps, by kind."""
    spent = [
        (words, detail, int(units.sum()), len(units))
        for (words, detail), units in zip(
            _KINDS,
            (found.moments_units, found.curvature_units, found.norms_units, found.scores_units),
            strict=True,
        )
        if len(units)
    ]
    total = sum(units for _, _, units, _ in spent)
    rows = [[words, detail, str(times), percent(units / total)] for words, detail, units, times in spent]
    return joined(
        [
            element("h3", "What the run asked of all records"),
            _bar([(words, units / total) for words, _, units, _ in spent]),
            table("Questions of the run", ["To learn", "It asked for", "Questions", "Share"], rows, numbers=(2, 3)),
        ]
    )


def _bar(shares: list[tuple[str, float]]) -> Markup | None:
    if len(shares) < 2:
        return None
    parts = [
        element(
            "span", class_=f"share{index % 6}", style=f"width:{100 * share:.2f}%", title=f"{name}: {percent(share)}"
        )
        for index, (name, share) in enumerate(shares)
    ]
    keys = [
        element("li", element("span", class_=f"swatch share{index % 6}"), f"{name}, {percent(share)}")
        for index, (name, share) in enumerate(shares)
    ]
    return joined([element("div", *parts, class_="shares", aria_hidden="true"), element("ul", *keys, class_="legend")])


def _signal(release: GaussianRelease) -> float:
    """The squared signal of a release, by the central limit where records are sampled."""
    if not release.noise_multiplier:
        return 0.0
    inverse = release.noise_multiplier**-2.0
    rate = release.sampling_rate
    return release.count * (inverse if rate == 1 else rate**2 * math.expm1(min(inverse, 700.0)))


def _words(release: GaussianRelease, plan: Plan) -> str:
    if release.name == GRADIENTS:
        return "Questions of the run" if plan.measuring is not None else "Steps of the fit"
    if release.name == HISTOGRAMS:
        return "Counts of the declared columns" if plan.covariates else "The number of records"
    return release.name


def _taking_part(release: GaussianRelease) -> str:
    return "always" if release.sampling_rate == 1 else f"with probability {number(release.sampling_rate)}"


def _times(release: GaussianRelease, plan: Plan) -> str:
    units = release.name == GRADIENTS and plan.measuring is not None
    return f"{release.count:,}{' units' if units else ''}"
