"""The study as a table beside the paper's findings, and as the panels of Figure L.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.gradient_scales.study import LEVELS, PARTS, bin_edges

_MEDIAN, _HIGH = LEVELS.index(0.5), LEVELS.index(0.975)


def table(content: dict[str, Any]) -> str:
    """Markdown, from the JSON alone."""
    lines = [
        f"# Sizes of gradients on {content['data']} (DPVIm, Figure L.1)",
        "",
        f"Made by `{content['command']}` in {content['seconds']:.0f} s: what each of {content['num_records']:,} "
        f"records releases before the clip, at standard deviations of {content['scale']:g}, over "
        f"{content['num_draws']} draws. No noise: for understanding only.",
        "",
        "| at | variant | locations, median | scales, median | scales/locations, median | together, 97.5 % "
        "| prior and entropy inside |",
        "| --- " * 7 + "|",
    ]
    for row in content["rows"]:
        parts, ratio = row["parts"], row["scales_over_locations"]
        cells = [row["point"], row["variant"], f"{parts['locations']['quantiles'][_MEDIAN]:.3g}"]
        cells.append(f"{parts['scales']['quantiles'][_MEDIAN]:.3g}" if "scales" in parts else "not released")
        cells.append("–" if ratio is None else f"{ratio:.3g}")
        cells.append(f"{parts['together']['quantiles'][_HIGH]:.3g}")
        lines.append(f"| {' | '.join(cells)} | {100 * row['shift_of_quantile']:+.2f} % |")
    lines += [
        "",
        "The last column: by how much the 97.5 % quantile, from which Table F.1 takes C, would move if 1/N of prior "
        "and entropy were inside the clip, as in the published program. A published C is therefore ours.",
        "",
        "| the paper | at the start | at the optimum |",
        "| --- | --- | --- |",
        *(f"| {text} | {' | '.join(answers)} |" for text, answers in findings(content)),
    ]
    return "\n".join(lines) + "\n"


def findings(content: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """What the paper reads off Figure L.1, and what is seen here at each point."""
    places = list(dict.fromkeys(row["point"] for row in content["rows"]))
    at = {(row["point"], row["variant"]): row for row in content["rows"]}

    def ratio(place: str, variant: str) -> float:
        return at[place, variant]["scales_over_locations"]

    def high(place: str, variant: str) -> float:
        return at[place, variant]["parts"]["together"]["quantiles"][_HIGH]

    growth = {place: high(place, "preconditioned") / high(place, "vanilla") for place in places}
    return [
        (
            "vanilla: the scales' part is much smaller",
            [f"{_yes(ratio(p, 'vanilla') < 0.5)}, ratio {ratio(p, 'vanilla'):.3g}" for p in places],
        ),
        (
            "natural: the problem is reversed",
            [f"{_yes(ratio(p, 'natural') > 2)}, ratio {ratio(p, 'natural'):.3g}" for p in places],
        ),
        (
            "preconditioned: the parts match",
            [f"{_yes(0.5 < ratio(p, 'preconditioned') < 2)}, ratio {ratio(p, 'preconditioned'):.3g}" for p in places],
        ),
        (
            "preconditioned: the whole is larger than vanilla's",
            [f"{_yes(growth[p] > 1.05)}, {growth[p]:.2f} times" for p in places],
        ),
    ]


def figure(content: dict[str, Any], path: Path) -> None:
    """Histograms of log norms: a row for each point, a panel for each variant."""
    from dpvi.reporting.plots import new_figure

    places = list(dict.fromkeys(row["point"] for row in content["rows"]))
    variants = list(dict.fromkeys(row["variant"] for row in content["rows"]))
    picture, axes = new_figure(len(places), len(variants), size=(3 * len(variants), 2.6 * len(places)))
    edges = bin_edges()
    for row in content["rows"]:
        axis = axes[places.index(row["point"]), variants.index(row["variant"])]
        for name in PARTS[:2]:
            if name in row["parts"]:
                counts = np.array(row["parts"][name]["histogram"])
                axis.stairs(counts / counts.sum(), edges, fill=True, alpha=0.5, label=name)
        axis.set(title=f"{row['variant']}, {row['point']}", xlabel="log₁₀ of the norm", xlim=(edges[0], edges[-1]))
    axes[0, 0].legend(fontsize=8)
    picture.savefig(path, dpi=120)


def _yes(found: bool) -> str:
    return "seen" if found else "not seen"
