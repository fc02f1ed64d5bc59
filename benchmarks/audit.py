"""Audits of the shipped mechanism, and of faults planted in it: measured lower bounds on ε beside what is promised.

    python benchmarks/audit.py --output benchmarks/results/audit.json

writes the numbers, a table and a plot. Rows of the shipped mechanism must lie below the promise and above half of it
(one-run audits excepted, whose power is what it is); rows with a fault above the promise. It takes about a quarter of
an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from harness.audit_faults import FAULTS, plan_of

import dpvi
from dpvi.auditing.plot import draw_audit
from dpvi.reporting.plots import new_figure

SEED = 15
EPSILONS, RATES = (0.5, 1.0, 4.0), (1.0, 0.5)
TRIALS = {
    "step": dict.fromkeys(EPSILONS, 200_000),
    "fits": {0.5: 40_000, 1.0: 12_000, 4.0: 4_000},  # the smaller the signal, the more trials it takes to see it
    "one_run": dict.fromkeys(EPSILONS, 5_000),
}


def shipped(mode: str, epsilon: float, rate: float, seed: int) -> dpvi.Audit:
    return dpvi.audit(plan_of(epsilon, rate), mode=mode, num_trials=TRIALS[mode][epsilon], seed=seed)


def row(name: str, found: dpvi.Audit, seconds: float) -> dict[str, Any]:
    content = found.to_dict()
    kept = ("mode", "background", "seed", "num_trials", "num_steps", "confidence", "statistic", "counts", "noise_share")
    return {
        "mechanism": name,
        "epsilon": found.promise,
        "sampling_rate": found.plan.sampling_rate,
        "epsilon_lower": found.epsilon_lower,
        "epsilon_of_any_mechanism": found.epsilon_of_any_mechanism,
        "holds": found.holds,
        "seconds": round(seconds, 1),
        **{key: content[key] for key in kept},
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Audits of the shipped mechanism and of planted faults",
        "",
        f"`make audit`. Ten steps, δ = 1e-5, confidence 99 %, seeds from {SEED} on. A fault is found where the "
        "measured lower bound is above what is promised. [How to read it](../../docs/how-to/audit.md).",
        "",
        "| mechanism | mode | rate | trials a side | promised ε | measured ε ≥ | of any mechanism ε ≥ | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in rows:
        any_kind = "" if each["epsilon_of_any_mechanism"] is None else f"{each['epsilon_of_any_mechanism']:.2f}"
        lines.append(
            f"| {each['mechanism']} | {each['mode']} | {each['sampling_rate']:g} | {each['num_trials']:,} | "
            f"{each['epsilon']:g} | {each['epsilon_lower']:.3g} | {any_kind} | "
            f"{'holds' if each['holds'] else 'BROKEN'} |"
        )
    return "\n".join(lines) + "\n"


def plot(audits: dict[str, dpvi.Audit]) -> Any:
    figure, axes = new_figure(len(audits), 2, size=(10.5, 4 * len(audits)))
    for panels, (name, found) in zip(axes, audits.items(), strict=True):
        draw_audit(panels, found)
        verdict = f"{name}: measured ε ≥ {found.epsilon_lower:.3g}, promised {found.promise:.3g}"
        panels[0].set_title(verdict, fontsize=10, loc="left")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/audit.json"))
    output = parser.parse_args().output
    rows: list[dict[str, Any]] = []
    audits: dict[str, dpvi.Audit] = {}

    def keep(name: str, run: Any) -> dpvi.Audit:
        begin = time.perf_counter()
        found = run(SEED + len(rows))  # rows are independent of each other
        rows.append(row(name, found, time.perf_counter() - begin))
        print(table(rows).splitlines()[-1], flush=True)
        return found

    for mode in TRIALS:
        for epsilon in EPSILONS:
            for rate in RATES:
                found = keep("as shipped", lambda seed, m=mode, e=epsilon, r=rate: shipped(m, e, r, seed))
                if (epsilon, rate) == (1.0, 0.5):
                    audits[f"as shipped, mode {mode}, rate 0.5"] = found
    for fault in FAULTS:
        found = keep(fault.name, lambda seed, f=fault: f.audit(seed))
        if (fault.name, fault.mode, fault.sampling_rate) == ("noise 10 % short", "step", 0.5):
            audits[f"{fault.name}, mode step, rate 0.5"] = found
    output.write_text(json.dumps({"audits": rows}, indent=2) + "\n", encoding="utf-8")
    output.with_suffix(".md").write_text(table(rows), encoding="utf-8")
    plot(audits).savefig(output.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
