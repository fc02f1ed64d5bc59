"""Pages of HTML, read by the standard library's parser and by a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
_QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_VOID = {"br", "col", "hr", "input", "meta"}
_WATCH = """<script>window.said = [];
window.addEventListener("error", (event) => window.said.push(String(event.message)));
window.addEventListener("securitypolicyviolation", (event) => window.said.push(event.violatedDirective));
console.error = console.warn = (...all) => window.said.push(all.join(" "));</script>"""


class Page(HTMLParser):
    """Tags with their attributes in order, text, and whether every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.misplaced: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.misplaced.append(tag)

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def check_page(text: str) -> Page:
    """What holds of every page: whole, alone, readable aloud."""
    page = Page(text)
    assert (page.open, page.misplaced) == ([], [])
    assert text.startswith("<!DOCTYPE html>")
    assert page.all("html")[0]["lang"] == "en"
    for name in ("src", "action", "xlink:href", "srcset", "data"):
        assert not [tag for tag, attributes in page.tags if name in attributes]
    assert all((each["href"] or "").startswith("#") for each in page.all("a"))
    assert not page.all("link")
    assert not re.findall(r"(https?:)?//[a-z]", text.replace("http://www.w3.org/2000/svg", "").replace("\n    //", ""))
    anchors = {each.get("id") for _, each in page.tags}
    assert {(each["href"] or "")[1:] for each in page.all("a")} <= anchors
    pictures = [each for each in page.all("svg") if each.get("aria-hidden") != "true"]
    assert len(page.all("title")) == 1 + len(pictures) + len(page.all("rect"))
    assert all(each.get("role") == "img" for each in pictures)
    assert len(page.all("caption")) == len(page.all("table"))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    return page


def in_browser(text: str, folder: Path, script: str) -> Any:
    """Open a page, run ``script``, which fills the object ``found``, and return it with what was complained of."""
    assert CHROMIUM is not None
    run = (
        "<script>window.addEventListener('load', () => { const found = {};\n"
        f"try {{ {script} }} catch (error) {{ window.said.push(String(error)); }}\n"
        "found.said = window.said; const out = document.createElement('script'); out.type = 'application/json';\n"
        "out.id = 'found'; out.textContent = JSON.stringify(found).replace(/</g, '\\\\u003c');"
        " document.body.append(out); });</script>"
    )
    file = folder / "page.html"
    file.write_text(text.replace("<head>", f"<head>{_WATCH}").replace("</body>", f"{run}</body>"), encoding="utf-8")
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [CHROMIUM, *_QUIET, f"--user-data-dir={profile}", "--dump-dom", file.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    found = re.search(r'<script type="application/json" id="found">(.*?)</script>', done.stdout, flags=re.DOTALL)
    assert found is not None, done.stderr
    return json.loads(found.group(1))
