"""MPAE of scales along the run: who is there first, where all end at the same level (Figures 1b, 4 and H.2 as numbers).

Runs end at a level that Adam's rate and the noise set. Once it is reached the variants tie, so the end alone does not
say which one learns the scales faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.generative_model.settings import CLIP_NORMS

_PARTS = (0.125, 0.25, 0.5, 1.0)


def along(content: dict[str, Any]) -> list[str]:
    """Markdown: one line for each setting in which all three variants were run."""
    lines = []
    for key in dict.fromkeys(_key(row) for row in content["cells"]):
        rows = {row["variant"]: row for row in content["cells"] if _key(row) == key and "curve" in row}
        if not rows.keys() >= CLIP_NORMS.keys():
            continue
        values = {name: at_parts(rows[name]) for name in CLIP_NORMS}
        first = min(CLIP_NORMS, key=lambda name: values[name][1])
        shown = " | ".join(" → ".join(f"{value:.3g}" for value in values[name]) for name in CLIP_NORMS)
        lines.append(f"| {key[0]} | {key[1]:,} | {key[2]:g} | {shown} | {first} |")
    if not lines:
        return []
    return [
        "## Along the run",
        "",
        "MPAE of scales, mean over runs, after an eighth, a quarter, half and all of the steps (Figures 1b, 4, H.2). "
        "*Ahead*: the smallest after a quarter.",
        "",
        f"| table | steps | σ_q | {' | '.join(CLIP_NORMS)} | ahead |",
        "| --- " * (4 + len(CLIP_NORMS)) + "|",
        *lines,
        "",
    ]


def at_parts(row: dict[str, Any]) -> np.ndarray:
    """The curve after each part of the run, interpolated."""
    steps = np.asarray(row["steps"], np.float64)
    return np.interp(np.asarray(_PARTS) * steps[-1], steps, row["curve"]["scale_mpae"])


def _key(row: dict[str, Any]) -> tuple[str, int, float]:
    return row["table"], row["num_steps"], row["initial_scale"]
