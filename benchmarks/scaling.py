"""How a step scales with records, dimension, batch and processes: ``python benchmarks/scaling.py [--quick]``.

Every curve is measured in interleaved rounds, so that its points see the same minutes of the machine; ratios are taken
within a round. Writes ``--output`` (JSON), a Markdown table and, where matplotlib is installed, a picture beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.group import Group
from harness.output import RESULTS, machine, write
from harness.pool import Contestant, ContestantError, Worker, round_robin
from harness.problem import Problem
from harness.scaling_report import markdown, picture
from harness.statistics import ratio, summary

STEP, HAND, SAMPLER, MAPPED = "step", "hand-written", "sampler", "step, mapped file"
BASE = Problem(num_records=100_000, dimension=20)
NUM_STEPS = 2000
# model -> problem and steps: large batches, of which one model computes much and the other fetches many columns
SPREAD = {
    "random_effect": (Problem(num_records=400_000, dimension=20, expected_batch=40_000), 50),
    "regression": (Problem(num_records=100_000, dimension=200, expected_batch=10_000), 100),
}

FULL = {
    "records": [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000],
    "dimension": [10, 30, 100, 300, 1000],
    "batch": [100, 300, 1000, 3000, 10_000],
    "processes": [1, 2],
}
QUICK = {"records": [10_000, 100_000_000], "dimension": [10, 100], "batch": [100, 1000], "processes": [1, 2]}
MOST_IN_MEMORY = 10_000_000  # a hundred million rows of 20 columns would need 8 GB


def curve(
    contestants: dict[str, Contestant], points: Sequence[tuple[int, Problem]], rounds: int, failed: dict[str, str]
) -> dict[str, Any]:
    """Milliseconds of every contestant at every point, and ratios to the first point and to the hand-written loop."""
    workers = []
    for name, contestant in contestants.items():
        try:
            workers.append(Worker(contestant))
        except ContestantError as error:
            failed[name] = str(error)
    # points outside, workers inside: every measurement comes just after another process had the machine
    entries = [
        (f"{worker.contestant.name}|{value}", worker, problem)
        for value, problem in points
        for worker in workers
        if not worker.contestant.needs_records or problem.num_records <= MOST_IN_MEMORY
    ]
    seconds, stopped = round_robin(entries, rounds)
    failed.update(stopped)
    for worker in workers:
        worker.close()
    return rows_of(seconds)


def rows_of(seconds: dict[str, list[float]]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for key, values in seconds.items():
        name, _, value = key.partition("|")
        first = next(each for other, each in seconds.items() if other.startswith(f"{name}|"))
        rows.setdefault(name, {})[value] = {
            "milliseconds": summary(values, scale=1e3, digits=5),
            "ratio_to_first": ratio(values, first),
        }
        hand = seconds.get(f"{HAND}|{value}")
        if name == STEP and hand:
            rows[name][value]["ratio_to_hand_written"] = ratio(values, hand)
    return rows


def measure_processes(model: str, numbers: Sequence[int], rounds: int, failed: dict[str, str]) -> dict[str, Any]:
    """The same run by groups of processes, one core and one thread each; throughput relative to one process.

    Beside it that of as many processes at once which share nothing: no more can be had of the machine's cores.
    """
    problem, num_steps = SPREAD[model]
    contestant = Contestant("processes", "dpvi_processes", num_steps, options={"model": model})
    groups: dict[str, Group] = {}
    for number in numbers:
        for name, apart in ((str(number), False), (f"{number} apart", True))[: 1 + (number > 1)]:
            try:
                groups[name] = Group(contestant, number, apart)
            except ContestantError as error:
                failed[f"{model}, {name}"] = str(error)
    entries: Any = [(name, group, problem) for name, group in groups.items()]
    seconds, stopped = round_robin(entries, rounds)
    failed.update({f"{model}, {name}": reason for name, reason in stopped.items()})
    for group in groups.values():
        group.close()
    one = seconds.get("1")
    rows = {}
    for number in map(str, numbers):
        if number in seconds:
            rows[number] = {
                "milliseconds": summary(seconds[number], scale=1e3, digits=5),
                "throughput": ratio(one, seconds[number]) if one else None,
            }
        apart = seconds.get(f"{number} apart")
        if one and apart and number in rows:
            rows[number]["throughput_apart"] = ratio([int(number) * each for each in one], apart)
    print(f"processes measured: {model}", file=sys.stderr, flush=True)
    return {"problem": problem.to_dict(), "rows": rows}


def measure(points: dict[str, list[int]], rounds: int, wanted: Sequence[str]) -> dict[str, Any]:
    failed: dict[str, str] = {}
    step = Contestant(STEP, "dpvi_step", NUM_STEPS)
    hand = Contestant(HAND, "hand_written", NUM_STEPS, {"score": "vmap_grad"})
    sampler = Contestant(SAMPLER, "dpvi_sampler", 4 * NUM_STEPS, needs_records=False)
    many_draws = replace(sampler, num_steps=16 * NUM_STEPS)  # a tenth of a second: shorter ones differ by more than 1.1
    mapped = Contestant(MAPPED, "dpvi_mapped_step", NUM_STEPS // 4, needs_records=False)
    by_records = [(n, replace(BASE, num_records=n)) for n in points["records"]]
    by_dimension = [(d, replace(BASE, dimension=d)) for d in points["dimension"]]
    by_batch = [(b, replace(BASE, expected_batch=b)) for b in points["batch"]]
    curves = {}
    for name, contestants, values in (
        ("records", {STEP: step, HAND: hand, SAMPLER: many_draws, MAPPED: mapped}, by_records),
        ("dimension", {STEP: step, HAND: hand}, by_dimension),
        ("batch", {STEP: step, HAND: hand, SAMPLER: sampler}, by_batch),
    ):
        if name not in wanted:
            continue
        curves[name] = curve(contestants, values, rounds, failed)
        print(f"{name} measured", file=sys.stderr, flush=True)
    models = SPREAD if "processes" in wanted else {}
    processes = {model: measure_processes(model, points["processes"], rounds, failed) for model in models}
    return {"curves": curves, "processes": processes, "not_measured": failed}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and points")
    parser.add_argument("--rounds", type=int, help="rounds per curve")
    parser.add_argument("--curves", nargs="+", choices=FULL, default=list(FULL), help="what to measure; all by default")
    parser.add_argument("--processes", type=int, nargs="+", help="numbers of processes, the first of them 1")
    parser.add_argument("--output", type=Path, default=RESULTS / "scaling.json")
    options = parser.parse_args(arguments)
    points, rounds = (QUICK, 3) if options.quick else (FULL, 9)
    points = {**points, "processes": options.processes or points["processes"]}
    rounds = options.rounds or rounds
    content = {
        "command": " ".join(["python benchmarks/scaling.py", *(arguments if arguments is not None else sys.argv[1:])]),
        "machine": machine(),
        "rounds": rounds,
        "problem": BASE.to_dict(),
        **measure(points, rounds, options.curves),
    }
    text = write(content, options.output, markdown)
    picture(content, options.output.with_suffix(".png"))
    print(text)


if __name__ == "__main__":
    main()
