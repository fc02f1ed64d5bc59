"""Many fits of a small model against a hand-vmapped loop: ``python benchmarks/many.py [--num-sets 1000]``.

Every measurement is a fresh process on the same two cores: the clock runs from data sets on the host to traces on the
host, compilation and checks included, imports not. Rounds are interleaved and ratios are taken within a round, of the
wall clock and of processor time, which the other work of a busy machine disturbs less. Writes ``--output`` (JSON) and
a Markdown table beside it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.output import RESULTS, machine, spread, table, write
from harness.pool import BENCHMARKS, REPOSITORY
from harness.problem import Problem
from harness.statistics import ratio, summary
from harness.studies import Study, data_sets

CORES = 2
TARGET = 1.3
OURS, HAND = "fit_many", "hand-vmapped"
# name -> module, options; of a kind the fastest counts
CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{OURS}, one device": ("dpvi_many", {"spread": False}),
    f"{OURS}, a device per core": ("dpvi_many", {"spread": True}),
    f"{HAND}, draws inside": ("hand_vmapped", {"draws": "inside", "spread": False}),
    f"{HAND}, draws ahead": ("hand_vmapped", {"draws": "ahead", "spread": False}),
    f"{HAND}, draws inside, a device per core": ("hand_vmapped", {"draws": "inside", "spread": True}),
}


def in_this_process(name: str, study: Study) -> dict[str, float]:
    """Seconds of one contestant, by the wall clock and of the processor."""
    module, options = CONTESTANTS[name]
    contestant = importlib.import_module(f"contestants.{module}")
    data_sets(study)  # simulated outside the clock
    if hasattr(contestant, "make_plan"):
        contestant.make_plan(study.problem, study.num_steps)  # cached: the accountant is no part of a fit
    wall, processor = time.perf_counter(), time.process_time()
    contestant.run(study, **options)
    return {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}


def in_a_fresh_process(name: str, arguments: Sequence[str]) -> dict[str, float]:
    spread = CONTESTANTS[name][1]["spread"]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), str(REPOSITORY / "src")]),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={CORES}" if spread else "",
    }
    command = [sys.executable, str(Path(__file__).resolve()), *arguments, "--contestant", name]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(names: Sequence[str], rounds: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Every contestant once a round; ratios to the fastest hand-vmapped loop, by the median of each clock."""
    seconds: dict[str, dict[str, list[float]]] = {name: {"wall": [], "processor": []} for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in [*names[shift:], *names[:shift]]:
            for clock, value in in_a_fresh_process(name, arguments).items():
                seconds[name][clock].append(value)
            print(f"round {number + 1}: {name} {seconds[name]['wall'][-1]:.1f} s", file=sys.stderr, flush=True)
    rows: dict[str, Any] = {name: {} for name in names}
    for clock in ("wall", "processor"):
        medians = {name: summary(times[clock])["median"] for name, times in seconds.items()}
        yardstick = min((name for name in names if name.startswith(HAND)), key=medians.__getitem__)
        for name in names:
            rows[name][clock] = {
                "seconds": summary(seconds[name][clock], digits=2),
                "ratio": ratio(seconds[name][clock], seconds[yardstick][clock]),
            }
    return rows


def markdown(content: dict[str, Any]) -> str:
    place, problem = content["machine"], content["problem"]
    rows = []
    best: dict[str, float] = {}
    for name, row in content["contestants"].items():
        cells = []
        for clock in ("wall", "processor"):
            share = row[clock]["ratio"]
            cells += [f"{row[clock]['seconds']['median']:.1f}", spread(share)]
            if name.startswith(OURS):
                best[clock] = min(best.get(clock, float("inf")), share["median"])
        rows.append((name, *cells))
    header = ("contestant", "wall, s", "× hand-vmapped", "processor, s", "× hand-vmapped")
    met = "yes" if best["wall"] <= TARGET else "no"
    made = (
        f"Made by `{content['command']}`; {place['cores_used']} of {place['cores']} cores "
        f"({place['architecture']}), medians (quartiles) over {content['rounds']} interleaved rounds. "
        f"{content['num_sets']:,} data sets of N = {problem['num_records']:,} records, logistic regression, "
        f"d = {problem['dimension']}, expected batch {problem['expected_batch']}, {content['num_steps']:,} steps each. "
        "A fresh process each time, compilation included; imports and the accountant are not. The yardstick is the "
        "fastest hand-vmapped loop of each clock."
    )
    verdict = (
        f"fit_many / hand-vmapped by the wall clock: {best['wall']:.2f} (target ≤ {TARGET}; met: {met}); of processor "
        f"time: {best['processor']:.2f}."
    )
    return "\n\n".join(["# Many fits of a small model", made, table(header, rows), verdict]) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--num-sets", type=int, default=1000, help="data sets")
    parser.add_argument("--num-records", type=int, default=500, help="records of a data set")
    parser.add_argument("--num-steps", type=int, default=10_000, help="steps of a fit")
    parser.add_argument("--dimension", type=int, default=5)
    parser.add_argument("--expected-batch", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="NAME")
    parser.add_argument("--contestant", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS / "many.json")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    problem = Problem(options.num_records, options.dimension, options.expected_batch)
    study = Study(problem, options.num_sets, options.num_steps)
    if options.contestant:
        print(json.dumps(in_this_process(options.contestant, study)))
        return
    if hasattr(os, "sched_setaffinity"):  # inherited by what is measured
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    content = {
        "command": " ".join(["python benchmarks/many.py", *given]),
        "machine": {**machine(), "cores_used": CORES},
        "rounds": options.rounds,
        "problem": asdict(problem),
        "num_sets": options.num_sets,
        "num_steps": options.num_steps,
        "contestants": measure(options.contestants, options.rounds, given),
    }
    print(write(content, options.output, markdown))


if __name__ == "__main__":
    main()
