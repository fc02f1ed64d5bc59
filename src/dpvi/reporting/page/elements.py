"""HTML from Python values: whatever is not markup already is escaped, so that no name can become a program."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

_EMPTY = {"br", "circle", "col", "hr", "input", "line", "meta", "path", "rect"}  # without content, as written here


class Markup(str):
    """Text that is HTML. Only :func:`element` and :func:`joined` make it."""

    __slots__ = ()


def element(tag: str, *children: Any, **attributes: Any) -> Markup:
    """One element; children that are not :class:`Markup` are text and are escaped, as are values of attributes.

    ``class_`` and ``for_`` stand for names that Python keeps; other underscores become hyphens. An attribute that is
    None or False is left out, one that is True has no value.

    Examples
    --------
    >>> element("p", "a < b", class_="note", hidden=True)
    '<p class="note" hidden>a &lt; b</p>'
    >>> element("th", "<script>", data_name='"x"')
    '<th data-name="&quot;x&quot;">&lt;script&gt;</th>'
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _EMPTY and not children:
        return Markup(f"<{tag}{written}>") if tag not in _DRAWN else Markup(f"<{tag}{written}></{tag}>")
    return Markup(f"<{tag}{written}>{joined(children)}</{tag}>")


_DRAWN = {"circle", "line", "path", "rect"}  # of SVG: HTML wants them closed


def joined(children: Iterable[Any]) -> Markup:
    """Several children one after the other; None is nothing."""
    return Markup("".join(each if isinstance(each, Markup) else _text(each) for each in children if each is not None))


def table(
    caption: str, heads: Sequence[Any], rows: Iterable[Sequence[Any]], *, numbers: Iterable[int] = (), **attributes: Any
) -> Markup:
    """A table; its first column heads its rows, columns in ``numbers`` are set right, ``heads`` may be empty."""
    right = set(numbers)

    def kind(column: int) -> str | None:
        return "number" if column in right else None

    cells = [element("th", each, scope="col", class_=kind(i)) for i, each in enumerate(heads)]
    head = element("thead", element("tr", *cells)) if cells else None
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, class_=kind(i)) for i, cell in enumerate(row[1:], 1)),
        )
        for row in rows
    ]
    written = element("table", element("caption", caption), head, element("tbody", *body), **attributes)
    return element("div", written, class_="wide", tabindex="0", role="region", aria_label=caption)


def number(value: float, digits: int = 3) -> str:
    """A number as people read it: so many digits, a true minus sign.

    Examples
    --------
    >>> number(-0.51234), number(12345.6), number(0.0000123), number(2.0)
    ('−0.512', '12,346', '1.23e−5', '2')
    """
    if value != value or value in (float("inf"), float("-inf")):
        return {"inf": "∞", "-inf": "−∞"}.get(str(value), "–")
    size = abs(value)
    if size >= 10**digits:
        text = f"{value:,.0f}"
    elif size and size < 1e-3:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        text = f"{float(mantissa):g}e{int(exponent)}"
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", "−")


def percent(share: float) -> str:
    """A share in per cent, without false precision.

    Examples
    --------
    >>> percent(0.4567), percent(0.0012), percent(0.9996)
    ('46 %', '0.1 %', '> 99.9 %')
    """
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.01 or 0.99 < share < 1 else f"{100 * share:.0f} %"


def _attribute(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    written = name.rstrip("_").replace("_", "-")
    return f" {written}" if value is True else f' {written}="{html.escape(str(value), quote=True)}"'


def _text(value: Any) -> str:
    return html.escape(str(value), quote=False)
