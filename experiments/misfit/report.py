"""The table, what is left of the issue's targets, and a picture of coverage and width by cell, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.misfit import settings as targets
from experiments.misfit.problems import kinds

Row = dict[str, Any]

_AFTER, _BEFORE = "default", "before"  # what the picture holds against each other
_HEADER = (
    "| problem | ε | method | inside, privacy part | of the mean | slopes | worst slope | rms z | rms z, slopes "
    "| inside, full | median width | mean width | limit | median ÷ limit | mean ÷ oracle | warned | s fit + posterior "
    "| runs |",
    "| --- " * 18 + "|",
)


def table(content: dict[str, Any]) -> str:
    """Targets by method, then one row per cell."""
    rows = content["cells"]
    parts = ["# Honest intervals where the model is wrong", "", _explanation(content["settings"]), ""]
    parts += ["## Honest cells", "", *honest_cells(rows), ""]
    for method in _methods(rows):
        parts += [f"## {method}: against the targets", "", *summary(counted(rows, method)), ""]
    parts += ["## Cells", "", *_HEADER, *map(_line, rows), "", _pairs(rows)]
    return "\n".join(parts).rstrip() + "\n"


def honest(row: Row, slopes: bool = False) -> bool:
    """Whether a cell keeps what 95 % promises, up to chance: for all parameters, or for slopes alone."""
    inside, rms = ("inside_slopes", "rms_z_slopes") if slopes else ("inside_privacy", "rms_z")
    return row[inside] >= targets.INSIDE and row.get(rms, np.inf) <= targets.RMS_Z


def counted(rows: Sequence[Row], method: str) -> list[Row]:
    """The cells of a method that targets are about: ε of the study, not those that somebody asked for besides."""
    found = [row for row in rows if row["method"] == method]
    return [row for row in found if row["epsilon"] in targets.EPSILONS] or found


def honest_cells(rows: Sequence[Row]) -> list[str]:
    """How many cells are honest, by method and ε; beside other methods, the default's number on the same problems."""
    lines = [
        f"rms z ≤ {targets.RMS_Z:g} and at least {targets.INSIDE:.0%} inside, for all parameters and for slopes alone. "
        "Cells of few runs can miss or keep that by chance.",
        "",
        "| method | ε | cells | runs of a cell | honest, all parameters | honest, slopes | default on the same cells |",
        "| --- " * 7 + "|",
    ]
    after = {(row["problem"], row["epsilon"]): row for row in counted(rows, _AFTER)}
    for method in _methods(rows):
        own = counted(rows, method)
        epsilons = sorted({row["epsilon"] for row in own})
        for name, cells in [
            *((f"{epsilon:g}", [row for row in own if row["epsilon"] == epsilon]) for epsilon in epsilons),
            *([("all", own)] if len(epsilons) > 1 else []),
        ]:
            runs = sorted({row["runs"] for row in cells})
            same = [after[key] for row in cells if (key := (row["problem"], row["epsilon"])) in after]
            beside = "–"
            if method != _AFTER and same:
                beside = f"{_count(same)} and {_count(same, slopes=True)} of {len(same)}"
            words = [method, name, str(len(cells)), f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"]
            lines.append(f"| {' | '.join([*words, str(_count(cells)), str(_count(cells, slopes=True)), beside])} |")
    return lines


def _count(rows: Iterable[Row], slopes: bool = False) -> int:
    return sum(honest(row, slopes) for row in rows)


def _methods(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def missing(row: Row) -> bool:
    """Whether a cell's slopes are so often outside that it needs a warning."""
    return row["inside_slopes"] < targets.WORST_SLOPES


def summary(rows: Sequence[Row]) -> list[str]:
    """One line per target, for the cells of one method."""
    share, of_slopes = (np.mean([honest(row, slopes) for row in rows]) for slopes in (False, True))
    worst = min(rows, key=lambda row: row["inside_slopes"])
    silent = [row for row in rows if missing(row) and row["warned"] < 0.5]
    lines = [
        f"* {share:.0%} of {len(rows)} cells are honest: rms z ≤ {targets.RMS_Z:g} and at least {targets.INSIDE:.0%} "
        f"inside (target: {targets.CELLS:.0%}); {of_slopes:.0%} by slopes alone.",
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
        cells = [row for row in rows if least <= row["epsilon"] < above and _has_signal(row) and "rms_z" in row]
        budgets = f"ε ≥ {least:g}" if above == np.inf else f"{least:g} ≤ ε < {above:g}"
        above = least
        if cells:
            keep = np.mean([row["width_over_limit"] <= bound for row in cells])
            worst = max(cells, key=lambda row: row["width_over_limit"])
            lines.append(
                f"* Median width at most {bound:g} times the limit at {budgets}, where N μ² > "
                f"{targets.ENOUGH_SIGNAL:g} d: {keep:.0%} of {len(cells)} cells; the widest is "
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
        ("rms_z_slopes", ".2f"),
        ("inside_full", ".3f"),
        ("width_median", ".2f"),
        ("width_mean", ".2f"),
        ("limit", ".2f"),
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
        "the privacy part's deviation. *Inside, full*: of the whole interval. *Median* and *mean width*: full interval "
        "over non-private, over parameters and runs. *Limit*: √(1 + d/(N μ²)). *Oracle*: one release at the mode with "
        "the true curvature and the best clip. *Warned*: share of runs whose posterior warns."
    )


def _name(row: Row) -> str:
    return f"{row['problem']} at ε = {row['epsilon']:g}"


def _named(rows: Sequence[Row]) -> str:
    return f" ({', '.join(map(_name, rows))})" if rows else ""


def figure(content: dict[str, Any], path: Path) -> None:
    """Slopes inside and median widths, a line per problem and a panel per ε: before in grey, after in colour."""
    from dpvi.reporting.plots import new_figure

    shown = {method: counted(content["cells"], method) for method in (_BEFORE, _AFTER)}
    rows = [row for cells in shown.values() for row in cells]
    epsilons = sorted({row["epsilon"] for row in rows})
    problems = [name for name in kinds() if any(row["problem"] == name for row in rows)]
    if not rows:
        return
    figure, grid = new_figure(
        1, 2 * len(epsilons), size=(2.2 + 2.9 * len(epsilons), max(3.0, 1.6 + 0.22 * len(problems)))
    )
    places = {name: -at for at, name in enumerate(problems)}
    widest = max((row.get("width_median", 1.0) for row in rows), default=1.0)
    for at, axis in enumerate(grid[0]):
        epsilon, coverage = epsilons[at % len(epsilons)], at < len(epsilons)
        for method, cells in shown.items():
            _points(axis, [row for row in cells if row["epsilon"] == epsilon], method, places, coverage)
        if coverage:
            axis.axvline(0.95, color="0.6", lw=1, zorder=1)
            axis.set_xlim(-0.05, 1.05)
            axis.set_xticks([0, 0.5, 0.95], ["0", ".5", ".95"])
        else:
            axis.set_xscale("log")
            axis.set_xlim(0.85, 1.2 * max(widest, 2.0))
            ticks = [tick for tick in (1, 2, 5, 10, 30, 100, 1000) if tick <= max(widest, 2.0)]
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
        axis.set_title(f"ε = {epsilon:g}", fontsize="small")
        axis.set_xlabel("slopes inside" if coverage else "median width", fontsize="small")
        axis.set_yticks(list(places.values()), list(places) if at == 0 else [""] * len(places), fontsize="x-small")
        axis.tick_params(axis="y", length=0)
        axis.tick_params(axis="x", labelsize="x-small")
        axis.set_ylim(0.6 - len(problems), 0.6)
        axis.grid(axis="y", color="0.93", lw=0.8)
        axis.set_axisbelow(True)
    named = {
        "before": "before",
        "after": "default",
        "after, half of its runs warn": "default, warned",
        "limit": "limit",
    }
    handles = [grid[0][0].plot([], [], ls="none", label=name, **_MARKS[mark])[0] for name, mark in named.items()]
    figure.legend(handles=handles, fontsize="x-small", loc="outside lower center", ncols=4, frameon=False)
    title = (
        "Left: share of non-private slopes inside 95 % of the privacy part\nRight: full width over non-private width"
    )
    figure.suptitle(title, fontsize="small")
    figure.savefig(path, dpi=150)


_MARKS: dict[str, dict[str, Any]] = {
    "before": {"marker": "o", "color": "0.6", "ms": 4.5, "zorder": 2},
    "before, warned": {"marker": "o", "color": "0.6", "markerfacecolor": "white", "ms": 4.5, "zorder": 2},
    "default": {"marker": "o", "color": "C0", "ms": 4.5, "zorder": 3},
    "default, warned": {"marker": "o", "color": "C0", "markerfacecolor": "white", "ms": 4.5, "zorder": 3},
    "limit": {"marker": "|", "color": "C3", "ms": 7, "zorder": 1},
}


def _points(axis: Any, rows: Iterable[Row], method: str, places: dict[str, int], coverage: bool) -> None:
    """One dot per cell; in panels of widths the limit, too."""
    for row in rows:
        place = places[row["problem"]]
        value = row["inside_slopes"] if coverage else row.get("width_median")
        if value is not None:
            axis.plot(value, place, **_MARKS[method if row["warned"] < 0.5 else f"{method}, warned"])
        if not coverage:
            axis.plot(row["limit"], place, **_MARKS["limit"])
