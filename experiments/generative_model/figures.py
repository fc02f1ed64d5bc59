"""Plots like the paper's, one file for each figure whose runs are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.statistics import standard_error
from experiments.generative_model.cells import WIDE
from experiments.generative_model.coverage_report import coverage_figure
from experiments.generative_model.downstream import METHODS
from experiments.generative_model.findings import downstream_groups
from experiments.generative_model.report import ordered
from experiments.generative_model.settings import CLIP_NORMS, NATURAL_VARIANTS

_QUANTITIES = (("location_mpae", "MPAE of means"), ("scale_mpae", "MPAE of standard deviations"))


def figures(content: dict[str, Any], folder: Path) -> None:
    """Write every figure that the results allow."""
    rows = [row for row in ordered(content) if "curve" in row]
    cohort, census = ([row for row in rows if (row["data"] == "cohort") == mine] for mine in (True, False))
    usual = content["settings"]["num_steps"]
    plain = [row for row in cohort if row["variant"] in CLIP_NORMS]
    at_usual = [row for row in plain if row["num_steps"] == usual]
    if len({row["initial_scale"] for row in at_usual}) > 1:
        _against("initial_scale", at_usual, "initial σ_q", folder / "robustness.png")
        _trade_off(at_usual, folder / "trade_off.png")
        for scale in sorted({row["initial_scale"] for row in at_usual}):
            _curves([r for r in at_usual if r["initial_scale"] == scale], folder / f"convergence_{scale:g}.png")
    wide = [row for row in plain if row["initial_scale"] == WIDE]
    if len({row["num_steps"] for row in wide}) > 1:
        _against("num_steps", wide, "steps", folder / "epochs.png")
    if any(row["variant"] in NATURAL_VARIANTS for row in cohort):
        shown = [r for r in cohort if r["initial_scale"] == WIDE and r["num_steps"] == usual]
        _curves([r for r in shown if r["variant"] != "preconditioned"], folder / "natural.png")
    if census:
        _curves(census, folder / "census.png")
    if content["downstream"]:
        _downstream(content, folder / "downstream.png")
    coverage_figure(content, folder / "coverage.png")


def _panels(columns: int = 2) -> tuple[Any, list[Any]]:
    from dpvi.reporting.plots import new_figure

    figure, axes = new_figure(1, columns, size=(4.5 * columns, 3.8))
    return figure, list(np.ravel(axes))


def _legend(figure: Any, axis: Any) -> None:
    """Below the panels, where it hides no error bar."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)


def _label(row: dict[str, Any]) -> str:
    return f"{row['variant'].replace('_', ' ')}, C = {row['clip_norm']:g}"


def _against(name: str, rows: list[dict[str, Any]], axis_label: str, path: Path) -> None:
    """Figures H.1 and 2: the error at the end against the initial scale or the length."""
    figure, axes = _panels()
    for axis, (quantity, label) in zip(axes, _QUANTITIES, strict=True):
        for variant in dict.fromkeys(row["variant"] for row in rows):
            mine = sorted((row for row in rows if row["variant"] == variant), key=lambda row: row[name])
            means, bars = ([f(row[quantity]) for row in mine] for f in (np.mean, standard_error))
            axis.errorbar([row[name] for row in mine], means, bars, marker="o", label=_label(mine[0]))
        axis.set(xscale="log", yscale="log", xlabel=axis_label, ylabel=label)
    _legend(figure, axes[0])
    figure.savefig(path, dpi=120)


def _trade_off(rows: list[dict[str, Any]], path: Path) -> None:
    """Figure 1a: both errors at once, one point for each initial scale."""
    figure, (axis,) = _panels(1)
    for variant in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == variant]
        points = [[np.mean(row[quantity]) for row in mine] for quantity, _ in _QUANTITIES]
        axis.scatter(*points, label=_label(mine[0]))
        for row, x, y in zip(mine, *points, strict=True):
            axis.annotate(f"{row['initial_scale']:g}", (x, y), fontsize=7)
    axis.set(xscale="log", yscale="log", xlabel=_QUANTITIES[0][1], ylabel=_QUANTITIES[1][1])
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def _curves(rows: list[dict[str, Any]], path: Path) -> None:
    """Figures 1b, 4, H.2, H.3 and H.4: the error along the run, mean over runs."""
    figure, axes = _panels()
    for axis, (quantity, label) in zip(axes, _QUANTITIES, strict=True):
        for row in rows:
            axis.plot(row["steps"], row["curve"][quantity], label=_label(row))
        axis.set(yscale="log", xlabel="step", ylabel=label)
    _legend(figure, axes[0])
    figure.savefig(path, dpi=120)


def _downstream(content: dict[str, Any], path: Path) -> None:
    """Figure 3 and, beside it, coverage: one group of points for each ε and C."""
    figure, axes = _panels()
    groups = downstream_groups(content)
    for shift, method in enumerate(METHODS):
        places = [index + 0.12 * (shift - 1) for index in range(len(groups))]
        for axis, quantity in zip(axes, ("distance_to_original", "covered"), strict=True):
            values = [
                [np.mean(r[method][quantity]) for r in rows if "covered" in r[method]] for rows in groups.values()
            ]
            kept = [(place, v) for place, v in zip(places, values, strict=True) if len(v) > 1]
            if kept:
                means, bars = ([f(v) for _, v in kept] for f in (np.mean, standard_error))
                axis.errorbar([place for place, _ in kept], means, bars, fmt="o", label=method)
    for axis, label in zip(axes, ("distance to the coefficients on the cohort", "coverage at 95 %"), strict=True):
        axis.set(ylabel=label)
        axis.set_xticks(range(len(groups)), [f"ε = {e:g}\nC = {c:g}" for e, c in groups])
    axes[1].axhline(0.95, color="grey", linestyle=":")
    _legend(figure, axes[0])
    figure.savefig(path, dpi=120)
