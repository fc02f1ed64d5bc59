"""Pictures in SVG for pages: curves with bands, bars, a matrix of shades. Each says in words what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpvi.reporting.page.elements import Markup, element, joined, number, table
from dpvi.reporting.page.forest import ticks

_WIDTH, _HEIGHT = 520, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 14, 40
_MOST_LABELS = 8  # under bars
_LETTER = 7.5  # the width of one


class Effect(NamedTuple):
    """What a model says of its response as one predictor changes: a curve, or a point for every level.

    ``x`` holds numbers or the names of levels; ``inner_lower`` and ``inner_upper`` the interval without privacy.
    """

    title: str
    x_label: str
    y_label: str
    x: tuple[float | str, ...]
    mean: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    inner_lower: tuple[float, ...] = ()
    inner_upper: tuple[float, ...] = ()


class _Frame(NamedTuple):
    """Maps values to places in a picture."""

    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        return round(_LEFT + (value - self.x[0]) / (self.x[1] - self.x[0]) * (_WIDTH - _LEFT - _RIGHT), 2)

    def up(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (value - self.y[0]) / (self.y[1] - self.y[0]) * (_HEIGHT - _TOP - _BOTTOM), 2)


def effect_figure(effect: Effect) -> Markup:
    """A figure with its numbers in a table below, folded away."""
    levels = any(isinstance(each, str) for each in effect.x)
    frame = _Frame(
        (-0.5, len(effect.x) - 0.5) if levels else _ends([float(each) for each in effect.x], 0.0),
        _ends([*effect.lower, *effect.upper], 0.05),
    )
    places = [float(index) if levels else float(each) for index, each in enumerate(effect.x)]
    names = [each if isinstance(each, str) else number(each, 4) for each in effect.x]
    every = max(1, -(-len(places) // _MOST_LABELS))
    named = list(zip(places, names, strict=True))[::every]
    marks = named if levels else [(each, number(each)) for each in ticks(*frame.x)]
    shapes = (_points if levels else _curve)(effect, places, frame)
    read = [f"{name}: {number(m)} ({number(a)} to {number(b)})" for name, m, a, b in _rows(effect, names)]
    picture = _picture(
        frame, marks, effect.x_label, shapes, f"{effect.title}. {_told(effect, names)}", places=places, read=read
    )
    numbers = table(
        effect.title,
        [effect.x_label, effect.y_label, "from", "to"],
        [[name, *map(number, rest)] for name, *rest in _rows(effect, names)],
        numbers=(1, 2, 3),
    )
    return element(
        "figure",
        element("figcaption", effect.title, element("span", effect.y_label, class_="unit")),
        picture,
        element("p", class_="readout", aria_live="polite"),
        element("details", element("summary", "As numbers"), numbers),
        class_="chart",
    )


def bars_figure(title: str, labels: Sequence[str], series: Sequence[tuple[str, np.ndarray]], note: str = "") -> Markup:
    """Shares side by side, one colour for each series, with the numbers below, folded away."""
    tallest = max(float(values.max()) for _, values in series) or 1.0
    frame = _Frame((0, len(labels)), (0, 1.05 * tallest))
    base, width = frame.up(0), 0.8 / len(series)
    shapes = []
    for place, (name, values) in enumerate(series):
        for index, (label, value) in enumerate(zip(labels, values, strict=True)):
            left, right = (frame.across(index + 0.1 + width * shift) for shift in (place, place + 1))
            top = frame.up(float(value))
            said = element("title", f"{name}, {label}: {100 * value:.1f} %")
            shapes.append(
                element(
                    "rect",
                    said,
                    class_=f"bar bar{place}",
                    x=left,
                    y=top,
                    width=round(max(right - left - 0.5, 0.5), 2),
                    height=round(base - top, 2),
                )
            )
    every = max(1, -(-len(labels) // _MOST_LABELS))
    marks = [(index + 0.5, label) for index, label in enumerate(labels) if index % every == 0]
    told = f"{title}: shares of {' and '.join(name for name, _ in series)}."
    numbers = table(
        title,
        ["", *(name for name, _ in series)],
        [[label, *(f"{100 * values[index]:.1f} %" for _, values in series)] for index, label in enumerate(labels)],
        numbers=range(1, len(series) + 1),
    )
    return element(
        "figure",
        element("figcaption", title, element("span", note, class_="unit") if note else None),
        _picture(frame, marks, "", shapes, told, shares=True),
        element("details", element("summary", "As numbers"), numbers),
        class_="chart",
    )


def matrix_figure(title: str, names: Sequence[str], values: np.ndarray) -> Markup:
    """A symmetric matrix of shares from 0 to 1 as a table whose cells are shaded: readable with and without colour."""
    rows = []
    for index, name in enumerate(names):
        cells = [
            element(
                "td",
                f"{values[index, other]:.2f}" if other < index else "",
                style=f"--share:{values[index, other]:.3f}" if other < index else None,
                class_="shade" if other < index else "empty",
                title=f"{name} and {names[other]}: {values[index, other]:.2f}" if other < index else None,
            )
            for other in range(len(names) - 1)
        ]
        if index:
            rows.append(element("tr", element("th", name, scope="row"), *cells))
    heads = [element("th", element("span", name), scope="col", class_="steep") for name in names[:-1]]
    written = element(
        "table",
        element("caption", title),
        element("thead", element("tr", element("td"), *heads)),
        element("tbody", *rows),
        class_="matrix",
    )
    return element("div", written, class_="wide", tabindex="0", role="region", aria_label=title)


def _rows(effect: Effect, names: Sequence[str]) -> list[tuple[str, float, float, float]]:
    return list(zip(names, effect.mean, effect.lower, effect.upper, strict=True))


def _told(effect: Effect, names: Sequence[str]) -> str:
    """What somebody hears who does not see the picture."""
    first, last = _rows(effect, names)[0], _rows(effect, names)[-1]
    return (
        f"{effect.y_label} is {number(first[1])} ({number(first[2])} to {number(first[3])}) at {first[0]} and "
        f"{number(last[1])} ({number(last[2])} to {number(last[3])}) at {last[0]}."
    )


def _curve(effect: Effect, places: Sequence[float], frame: _Frame) -> list[Markup]:
    def band(lower: Sequence[float], upper: Sequence[float], kind: str) -> Markup:
        there = [f"{frame.across(x)},{frame.up(y)}" for x, y in zip(places, upper, strict=True)]
        back = [f"{frame.across(x)},{frame.up(y)}" for x, y in zip(places, lower, strict=True)][::-1]
        return element("path", d=f"M{' L'.join([*there, *back])} Z", class_=f"band {kind}")

    line = " L".join(f"{frame.across(x)},{frame.up(y)}" for x, y in zip(places, effect.mean, strict=True))
    shapes = [band(effect.lower, effect.upper, "whole")]
    if effect.inner_lower:
        shapes.append(band(effect.inner_lower, effect.inner_upper, "inner"))
    return [*shapes, element("path", d=f"M{line}", class_="curve")]


def _points(effect: Effect, places: Sequence[float], frame: _Frame) -> list[Markup]:
    shapes = []
    for index, place in enumerate(places):
        x = frame.across(place)
        ends = [("whole", effect.lower[index], effect.upper[index])]
        if effect.inner_lower:
            ends.append(("inner", effect.inner_lower[index], effect.inner_upper[index]))
        shapes += [element("line", class_=kind, x1=x, x2=x, y1=frame.up(a), y2=frame.up(b)) for kind, a, b in ends]
        shapes.append(element("circle", class_="dot", cx=x, cy=frame.up(effect.mean[index]), r="4.5"))
    return shapes


def _picture(
    frame: _Frame,
    marks: Sequence[tuple[float, str]],
    x_label: str,
    shapes: Sequence[Markup],
    told: str,
    *,
    shares: bool = False,
    places: Sequence[float] = (),
    read: Sequence[str] = (),
) -> Markup:
    left, bottom = _LEFT, _HEIGHT - _BOTTOM
    grid = []
    for each in ticks(*frame.y):
        y = frame.up(each)
        grid.append(element("line", class_="grid", x1=left, x2=_WIDTH - _RIGHT, y1=y, y2=y))
        text = f"{100 * each:g} %" if shares else number(each)
        grid.append(element("text", text, x=left - 8, y=y + 4, text_anchor="end"))
    most = max(4, int((_WIDTH - left - _RIGHT) / max(1, len(marks)) / _LETTER))
    below = [
        element("text", _short(name, most), x=frame.across(place), y=bottom + 18, text_anchor="middle")
        for place, name in marks
    ]
    label = element(
        "text", x_label, x=(left + _WIDTH - _RIGHT) / 2, y=_HEIGHT - 4, text_anchor="middle", class_="label"
    )
    hover = element("line", class_="hover", x1=left, x2=left, y1=_TOP, y2=bottom) if read else None
    return element(
        "svg",
        element("title", told),
        *grid,
        *shapes,
        hover,
        *below,
        label if x_label else None,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=told,
        class_="read" if read else None,
        tabindex="0" if read else None,
        data_places=" ".join(f"{frame.across(each)}" for each in places) or None,
        data_read="\n".join(read) or None,
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _ends(values: Sequence[float], margin: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    width = (high - low) or abs(low) or 1.0
    return low - margin * width, high + margin * width


def side_by_side(figures: Sequence[Markup]) -> Markup:
    """Several figures, as many in a row as fit."""
    return element("div", joined(figures), class_="gallery")
