"""The study as a table and as the two panels of the poster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.abalone.settings import PUBLISHED_ACCURACY
from experiments.common.statistics import standard_error

_METHODS = {"last": "last iterate", "average": "averaged"}


def table(content: dict[str, Any]) -> str:
    """Markdown, from the JSON alone."""
    settings, pymc = content["settings"], content["references"].get("PyMC")
    lines = [
        "# Accuracy on Abalone (poster of DP-ADVI)",
        "",
        f"Made by `{content['command']}` on {content['machine']}. {settings['num_steps']:,} steps, δ = "
        f"{settings['delta']:g}, ε for adding or removing a record, {settings['num_seeds']} runs, mean ± standard "
        f"error. Without privacy {content['references']['not private']:.3f} ({settings['reference_steps']:,} steps of "
        f"the same program); PyMC's ADVI {'not run' if pymc is None else f'{pymc:.3f}'}; the published program, with "
        f"PyMC3's, {PUBLISHED_ACCURACY:.3f}.",
        "",
        "The poster gives curves and no numbers. Its ε is by advanced composition for replacing a record and its C "
        "acts after scaling by 1/κ, so ours is κ times its C, and its points do not lie where ours do.",
        "",
        "| estimator | κ | C | ε | noise multiplier | last iterate | averaged |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(row) for row in content["cells"]),
        "",
        *findings(content),
    ]
    return "\n".join(lines) + "\n"


def findings(content: dict[str, Any]) -> list[str]:
    """How far the best clip norm stays below the run without privacy, by ε."""
    ceiling, lines = content["references"]["not private"], []
    for estimator in content["settings"]["estimators"]:
        parts = []
        for epsilon in content["settings"]["epsilons"]:
            rows = [r for r in content["cells"] if (r["estimator"], r["epsilon"]) == (estimator, epsilon)]
            best = max(rows, key=lambda row: np.mean(row["average"]))
            parts.append(
                f"ε = {epsilon:g}: {np.mean(best['average']) - ceiling:+.3f} (C = {best['clip_norm']:g}, "
                f"κ = {best['sampling_rate']:g})"
            )
        lines.append(f"* {estimator}, averaged, best setting minus the run without privacy: {'; '.join(parts)}.")
    return [*lines, "* The best setting is chosen by test accuracy over few runs, so it flatters itself a little."]


def figure(content: dict[str, Any], path: Path, method: str = "average") -> None:
    """Accuracy against ε for clip norms (a) and sampling rates (b), a row of panels for each estimator."""
    from dpvi.reporting.plots import new_figure

    settings = content["settings"]
    names = settings["estimators"]
    picture, axes = new_figure(len(names), 2, size=(9.0, 3.6 * len(names)))
    for line, name in zip(axes, names, strict=True):
        for axis, varied, symbol, fixed in (
            (line[0], "clip_norm", "C", "sampling_rate"),
            (line[1], "sampling_rate", "κ", "clip_norm"),
        ):
            for value in settings[f"{varied}s"]:
                rows = [
                    row
                    for row in content["cells"]
                    if (row["estimator"], row[varied], row[fixed]) == (name, value, settings[fixed])
                ]
                axis.errorbar(
                    [row["epsilon"] for row in rows],
                    [np.mean(row[method]) for row in rows],
                    [standard_error(row[method]) for row in rows],
                    marker="o",
                    label=f"{symbol} = {value:g}",
                )
            for (label, reference), style in zip(content["references"].items(), (":", "--"), strict=False):
                axis.axhline(reference, color="0.5", linestyle=style, label=label)
            axis.set(xscale="log", xlabel="ε", title=f"{name}, {'κ' if symbol == 'C' else 'C'} = {settings[fixed]:g}")
            axis.legend(fontsize=8)
        line[0].set_ylabel("test accuracy")
    picture.savefig(path, dpi=120)


def _row(row: dict[str, Any]) -> str:
    scores = " | ".join(f"{np.mean(row[name]):.3f} ± {standard_error(row[name]):.3f}" for name in _METHODS)
    return (
        f"| {row['estimator']} | {row['sampling_rate']:g} | {row['clip_norm']:g} | {row['epsilon']:g} | "
        f"{row['noise_multiplier']:.2f} | {scores} |"
    )
