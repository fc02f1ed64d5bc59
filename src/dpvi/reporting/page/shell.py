"""The frame of every page: head, style, contents, sections, script; and the one place that writes such a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from dpvi.reporting.page.elements import Markup, element, joined
from dpvi.table.writing import whole_or_nothing

# nothing is fetched, whatever stands in the page: style and script are its own
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"


class Section(NamedTuple):
    """A part of a page with its heading."""

    title: str
    content: Markup

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def page(title: str, above: Markup, sections: Sequence[Section], below: Markup) -> str:
    """A whole document."""
    contents = element(
        "nav",
        element("h2", "On this page", class_="quiet"),
        element("ol", *(element("li", element("a", each.title, href=f"#{each.anchor}")) for each in sections)),
        aria_label="Contents",
    )
    body = [
        element("section", element("h2", each.title), each.content, id=each.anchor, aria_label=each.title)
        for each in sections
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content="dpvi"),
        element("title", title),
        element("style", _own("style.css")),
    )
    main = element("main", *body, id="main")
    skip = element("a", "Skip to the contents", href="#main", class_="skip")
    frame = element("div", contents, main, class_="frame")
    script = element("script", _own("script.js"))
    whole = element("html", head, element("body", skip, element("header", above), frame, below, script), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def write_page(text: str, path: str | Path) -> Path:
    """Write a page, whole or not at all."""
    with whole_or_nothing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def masthead(kind: str, title: str, subtitle: str, facts: Sequence[tuple[str, str]]) -> Markup:
    """What a reader sees first: what this is, and the few numbers that matter."""
    cards = [element("div", element("dt", name), element("dd", value), class_="fact") for name, value in facts]
    return joined(
        [
            element("p", kind, class_="kind"),
            element("h1", title),
            element("p", subtitle, class_="subtitle"),
            element("dl", *cards, class_="facts"),
        ]
    )


def _own(name: str) -> Markup:
    """A file of this package, which is trusted; it holds no end tag."""
    return Markup((resources.files("dpvi.reporting.page") / name).read_text(encoding="utf-8"))
