"""The committed table: previewed width over fitted width."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from experiments.preview.study import LAWS

NEAR = 0.15


def table(path: Path) -> str:
    """Markdown: for every table and ε the ratios of previewed and fitted widths over all coefficients."""
    found = json.loads(path.read_text())
    lines = [
        "Previewed over fitted width, each the mean of so many runs: median, least and largest over coefficients,",
        f"and how many are within {100 * NEAR:.0f} %. Last, how much widths of fits of one table differ (median).",
        "",
        "| table | ε | runs | " + " | ".join(f"{law} | within" for law in LAWS) + " | between fits |",
        "| --- " * (4 + 2 * len(LAWS)) + "|",
    ]
    for cell in sorted(found["cells"], key=lambda each: (each["table"], each["epsilon"])):
        fitted, cells = np.array(cell["fitted"]), []
        for law in LAWS:
            ratio = np.array(cell["previewed"][law]["width"]) / fitted
            within = int(np.sum(np.abs(ratio - 1) <= NEAR))
            cells.append(f"{np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f}) | {within} of {len(ratio)}")
        between = "–" if cell["between_fits"] is None else f"{100 * np.median(cell['between_fits']):.0f} %"
        lines.append(f"| {cell['table']} | {cell['epsilon']:g} | {cell['repeats']} | {' | '.join(cells)} | {between} |")
    return "\n".join(lines) + "\n"
