"""A step of this tree beside one of another: ``python benchmarks/before.py TREE [--rounds N] [--output FILE.json]``.

``TREE`` is a checkout of another commit, such as ``git worktree add ../before COMMIT`` makes. Each tree times its own
``contestants/dpvi_step.py`` in a process of its own, in turn, so that both see the same minutes of the machine; what is
reported is the median over rounds of times, and of ratios within a round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.output import RESULTS, machine, spread, table, write
from harness.pool import REPOSITORY, Contestant, Worker, round_robin
from harness.problem import Problem
from harness.statistics import ratio, summary

BEFORE, NOW = "before", "now"
# what `step.py` times, and the ends of the curves of `scaling.py`
PROBLEMS = {
    "step.py: 30,000 records, 100 columns, batch 300": (Problem(), 5_000),
    "10⁴ records, 20 columns": (Problem(num_records=10_000, dimension=20), 10_000),
    "10⁶ records, 20 columns": (Problem(num_records=1_000_000, dimension=20), 10_000),
    "batch 100": (Problem(num_records=100_000, dimension=20, expected_batch=100), 10_000),
    "batch 10,000": (Problem(num_records=100_000, dimension=20, expected_batch=10_000), 300),
    "1,000 columns": (Problem(num_records=10_000, dimension=1_000), 1_000),
}


def measured(before: Path, rounds: int) -> dict[str, Any]:
    rows = {}
    for name, (problem, num_steps) in PROBLEMS.items():
        contestants = [Contestant(label, "dpvi_step", num_steps, tree=tree) for label, tree in trees(before).items()]
        workers = [Worker(contestant) for contestant in contestants]
        seconds, failed = round_robin([(worker.contestant.name, worker, problem) for worker in workers], rounds)
        if failed:
            raise RuntimeError(str(failed))
        rows[name] = {
            **{label: summary(values, scale=1e3) for label, values in seconds.items()},
            "ratio": ratio(seconds[NOW], seconds[BEFORE]),
        }
        print(name, rows[name], file=sys.stderr, flush=True)
        for worker in workers:
            worker.close()
    return {"machine": machine(), "rounds": rounds, "milliseconds_per_step": rows}


def trees(before: Path) -> dict[str, Path]:
    return {BEFORE: before, NOW: REPOSITORY}


def markdown(content: dict[str, Any]) -> str:
    rows = [
        [name, f"{row[BEFORE]['median']:.4f}", f"{row[NOW]['median']:.4f}", spread(row["ratio"])]
        for name, row in content["milliseconds_per_step"].items()
    ]
    return f"# A step before and after\n\nMilliseconds; medians of {content['rounds']} rounds.\n\n" + (
        table(["", BEFORE, NOW, "ratio (quartiles)"], rows) + "\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--output", type=Path, default=RESULTS / "before.json")
    given = parser.parse_args(arguments)
    print(write(measured(given.tree.resolve(), given.rounds), given.output, markdown))


if __name__ == "__main__":
    main()
