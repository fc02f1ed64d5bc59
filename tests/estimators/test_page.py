"""The page on scikit-learn says what there is."""

from __future__ import annotations

import re
from pathlib import Path

import jax

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "scikit-learn.md"


def test_blocks_run_and_print_what_the_page_shows(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 8
    monkeypatch.chdir(tmp_path)  # a block makes a ledger
    namespace: dict = {"__name__": "a page"}
    with jax.numpy_dtype_promotion("standard"):
        for kind, content in blocks:
            if kind == "python":
                exec(compile(content, PAGE.name, "exec"), namespace)
            else:
                assert without_digits(capsys.readouterr().out) == without_digits(content)
    table = namespace["model"].intervals()
    truth = [0.04 * 50 - 0.5 * 2, -0.04, 0.5]  # what the page's records were drawn with
    assert all(lower < value < upper for lower, value, upper in zip(table.lower, truth, table.upper, strict=True))


def without_digits(text: str) -> str:
    """Numbers differ by rounding from machine to machine."""
    return re.sub(r"\s+", " ", re.sub(r"-?\d+(\.\d+)?(e[+-]\d+)?", "#", text)).strip()
