"""What every benchmark writes: the JSON, the Markdown made from it alone, and the words both have in common."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.pool import BENCHMARKS

RESULTS = BENCHMARKS / "results"


def machine() -> dict[str, Any]:
    """Where a benchmark ran."""
    return {"cores": os.cpu_count(), "architecture": platform.machine(), "system": platform.system()}


def write(content: Mapping[str, Any], path: Path, markdown: Callable[[Any], str]) -> str:
    """``content`` to ``path``, and what ``markdown`` makes of it beside it; returns the Markdown."""
    text = markdown(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    return text


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def spread(values: Mapping[str, float], digits: int = 2) -> str:
    """Median and quartiles of :func:`harness.statistics.summary`."""
    median, lower, upper = (f"{values[name]:.{digits}f}" for name in ("median", "lower_quartile", "upper_quartile"))
    return f"{median} ({lower} to {upper})"
