"""Coefficients as a table and a forest plot in one: every row has its numbers and its interval on a common axis.

Rows are plain HTML with all numbers in them, so the page says the same without a script, on paper and aloud. The
script chooses, sorts and rescales rows; it reads what stands in ``data-`` attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpvi.reporting.page.elements import Markup, element, number, percent

_MARGIN = 0.04  # of the axis, on either side
_TICKS = 5
_NORMAL = 1.959964  # of a 95 % interval


class Coefficient(NamedTuple):
    """One scalar parameter, and the two parts of its standard deviation where they are known."""

    name: str
    mean: float
    sd: float
    lower: float
    upper: float
    sampling_sd: float | None = None
    privacy_sd: float | None = None
    above_zero: float | None = None  # the probability, where the parameter may have either sign
    apart: bool = False  # in numbers only: an intercept, beside which nothing else would be seen

    @property
    def inner(self) -> tuple[float, float] | None:
        """The interval that the same model would have without privacy, around the same estimate."""
        if self.sampling_sd is None:
            return None
        half = _NORMAL * self.sampling_sd
        return max(self.lower, self.mean - half), min(self.upper, self.mean + half)

    @property
    def privacy_share(self) -> float | None:
        """The part of the variance that privacy added."""
        return None if self.privacy_sd is None or not self.sd else (self.privacy_sd / self.sd) ** 2


class Estimates(NamedTuple):
    """A table of coefficients with intervals of one ``probability``; ``title`` and ``note`` where there are several."""

    rows: Sequence[Coefficient]
    probability: float
    title: str = ""
    note: str = ""
    ratios: bool = True  # whether exp(coefficient) means anything


def forest(estimates: Estimates, ratio: str = "") -> Markup:
    """The table with its controls; ``ratio`` is what exp(coefficient) is called, such as "odds ratio", or empty."""
    coefficients, probability = estimates.rows, estimates.probability
    bounds = axis_bounds([(each.lower, each.upper) for each in coefficients if not each.apart])
    level = f"{100 * probability:g} % interval"
    parted = any(each.sampling_sd is not None for each in coefficients)
    rows = [_row(index, each, bounds, parted) for index, each in enumerate(coefficients)]
    caption = element("caption", f"Estimates with {level}s" + (" and the two parts of their width" if parted else ""))
    head = element("thead", element("tr", *_heads(level, bounds, parted)))
    table = element("table", caption, head, element("tbody", *rows), class_="forest")
    name = estimates.title or "Estimates"
    return element(
        "div",
        element("h3", estimates.title) if estimates.title else None,
        element("p", estimates.note, class_="note") if estimates.note else None,
        _controls(len(coefficients), ratio if estimates.ratios else ""),
        _legend() if parted else None,
        element("div", table, class_="wide", tabindex="0", role="region", aria_label=name),
        element("p", "Choose a parameter for more about it.", class_="detail", aria_live="polite"),
    )


def _heads(level: str, bounds: tuple[float, float], parted: bool) -> list[Markup]:
    heads = [
        element("th", "Parameter", scope="col"),
        element("th", "Estimate", scope="col", class_="number", data_head="estimate"),
        element("th", level, scope="col", class_="number"),
        element("th", _axis(bounds), scope="col", class_="strip", aria_label=f"{level}, drawn"),
    ]
    if parted:
        heads += [
            element("th", "Sampling", scope="col", class_="number", title="standard deviation without privacy"),
            element("th", "Privacy", scope="col", class_="number", title="standard deviation that privacy added"),
        ]
    return heads


def axis_bounds(intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Ends of an axis that shows all intervals and zero, with a margin."""
    low = min([0.0, *(each[0] for each in intervals)])
    high = max([0.0, *(each[1] for each in intervals)])
    width = (high - low) or 1.0
    return low - _MARGIN * width, high + _MARGIN * width


def ticks(low: float, high: float, count: int = _TICKS) -> list[float]:
    """Round numbers between two ends, about so many.

    Examples
    --------
    >>> ticks(-1.2, 0.9)
    [-1.0, -0.5, 0.0, 0.5]
    """
    raw = (high - low) / count
    size = 10.0 ** np.floor(np.log10(raw))
    step = float(size * min((1, 2, 5, 10), key=lambda each: abs(each * size - raw)))
    first, last = int(np.ceil(low / step)), int(np.floor(high / step))
    return [round(index * step, 12) + 0.0 for index in range(first, last + 1)]


def _row(index: int, each: Coefficient, bounds: tuple[float, float], parted: bool) -> Markup:
    inner = each.inner
    cells = [
        element("th", element("button", each.name, type="button", class_="name"), scope="row"),
        element("td", number(each.mean), class_="number", data_cell="mean"),
        element("td", f"{number(each.lower)} to {number(each.upper)}", class_="number", data_cell="interval"),
        element("td", None if each.apart else _strip(each, bounds), class_="strip"),
    ]
    if parted:
        cells += [
            element("td", "–" if sd is None else number(sd), class_="number")
            for sd in (each.sampling_sd, each.privacy_sd)
        ]
    return element(
        "tr",
        *cells,
        data_index=index,
        data_name=each.name,
        data_mean=repr(each.mean),
        data_lower=repr(each.lower),
        data_upper=repr(each.upper),
        data_inner=None if inner is None else f"{inner[0]!r} {inner[1]!r}",
        data_apart=each.apart,
        data_signed=each.above_zero is not None,
        data_about=_about(each),
    )


def _about(each: Coefficient) -> str:
    parts = [f"{number(each.mean)}, from {number(each.lower)} to {number(each.upper)}."]
    if each.above_zero is not None:
        parts.append(f"The probability that it is above zero is {percent(each.above_zero)}.")
    share, inner = each.privacy_share, each.inner
    if share is not None and inner is not None:
        parts.append(
            f"Privacy accounts for {percent(share)} of the variance; without privacy the interval around this estimate "
            f"would go from {number(inner[0])} to {number(inner[1])}."
        )
    return " ".join(parts)


def _strip(each: Coefficient, bounds: tuple[float, float]) -> Markup:
    """One interval: a line for all of it, a bar for the part that is there without privacy, a dot for the estimate."""

    def at(value: float) -> str:
        return place(value, bounds)

    inner = each.inner
    shapes = [
        element("line", class_="zero", x1=at(0), x2=at(0), y1="0", y2="100%"),
        element("line", class_="whole", x1=at(each.lower), x2=at(each.upper), y1="50%", y2="50%"),
        inner and element("line", class_="inner", x1=at(inner[0]), x2=at(inner[1]), y1="50%", y2="50%"),
        element("circle", class_="dot", cx=at(each.mean), cy="50%", r="3"),
    ]
    said = f"{each.name}: {number(each.mean)}, {number(each.lower)} to {number(each.upper)}"
    return element("svg", element("title", said), *shapes, class_="interval", role="img")


def _axis(bounds: tuple[float, float]) -> Markup:
    marks = [
        element("text", number(each), x=place(each, bounds), y="70%", text_anchor="middle") for each in ticks(*bounds)
    ]
    return element("svg", *marks, class_="axis", aria_hidden="true")


def place(value: float, bounds: tuple[float, float]) -> str:
    """Where a value lies between two ends, in per cent."""
    return f"{100 * (value - bounds[0]) / (bounds[1] - bounds[0]):.3f}%"


def _legend() -> Markup:
    def key(name: str, words: str) -> Markup:
        return element("li", element("span", class_=f"key {name}"), words)

    return element(
        "ul",
        key("inner", "sampling: the width that the same model has without privacy"),
        key("whole", "with what privacy added"),
        class_="legend",
    )


def _controls(count: int, ratio: str) -> Markup:
    orders = [
        ("model", "as in the model"),
        ("size", "largest first"),
        ("certain", "furthest from zero"),
        ("name", "by name"),
    ]
    parts = [
        element(
            "label",
            "Show ",
            element("input", type="search", data_control="filter", placeholder="all, or part of a name"),
        ),
        element(
            "label",
            "Order ",
            element("select", *(element("option", text, value=value) for value, text in orders), data_control="order"),
        ),
    ]
    if ratio:
        parts.append(
            element("label", element("input", type="checkbox", data_control="ratio"), f" as {ratio}s, log scale")
        )
    shown = element("output", f"{count} of {count} shown", data_control="shown", aria_live="polite")
    return element("form", *parts, shown, class_="controls", data_ratio=ratio, aria_label="Choose what the table shows")
