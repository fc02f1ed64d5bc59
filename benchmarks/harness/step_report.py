"""The Markdown tables of ``step.json``; made from the JSON alone: ``python -m harness.step_report FILE.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness.output import spread, table

# name of the ratio -> (bound, whether it is an upper bound); from the engine's goals
TARGETS = {
    "dpvi / hand-written": (1.3, True),
    "dpvi / NumPyro SVI": (2.0, True),
    "d3p / dpvi": (10.0, False),
}
FIRST_RESULT_TARGET = 15.0


def markdown(content: dict[str, Any]) -> str:
    """All tables of one run."""
    parts = [
        "# One private step",
        f"Made by `{content['command']}`; {content['machine']['cores']} cores ({content['machine']['architecture']}), "
        f"median (quartiles) over {content['rounds']} interleaved rounds.",
        *_step(content["step"]),
    ]
    if content["not_measured"]:
        parts += [
            "## Not measured",
            "\n".join(f"- {name}: {reason}" for name, reason in content["not_measured"].items()),
        ]
    for name, found in content["step"]["versions"].items():
        listed = ", ".join(f"{package} {version}" for package, version in found.items())
        parts.append(f"Versions, {name}: {listed}.")
    return "\n\n".join(parts) + "\n"


def _step(step: dict[str, Any]) -> list[str]:
    problem = step["problem"]
    rows = [
        (
            name,
            spread(row["milliseconds_per_step"], 4),
            spread(row["ratio_to_hand_written"], 2) if "ratio_to_hand_written" in row else "",
            f"{row['first_result_seconds']:.1f}",
            f"{row['import_seconds']:.1f}",
        )
        for name, row in step["contestants"].items()
    ]
    first = f"first {step['first_result_steps']:,} steps, s"
    header = ("contestant", "ms per step", "× hand-written", first, "import, s")
    return [
        f"## Logistic regression, N = {problem['num_records']:,}, d = {problem['dimension']}, "
        f"κ = {problem['sampling_rate']}",
        f"Mean field, one draw, Adam, expected batch {problem['expected_batch']}. The yardstick of a kind is its "
        f"fastest variant here: {step['yardsticks']['hand_written']}; {step['yardsticks']['numpyro']}. "
        "First steps: a fresh process, compilation included, imports not.",
        table(header, rows),
        table(("ratio", "measured", "target", "met"), _targets(step)),
    ]


def _targets(step: dict[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for name, measured in step["ratios"].items():
        bound, upper = TARGETS.get(name, (None, True))
        rows.append((name, spread(measured, 2), *_verdict(measured["median"], bound, upper)))
    if "dpvi" in step["contestants"]:
        first = step["contestants"]["dpvi"]["first_result_seconds"]
        rows.append(("dpvi, first result, s", f"{first:.1f}", *_verdict(first, FIRST_RESULT_TARGET, True)))
    return rows


def _verdict(value: float, bound: float | None, upper: bool) -> tuple[str, str]:
    if bound is None:
        return "", ""
    return f"{'≤' if upper else '≥'} {bound:g}", "yes" if (value <= bound) == upper or value == bound else "no"


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text())))
