"""Table and picture of ``scaling.json``; made from the JSON alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from harness.output import spread, table

FLAT_TARGET, HAND_TARGET, PROCESSES_TARGET = 1.1, 1.3, 1.5
LABELS = {"records": "number of records", "dimension": "dimension", "batch": "expected batch"}
MODELS = {
    "random_effect": f"Bound by computing (target: two processes, at least {PROCESSES_TARGET}), logistic regression "
    "with a normal effect of every record, integrated out by quadrature with 64 nodes",
    "regression": "Bound by memory, logistic regression",
}

_THROUGHPUTS = ("throughput", "throughput_apart")
_ABOUT_PROCESSES = (
    "One core and one thread each. **Sharing nothing**: as many processes at once, each with the whole work for "
    "itself; what they get done relative to one alone is what the machine's cores allow."
)


def markdown(content: dict[str, Any]) -> str:
    machine, problem = content["machine"], content["problem"]
    parts = [
        "# How a step scales",
        f"Made by `{content['command']}`; {machine['cores']} cores ({machine['architecture']}), medians over "
        f"{content['rounds']} interleaved rounds. Logistic regression; unless it varies N = "
        f"{problem['num_records']:,}, d = {problem['dimension']}, expected batch {problem['expected_batch']}. "
        "Milliseconds, in brackets the ratio to the first row; where the hand-written loop was measured, step / "
        "hand-written at the same point, in brackets the quartiles. The loop is that of `contestants/hand_written.py`: "
        "per-record gradients by autodiff, all randomness drawn ahead. The mapped file is a hole of zeros; pages that "
        "were read before are in the operating system's memory.",
    ]
    for name, rows in content["curves"].items():
        parts += [f"## Against the {LABELS[name]}", _curve(LABELS[name], rows)]
        parts += _about_records(rows) if name == "records" else _about_growth(LABELS[name], rows)
    parts += _processes(content)
    if content["not_measured"]:
        parts.append("Not measured: " + "; ".join(f"{k}: {v}" for k, v in content["not_measured"].items()) + ".")
    return "\n\n".join(parts) + "\n"


def _curve(label: str, rows: dict[str, Any]) -> str:
    values = sorted({int(value) for row in rows.values() for value in row})
    compared = any("ratio_to_hand_written" in cell for cell in rows.get("step", {}).values())
    columns = [*rows, "step / hand-written"] if compared else [*rows]
    lines = []
    for value in values:
        cells = [_cell(row.get(str(value))) for row in rows.values()]
        if compared:
            cells.append(_spread(rows["step"].get(str(value), {}).get("ratio_to_hand_written")))
        lines.append((f"{value:,}", *cells))
    return table((label, *columns), lines)


def _cell(cell: dict[str, Any] | None) -> str:
    return f"{cell['milliseconds']['median']:.4f} ({cell['ratio_to_first']['median']:.2f})" if cell else ""


def _spread(ratio: dict[str, Any] | None) -> str:
    return spread(ratio) if ratio else ""


def _about_records(rows: dict[str, Any]) -> list[str]:
    """The two targets at a fixed expected batch."""
    lines = []
    if "sampler" in rows:
        medians = [cell["ratio_to_first"]["median"] for cell in rows["sampler"].values()]
        lines.append(f"Sampler, slowest / fastest N: {max(medians) / min(medians):.2f} (target ≤ {FLAT_TARGET}).")
    cells = [cell["ratio_to_hand_written"] for cell in rows.get("step", {}).values() if "ratio_to_hand_written" in cell]
    if cells:
        worst = max(cell["median"] for cell in cells)
        lines.append(f"Step / hand-written at the same N, largest: {worst:.2f} (target ≤ {HAND_TARGET}).")
    return lines


def _about_growth(label: str, rows: dict[str, Any]) -> list[str]:
    """How much faster than what varies a time grows from one row to the next, at most."""
    growths = []
    for name, row in rows.items():
        points = [(int(value), cell["milliseconds"]["median"]) for value, cell in row.items()]
        steepest = [(t2 / t1) / (v2 / v1) for (v1, t1), (v2, t2) in itertools.pairwise(points)]
        growths.append(f"{name} {max(steepest, default=1.0):.2f}")
    return [f"Growth from one row to the next / growth of the {label}, largest (linear: ≤ 1): {', '.join(growths)}."]


def _processes(content: dict[str, Any]) -> list[str]:
    parts = ["## Against the number of processes", _ABOUT_PROCESSES] if content["processes"] else []
    for model, measured in content["processes"].items():
        problem = measured["problem"]
        lines = [
            (
                number,
                f"{row['milliseconds']['median']:.3f}",
                _spread(row["throughput"]),
                _spread(row.get("throughput_apart")),
            )
            for number, row in measured["rows"].items()
        ]
        parts += [
            f"{MODELS[model]}: N = {problem['num_records']:,}, d = {problem['dimension']}, expected batch "
            f"{problem['expected_batch']:,}.",
            table(("processes", "ms per step", "throughput relative to one (quartiles)", "sharing nothing"), lines),
        ]
    return parts


def picture(content: dict[str, Any], path: Path) -> None:
    """One panel per curve; nothing where matplotlib is missing."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.5), constrained_layout=True)
    for axis, (name, rows) in zip(axes.flat, content["curves"].items(), strict=False):
        for label, row in rows.items():
            values = [int(value) for value in row]
            axis.loglog(values, [cell["milliseconds"]["median"] for cell in row.values()], "o-", label=label)
        axis.set(xlabel=LABELS[name], ylabel="ms")
        axis.legend(frameon=False)
    last = axes.flat[3]
    numbers: list[int] = []
    for model, measured in content["processes"].items():
        numbers = [int(number) for number in measured["rows"]]
        gains = [row["throughput"]["median"] if row["throughput"] else 1.0 for row in measured["rows"].values()]
        last.plot(numbers, gains, "o-", label=MODELS[model].partition(",")[0].partition(" (")[0].lower())
    last.plot(numbers, numbers, "--", color="grey", label="as many times faster")
    last.set(xlabel="processes, one core each", ylabel="throughput relative to one", xticks=numbers)
    last.legend(frameon=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
