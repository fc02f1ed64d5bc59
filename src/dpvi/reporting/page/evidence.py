"""What speaks for and against the intervals of a posterior: what its own checks found, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpvi.posterior.metric.metric_posterior import MetricGaussian
from dpvi.posterior.posterior import CAVEATS, Posterior
from dpvi.reporting.page.elements import Markup, element, joined, number, percent

_AGREE = 0.001  # as in metric_posterior, which warns below
_METHODS = {
    "metric": "Sums of scores over all records, measured with noise at a few points, explained by the model.",
    "score": "Sums of scores released by the steps that measured, explained by the model.",
    "stationary": "The settled part of the optimiser's path, widened by the noise that the path shows.",
    "average": "The mean of the settled part of the optimiser's path.",
    "last": "The last point of the optimiser's path, as it is.",
    "na_dpvi": "Every noisy gradient of the run, explained by a model of gradient descent.",
}


class Finding(NamedTuple):
    """One thing that was looked at, and how it turned out: ``"good"``, ``"doubt"`` or ``"bad"``."""

    verdict: str
    title: str
    text: str


def evidence(posterior: Posterior, warned: Sequence[str]) -> Markup:
    """The section about the checks."""
    found = findings(posterior, warned)
    items = [
        element("li", element("b", f"{_MARK[each.verdict]} {each.title}"), each.text, class_=each.verdict)
        for each in found
    ]
    about = _METHODS.get(posterior.method, "")
    parts = [element("p", about)] if about else []
    return joined([*parts, element("ul", *items, class_="findings")])


_MARK = {"good": "✓", "doubt": "!", "bad": "✗"}


def findings(posterior: Posterior, warned: Sequence[str]) -> list[Finding]:
    """Warnings first, then what was checked, then what no check can tell."""
    said = list(dict.fromkeys([*warned, *posterior.notes]))
    found = [Finding("doubt", "A warning", text) for text in said]
    distribution = posterior.distribution
    if isinstance(distribution, MetricGaussian):
        found += _of_answer(distribution)
    elif not posterior.notes and posterior.method in ("stationary", "average", "last"):
        found.append(Finding("good", "The run had settled", "Its path no longer drifted when it ended."))
    caveat = getattr(distribution, "caveat", CAVEATS.get(posterior.method, ""))
    if caveat and caveat not in said:
        found.append(Finding("doubt", "What intervals do not hold", caveat))
    return found


def _of_answer(distribution: MetricGaussian) -> list[Finding]:
    answer = distribution.answer
    agreed = answer.contradiction >= _AGREE
    p_value, wider = f"p\u00a0=\u00a0{number(answer.contradiction, 2)}", number(answer.inflation**0.5, 2)
    agreement = (
        Finding(
            "good",
            "Measurements agree with each other",
            f"Sums of scores at different points differ as much as their noise lets one expect ({p_value}).",
        )
        if agreed
        else Finding(
            "doubt",
            "Measurements contradict each other",
            f"{p_value}; what privacy added to intervals was widened by {wider}.",
        )
    )
    known = answer.curvature_error <= 0.6
    curvature = Finding(
        "good" if known else "doubt",
        "How sharply the data determine the fit was measured"
        if known
        else "The budget did not reach for the curvature",
        f"The relative error of the curvature is {percent(answer.curvature_error)}.",
    )
    share = float(np.max(answer.doubted, initial=0.0))
    clipping = Finding(
        "good" if share <= 0.15 else "doubt",
        "Clipping is accounted for",
        f"At most {percent(share)} of what privacy added to an interval is doubt about what clipping took away.",
    )
    return [agreement, curvature, clipping]
