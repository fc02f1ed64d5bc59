"""The table, the paper's number beside ours, and calibration plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.reporting import plot_calibration
from experiments.adult_calibration.methods import METHODS
from experiments.adult_calibration.scores import Scores
from experiments.adult_calibration.settings import PUBLISHED
from experiments.adult_calibration.study import NO_PRIVACY, Results

_HEADER = (
    "| ε | method | calibration RMSE | paper | by bins | log loss | holds the mode | interval width | repeats |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)


def to_markdown(results: Results) -> str:
    """One row per method and ε, in the order of the registry; the ceiling and the noise floor last."""
    settings, floor = results.settings, results.floor
    simulated = settings["simulated_records"] is not None
    epsilons = sorted({epsilon for _, epsilon in results.cells})
    rows = [
        _row(method, epsilon, results.cells[method, epsilon], simulated)
        for epsilon in epsilons
        for method in METHODS
        if results.cells.get((method, epsilon))
    ]
    source = "a simulated table: the numbers say nothing about Adult" if simulated else "Adult"
    return "\n".join(
        [
            f"# Calibration of predictions on {source}",
            "",
            f"Scaling of numbers: {settings['scaling']}. Noise: {settings['noise']}. δ = {settings['delta']:g}, "
            f"κ = {settings['sampling_rate']:g}, T = {settings['num_steps']}.",
            "",
            *_HEADER,
            *rows,
            "",
            f"Noise floor of the calibration RMSE: right probabilities show {floor['mean']:.4f} ± {floor['std']:.4f}, "
            f"95 % of draws of the test labels below {floor['upper']:.4f}.",
            "",
            "± is one standard deviation over repeats, as in the paper. *Calibration RMSE*: the paper's number, a "
            "curve through ten bins read sideways and extrapolated. *By bins*: the error of each bin weighed by its "
            "count. *Log loss*: mean −log p of test labels. *Holds the mode*: share of weights whose 95 % interval "
            "holds the mode without privacy. *Interval width*: mean over weights.",
            "",
            _timing(results.seconds),
            "",
        ]
    )


def to_plots(results: Results, folder: Path) -> list[Path]:
    """One calibration plot per ε, the ceiling in each."""
    ceiling = results.cells.get(("nonprivate", NO_PRIVACY), [])
    paths = []
    for epsilon in sorted({epsilon for _, epsilon in results.cells if epsilon != NO_PRIVACY}):
        curves = {
            METHODS[method].label: runs
            for method in METHODS
            if (runs := _curves(results.cells.get((method, epsilon), [])))
        }
        if ceiling:
            curves[METHODS["nonprivate"].label] = _curves(ceiling)
        if not curves:
            continue
        paths.append(folder / f"calibration_epsilon_{epsilon:g}.png")
        plot_calibration(curves, title=f"ε = {epsilon:g}").savefig(paths[-1], dpi=150)
    return paths


def summary(repeats: Sequence[Scores], name: str) -> tuple[float, float, int]:
    """Mean, standard deviation and number of the repeats that have a finite score ``name``."""
    values = np.array([getattr(repeat, name) for repeat in repeats])
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return math.nan, math.nan, 0
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan, len(values)


def _row(method: str, epsilon: float, repeats: Sequence[Scores], simulated: bool) -> str:
    names = ("calibration_rmse", "binned_calibration_rmse", "log_loss", "containment", "interval_width")
    cells = {name: summary(repeats, name) for name in names}
    paper = None if simulated else PUBLISHED.get(method, {}).get(epsilon)
    count = cells["calibration_rmse"][2]
    lost = f" ({len(repeats) - count} failed)" if count < len(repeats) else ""
    columns: list[Any] = [
        "∞" if epsilon == NO_PRIVACY else f"{epsilon:g}",
        METHODS[method].label,
        _plus_minus(*cells["calibration_rmse"][:2]),
        "–" if paper is None else _plus_minus(*paper, digits=3),
        _plus_minus(*cells["binned_calibration_rmse"][:2]),
        f"{cells['log_loss'][0]:.4f}",
        f"{cells['containment'][0]:.3f}",
        f"{cells['interval_width'][0]:.3g}",
        f"{count}{lost}",
    ]
    return f"| {' | '.join(columns)} |"


def _plus_minus(mean: float, std: float, digits: int = 4) -> str:
    return f"{mean:.{digits}f}" + ("" if math.isnan(std) else f" ± {std:.{digits}f}")


def _curves(repeats: Sequence[Scores]) -> list[Any]:
    return [repeat.curve for repeat in repeats if repeat.num_records]


def _timing(seconds: dict[str, list[float]]) -> str:
    parts = [f"{name} {np.median(values):.1f} s" for name, values in seconds.items()]
    return f"Seconds per repeat (median): {', '.join(parts)}."
