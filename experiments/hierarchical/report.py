"""The study as a table with the paper's findings beside it, and as Figures 4 to 6."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.hierarchical.settings import FINDINGS, MAIN_SIZE, NOT_PRIVATE

_METHODS = {"last": "last iterate", "average": "averaged"}


def table(content: dict[str, Any]) -> str:
    """Markdown, from the JSON alone."""
    settings = content["settings"]
    lines = [
        "# Hierarchical logistic regression on small data (d3p, Figures 4 to 6)",
        "",
        f"Made by `{content['command']}` on {content['machine']}. 5 features, 3 groups with 3 characteristics, κ = "
        f"{settings['sampling_rate']:g}, C = {settings['clip_norm']:g}, Adam at {settings['learning_rate']:g}, "
        f"δ = 1/N, ε for adding or removing a record, {settings['num_seeds']} runs on the same records (the paper: "
        "100,000 steps, 10 runs). AUC on a test set of the same size, mean ± standard deviation over runs. *Plain*: "
        "logistic regression without groups or privacy, penalised as scikit-learn does by default, by scipy.",
        "",
        "| N | steps | ε | noise multiplier | last iterate | averaged | plain |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(content, cell) for cell in sorted(content["cells"], key=_order)),
        "",
        "The paper's findings, and ours for averaged iterates (what `fit` gives by default):",
        "",
        *(f"* {text}: {found}." for text, found in zip(FINDINGS, findings(content, "average"), strict=True)),
    ]
    return "\n".join(lines) + "\n"


def findings(content: dict[str, Any], method: str) -> list[str]:
    """What this study says to each of the paper's findings, in numbers."""
    return [
        _near_the_ceiling(content, method),
        _above_the_baseline(content, method),
        _by_size(content, method),
        _by_length(content, method),
    ]


def figure(content: dict[str, Any], path: Path, method: str = "average") -> None:
    """AUC against ε (boxes), against N and against iterations (mean ± one standard deviation)."""
    from dpvi.reporting.plots import new_figure

    picture, axes = new_figure(1, 3, size=(13.0, 4.0))
    boxes, sizes, lengths = axes[0]
    budgets = _budgets(content)
    longest = max(content["settings"]["num_steps"])
    at_main = [_cell(content, MAIN_SIZE, budget, longest) for budget in budgets]
    boxes.boxplot([cell[method] for cell in at_main if cell], tick_labels=[_label(b) for b in budgets])
    boxes.set(title=f"N = {MAIN_SIZE}", xlabel="ε", ylabel="AUC")
    numbers, steps = content["settings"]["num_records"], content["settings"]["num_steps"]
    for index, budget in enumerate(budgets):
        for axis, values, cells in (
            (sizes, numbers, [_cell(content, n, budget, longest) for n in numbers]),
            (lengths, steps, [_cell(content, MAIN_SIZE, budget, t) for t in steps]),
        ):
            known = [(value, cell[method]) for value, cell in zip(values, cells, strict=True) if cell]
            where, means = [value for value, _ in known], np.array([np.mean(scores) for _, scores in known])
            spread = np.array([np.std(scores, ddof=1) for _, scores in known])
            axis.plot(where, means, marker="o", color=f"C{index}", label=f"ε = {_label(budget)}")
            axis.fill_between(where, means - spread, means + spread, color=f"C{index}", alpha=0.15)
    sizes.plot(numbers, [content["baselines"][str(n)] for n in numbers], color="red", linestyle="--", label="plain")
    for axis in (boxes, lengths):
        axis.axhline(content["baselines"][str(MAIN_SIZE)], color="red", linestyle="--")
    sizes.set(title=f"{longest:,} steps", xlabel="N", xscale="log")
    sizes.set_xticks(numbers, [str(n) for n in numbers])
    sizes.set_xticks([], minor=True)
    lengths.set(title=f"N = {MAIN_SIZE}", xlabel="steps", xscale="log")
    sizes.legend(fontsize=8)
    picture.savefig(path, dpi=120)


def _near_the_ceiling(content: dict[str, Any], method: str) -> str:
    ceiling = np.mean(_longest(content, NOT_PRIVATE)[method])
    parts = [
        f"ε = {budget:g}: {np.mean(_longest(content, budget)[method]) - ceiling:+.3f}"
        for budget in content["settings"]["epsilons"]
        if budget >= 4
    ]
    return f"AUC minus that without privacy ({ceiling:.3f}): " + (", ".join(parts) or "not run")


def _above_the_baseline(content: dict[str, Any], method: str) -> str:
    if 2.0 not in content["settings"]["epsilons"]:
        return "not run"
    scores, baseline = np.array(_longest(content, 2.0)[method]), content["baselines"][str(MAIN_SIZE)]
    return (
        f"{scores.mean():.3f} against {baseline:.3f}, {int(np.sum(scores > baseline))} of {len(scores)} runs above it"
    )


def _by_size(content: dict[str, Any], method: str) -> str:
    longest, parts = max(content["settings"]["num_steps"]), []
    for budget in content["settings"]["epsilons"]:
        means = [np.mean(_cell(content, n, budget, longest)[method]) for n in content["settings"]["num_records"]]
        parts.append(f"ε = {budget:g}: {' → '.join(f'{mean:.3f}' for mean in means)}")
    return f"N = {', '.join(str(n) for n in content['settings']['num_records'])}: " + "; ".join(parts)


def _by_length(content: dict[str, Any], method: str) -> str:
    parts = []
    for budget in content["settings"]["epsilons"]:
        scores = [_cell(content, MAIN_SIZE, budget, t)[method] for t in content["settings"]["num_steps"]]
        parts.append(f"ε = {budget:g}: {' → '.join(f'{np.mean(each):.3f}' for each in scores)}")
    return f"{', '.join(f'{t:,}' for t in content['settings']['num_steps'])} steps: " + "; ".join(parts)


def _row(content: dict[str, Any], cell: dict[str, Any]) -> str:
    scores = " | ".join(f"{np.mean(cell[name]):.3f} ± {np.std(cell[name], ddof=1):.3f}" for name in _METHODS)
    return (
        f"| {cell['num_records']} | {cell['num_steps']:,} | {_label(cell['epsilon'])} | "
        f"{cell['noise_multiplier']:.2f} | {scores} | {content['baselines'][str(cell['num_records'])]:.3f} |"
    )


def _order(cell: dict[str, Any]) -> tuple[int, int, float]:
    return cell["num_records"], cell["num_steps"], float(cell["epsilon"])


def _budgets(content: dict[str, Any]) -> list[Any]:
    return [*content["settings"]["epsilons"], NOT_PRIVATE]


def _label(budget: Any) -> str:
    return "∞" if budget == NOT_PRIVATE else f"{budget:g}"


def _longest(content: dict[str, Any], budget: Any) -> dict[str, Any]:
    return _cell(content, MAIN_SIZE, budget, max(content["settings"]["num_steps"]))


def _cell(content: dict[str, Any], num_records: int, budget: Any, num_steps: int) -> dict[str, Any]:
    """A cell that is there; an empty one where it is not."""
    wanted = (num_records, budget, num_steps)
    for cell in content["cells"]:
        if (cell["num_records"], cell["epsilon"], cell["num_steps"]) == wanted:
            return cell
    return {}
