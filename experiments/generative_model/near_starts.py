"""Why MPAE of scales can tie: a parameter that starts next to its optimum outweighs all others.

MPAE is a mean of |σ_T − σ*| / |σ_0 − σ*| over parameters. Where σ_0 happens to be σ*, any noise at the end is many
times the way, whatever the method. The share of MPAE that such parameters carry is measured here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NEAR = 0.1  # of σ_0, the same for all parameters of a cell


def near_starts(content: dict[str, Any]) -> list[str]:
    """Markdown: for every setting with parameters that start within a tenth of σ_0, what they do to MPAE."""
    rows = [row for row in content["cells"] if "scales" in row and _near(row).any()]
    if not rows:
        return []
    lines = [
        "## Scales that start at their optimum",
        "",
        "MPAE divides the error at the end by how far a parameter started from its optimum. *Near*: standard "
        f"deviations that start within {100 * _NEAR:.0f} % of σ_q. *Share*: of the sum behind MPAE that these carry. "
        "*Median*: over parameters, of error over distance at the start. *Error*: mean of |σ − σ*| over all, "
        "which weighs them equally.",
        "",
        "| table | steps | σ_q | variant | C | near | share of MPAE | MPAE without them | median | error |",
        "| --- " * 10 + "|",
    ]
    for row in sorted(rows, key=lambda row: (row["data"] != "cohort", row["initial_scale"], row["num_steps"])):
        near, ratios = _near(row), np.divide(row["scales"]["error"], row["scales"]["start_distance"])
        cells = [row["table"], f"{row['num_steps']:,}", f"{row['initial_scale']:g}", row["variant"]]
        cells += [
            f"{row['clip_norm']:g}",
            f"{near.sum()} of {len(near)}",
            f"{100 * ratios[near].sum() / ratios.sum():.0f} %",
        ]
        cells += [f"{ratios[~near].mean():.3f}" if not near.all() else "–", f"{np.median(ratios):.3f}"]
        lines.append(f"| {' | '.join(cells)} | {np.mean(row['scales']['error']):.4f} |")
    return [*lines, ""]


def _near(row: dict[str, Any]) -> np.ndarray:
    return np.asarray(row["scales"]["start_distance"]) < _NEAR * row["initial_scale"]
