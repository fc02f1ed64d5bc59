"""The table, what is left of the issue's targets, and a picture of coverage against ε."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.misfit import settings as targets
from experiments.misfit.problems import kinds

Row = dict[str, Any]

_HEADER = (
    "| problem | ε | method | inside, privacy part | of the mean | slopes | worst slope | rms z "
    "| inside, full | median width | ÷ limit | ÷ oracle | warned | s fit + posterior | runs |",
    "| --- " * 15 + "|",
)


def table(content: dict[str, Any]) -> str:
    """Targets by method, then one row per cell."""
    rows = content["cells"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    parts = ["# Honest intervals where the model is wrong", "", _explanation(content["settings"]), ""]
    for method in methods:
        parts += [f"## {method}: against the targets", "", *summary([row for row in rows if row["method"] == method])]
        parts += [""]
    parts += ["## Cells", "", *_HEADER, *map(_line, rows), "", _pairs(rows)]
    return "\n".join(parts).rstrip() + "\n"


def honest(row: Row) -> bool:
    """Whether a cell keeps what 95 % promises, up to chance."""
    return row["inside_privacy"] >= targets.INSIDE and row.get("rms_z", np.inf) <= targets.RMS_Z


def missing(row: Row) -> bool:
    """Whether a cell's slopes are so often outside that it needs a warning."""
    return row["inside_slopes"] < targets.WORST_SLOPES


def summary(rows: Sequence[Row]) -> list[str]:
    """One line per target, for the cells of one method."""
    share = np.mean([honest(row) for row in rows])
    worst = min(rows, key=lambda row: row["inside_slopes"])
    silent = [row for row in rows if missing(row) and row["warned"] < 0.5]
    lines = [
        f"* {share:.0%} of {len(rows)} cells are honest: rms z ≤ {targets.RMS_Z:g} and at least {targets.INSIDE:.0%} "
        f"inside (target: {targets.CELLS:.0%}).",
        f"* Worst cell of slopes: {worst['inside_slopes']:.2f} inside, {_name(worst)} "
        f"(target: {targets.WORST_SLOPES:.2f}).",
        f"* Cells below that whose runs mostly do not warn: {len(silent)}{_named(silent)} (target: none).",
        *_widths(rows),
        _warning(rows),
    ]
    failed = sum(row["failed"] for row in rows)
    return [*lines, f"* Runs without a finite answer: {failed} of {sum(row['runs'] for row in rows)}."]


def _widths(rows: Sequence[Row]) -> list[str]:
    lines, above = [], np.inf
    for least, bound in targets.WIDTH_BY_EPSILON:
        counted = [row for row in rows if least <= row["epsilon"] < above and _has_signal(row) and "rms_z" in row]
        above = least
        if counted:
            keep = np.mean([row["width_over_limit"] <= bound for row in counted])
            worst = max(counted, key=lambda row: row["width_over_limit"])
            lines.append(
                f"* Median width at most {bound:g} times the limit at ε ≥ {least:g}, where N μ² > "
                f"{targets.ENOUGH_SIGNAL:g} d: {keep:.0%} of {len(counted)} cells; the widest is "
                f"{worst['width_over_limit']:.3g}, {_name(worst)}."
            )
    finite = [row for row in rows if "width_over_oracle" in row]
    if finite:
        worst = max(finite, key=lambda row: row["width_over_oracle"])
        useless = sum(row["width_over_oracle"] > targets.WORST_WIDTH for row in finite)
        lines.append(
            f"* Mean width above {targets.WORST_WIDTH:g} times the oracle's: {useless} of {len(finite)} cells; the "
            f"widest is {worst['width_over_oracle']:.3g}, {_name(worst)} (target: none)."
        )
    return lines


def _has_signal(row: Row) -> bool:
    return row["num_records"] * row["signal"] ** 2 > targets.ENOUGH_SIGNAL * row["dimension"]


def _warning(rows: Sequence[Row]) -> str:
    bad, good = [row for row in rows if not honest(row)], [row for row in rows if honest(row)]

    def share(cells: Iterable[Row]) -> str:
        found = [row["warned"] for row in cells]
        if not found:
            return "no such cell"
        return f"{np.mean(np.array(found) >= 0.5):.0%} of {len(found)} cells, {np.mean(found):.0%} of runs"

    return (
        f"* Warned where a cell is not honest: {share(bad)} (target: {targets.WARNED_MISSING:.0%}); where it is: "
        f"{share(good)} (target: at most {targets.WARNED_HONEST:.0%}). A cell is warned where half of its runs are."
    )


def _line(row: Row) -> str:
    label = kinds()[row["problem"]].label if row["problem"] in kinds() else ""
    figures = [
        ("inside_privacy", ".3f"),
        ("inside_privacy_of_mean", ".3f"),
        ("inside_slopes", ".3f"),
        ("inside_worst_slope", ".2f"),
        ("rms_z", ".2f"),
        ("inside_full", ".3f"),
        ("width_median", ".2f"),
        ("width_over_limit", ".2f"),
        ("width_over_oracle", ".2f"),
        ("warned", ".2f"),
    ]
    cells = [f"{row[name]:{form}}" if name in row else "–" for name, form in figures]
    if "worst_slope" in row:
        cells[3] += f" ({row['worst_slope']})"
    seconds = f"{row['seconds_fit']:.1f} + {row['seconds_posterior']:.1f}"
    runs = f"{row['runs']}" + (f" ({row['failed']} failed)" if row["failed"] else "")
    words = [f"{row['problem']} ({label})", f"{row['epsilon']:g}", row["method"], *cells, seconds, runs]
    return f"| {' | '.join(words)} |"


def _pairs(rows: Sequence[Row]) -> str:
    """Coverage of the truth by the full interval, in the smallest case."""
    found = [row for row in rows if row["problem"].startswith("pair_") and "covers_truth" in row]
    if not found:
        return ""
    lines = ["## The smallest case: full intervals that hold the true weights", ""]
    lines += ["| ρ | ε | method | covers | data sets |", "| --- | --- | --- | --- | --- |"]
    for row in found:
        rho = int(row["problem"].removeprefix("pair_")) / 100
        lines.append(f"| {rho:g} | {row['epsilon']:g} | {row['method']} | {row['covers_truth']:.3f} | {row['runs']} |")
    return "\n".join(lines)


def _explanation(settings: dict[str, Any]) -> str:
    size = "" if settings["num_records"] is None else "A quick study: its numbers mean nothing. "
    return (
        f"{size}*Inside, privacy part*: share of non-private means (modes of the same model and prior) inside the 95 % "
        "interval that privacy's part of the variance gives, over parameters and runs; *of the mean*: posterior means "
        "to second order instead of modes; *slopes*: without intercepts and scales. *rms z*: of the difference over "
        "the privacy part's deviation. *Median width*: full interval over non-private. *Limit*: √(1 + d/(N μ²)). "
        "*Oracle*: one release at the mode with the true curvature and the best clip, mean widths compared."
    )


def _name(row: Row) -> str:
    return f"{row['problem']} at ε = {row['epsilon']:g}"


def _named(rows: Sequence[Row]) -> str:
    return f" ({', '.join(map(_name, rows))})" if rows else ""


def figure(content: dict[str, Any], path: Path) -> None:
    """Share inside against ε, one panel per method and a dot per cell; warned cells are hollow."""
    from dpvi.reporting.plots import new_figure

    rows = content["cells"]
    order: Callable[[str], int] = ["before", "before_stationary", "na_dpvi", "default"].index
    methods = sorted({row["method"] for row in rows}, key=order)
    problems = [name for name in kinds() if any(row["problem"] == name for row in rows)]
    figure, grid = new_figure(1, max(1, len(methods)), size=(4.0 * max(1, len(methods)) + 1.5, 4.5))
    axes = grid[0]
    epsilons = sorted({row["epsilon"] for row in rows})
    for axis, method in zip(axes, methods, strict=False):
        for row in (row for row in rows if row["method"] == method):
            at = problems.index(row["problem"])
            colour = f"C{at % 10}"
            place = epsilons.index(row["epsilon"]) + 0.7 * (at / max(1, len(problems) - 1) - 0.5)
            filled = "none" if row["warned"] >= 0.5 else colour
            axis.plot(place, row["inside_privacy"], "o^sD"[at // 10 % 4], color=colour, markerfacecolor=filled, ms=5)
        axis.axhline(0.95, color="0.6", lw=1)
        axis.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
        axis.set(title=method, xlabel="ε", xlim=(-0.5, len(epsilons) - 0.5), ylim=(-0.02, 1.03))
    axes[0].set_ylabel("non-private means inside the privacy interval")
    handles = [
        axes[-1].plot([], [], "o^sD"[at // 10 % 4], color=f"C{at % 10}", label=name, ms=5)[0]
        for at, name in enumerate(problems)
    ]
    figure.legend(handles=handles, fontsize="x-small", loc="outside right center")
    figure.suptitle("Each point is a cell; hollow where half of its runs warn", fontsize="small")
    figure.savefig(path, dpi=150)
