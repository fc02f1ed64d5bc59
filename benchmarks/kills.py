"""Runs that are killed by SIGKILL at random moments and resumed: ``python benchmarks/kills.py --seeded 200``.

A process fits, is charged to a ledger and saves its result (``tests/support/checkpoint_worker.py``). It is killed after
a random time, and started again, until it is done. With a seed every trace must be that of a run that nobody disturbed.
Without one, each must be a whole, finite trace. The ledger must have one entry, which is spent.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from harness.output import RESULTS, machine, write
from harness.pool import BENCHMARKS

import dpvi

WORKER = BENCHMARKS.parent / "tests" / "support" / "checkpoint_worker.py"
_MOST_KILLS = 8  # of one run


def started(folder: Path, seed: int | None) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), str(folder), str(seed).lower()]
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent / "src")}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def one_run(folder: Path, seed: int | None, longest: float | None, rng: np.random.Generator) -> dict[str, Any]:
    """How often it was killed and where it stood then, and what became of it; never, where ``longest`` is None."""
    kills, resumed_at = 0, []
    while True:
        process = started(folder, seed)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            patience = None if longest is None or kills == _MOST_KILLS else float(rng.uniform(0, longest))
            _, message = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            resumed_at.append(step_of(folder / "a.checkpoint"))
            continue
        if process.returncode:
            raise RuntimeError(message[-2000:])
        entries = dpvi.Ledger(folder / "a.ledger").entries.values()
        return {"kills": kills, "resumed_at": resumed_at, "entries": [entry.state for entry in entries]}


def step_of(path: Path) -> int:
    if not path.exists():
        return 0
    with np.load(path) as archive:
        return int(archive["step"]) if "step" in archive.files else 0


def trace_of(folder: Path) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(dpvi.Result.load(folder / "result.npz").trace)]


def study(num_seeded: int, num_unseeded: int) -> dict[str, Any]:
    rng, seed = np.random.default_rng(), secrets.randbits(256)
    with tempfile.TemporaryDirectory() as name:
        undisturbed = Path(name) / "undisturbed"
        undisturbed.mkdir()
        began = time.perf_counter()
        one_run(undisturbed, seed, None, rng)
        longest, expected = time.perf_counter() - began, trace_of(undisturbed)
        rows = []
        for number in range(num_seeded + num_unseeded):
            folder = Path(name) / str(number)
            folder.mkdir()
            seeded = number < num_seeded
            found = one_run(folder, seed if seeded else None, longest, rng)
            trace = trace_of(folder)
            equal = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(trace, expected, strict=True))
            whole = [leaf.shape for leaf in trace] == [leaf.shape for leaf in expected]
            finite = all(np.all(np.isfinite(leaf)) for leaf in trace)
            rows.append({"seeded": seeded, **found, "equal": equal, "whole": whole and finite})
            print(json.dumps(rows[-1]), flush=True)
    return {"machine": machine(), "runs": rows}


def markdown(content: dict[str, Any]) -> str:
    lines = [
        "| runs | killed | resumed from the middle | right at the end | entries in the ledger |",
        "| --- | --- | --- | --- | --- |",
    ]
    for seeded, name, right in ((True, "seeded", "equal"), (False, "unseeded", "whole")):
        rows = [row for row in content["runs"] if row["seeded"] == seeded]
        kills, middle = sum(row["kills"] for row in rows), sum(sum(at > 0 for at in row["resumed_at"]) for row in rows)
        once = sum(row["entries"] == ["spent"] for row in rows)
        what = "same trace as undisturbed" if seeded else "whole and finite"
        lines.append(
            f"| {len(rows)} {name} | {kills} times | {middle} times | {sum(row[right] for row in rows)} {what} | "
            f"one, spent: {once} |"
        )
    return "\n".join(["# Runs that are killed and resumed", "", *lines, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeded", type=int, default=200)
    parser.add_argument("--unseeded", type=int, default=50)
    parser.add_argument("--output", type=Path, default=RESULTS / "kills.json")
    given = parser.parse_args()
    print(write(study(given.seeded, given.unseeded), given.output, markdown))
