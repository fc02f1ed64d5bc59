"""How long one private step takes, side by side: ``python benchmarks/step.py [--quick] [--output FILE.json]``.

Every contestant lives in a process of its own and is timed once per round, in turn, so that all of them see the same
minutes of the machine; what is reported is the median over rounds of times and of ratios within a round. Writes the
JSON named by ``--output`` and the Markdown table made from it beside it. How a step grows: ``scaling.py``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.environments import D3P as D3P_ENVIRONMENT
from harness.output import RESULTS, machine, write
from harness.pool import REPOSITORY, Contestant, ContestantError, Worker, publishable, round_robin
from harness.problem import Problem
from harness.statistics import ratio, summary
from harness.step_report import markdown

OURS, D3P, HAND, NUMPYRO = "dpvi", "d3p 0.2.0", "hand-written", "NumPyro SVI"
# the same algorithm: per-record gradients by autodiff; the closed form exists for this one model only
YARDSTICK = f"{HAND}, vmap_grad"
FIRST_STEPS = 1000


def step_contestants(num_steps: int) -> list[Contestant]:
    """Contestants of the current stack. Slow ones run fewer steps per round."""
    hand = [
        Contestant(f"{HAND}, {score}", "hand_written", num_steps, {"score": score})
        for score in ("vmap_grad", "closed_form")
    ]
    numpyro = [
        Contestant(
            f"{NUMPYRO}, {guide}, batch {how}",
            "numpyro_svi",
            num_steps if batch == "given" else num_steps // 10,
            {"guide": guide, "batch": batch},
        )
        for batch, how in (("given", "given"), ("plate", "by the plate"))
        for guide in ("AutoDiagonalNormal", "AutoNormal")
    ]
    return [Contestant(OURS, "dpvi_step", num_steps), *hand, *numpyro]


def d3p_contestant(folder: Path, num_steps: int) -> Contestant:
    """d3p in its own environment; its OpenMP kernels are stable and faster with one thread."""
    python = D3P_ENVIRONMENT.interpreter(folder)
    return Contestant(D3P, "d3p_step", num_steps // 8, python=python, environment={"OMP_NUM_THREADS": "1"})


def fastest(seconds: dict[str, list[float]], prefix: str) -> str | None:
    """The variant of ``prefix`` with the smallest median: the one to be measured against."""
    names = [name for name in seconds if name.startswith(prefix)]
    return min(names, key=lambda name: summary(seconds[name], digits=12)["median"], default=None)


def first_results(
    contestants: Sequence[Contestant], problem: Problem, failed: dict[str, str]
) -> tuple[list[Worker], dict[str, dict[str, Any]]]:
    """Start one process after the other and time its first fit, compilation included."""
    workers, rows = [], {}
    for contestant in contestants:
        try:
            worker = Worker(contestant)
            seconds = worker.ask("first_result", problem, FIRST_STEPS)
        except ContestantError as error:
            failed[contestant.name] = str(error)
            continue
        workers.append(worker)
        imported = worker.hello["import_seconds"]
        rows[contestant.name] = {"first_result_seconds": round(seconds, 2), "import_seconds": round(imported, 2)}
        print(f"{contestant.name}: first result after {seconds:.1f} s", file=sys.stderr, flush=True)
    return workers, rows


def measure_step(contestants: Sequence[Contestant], rounds: int, failed: dict[str, str]) -> dict[str, Any]:
    """First results in fresh processes, then the interleaved rounds."""
    problem = Problem()
    workers, rows = first_results(contestants, problem, failed)
    seconds, stopped = round_robin([(worker.contestant.name, worker, problem) for worker in workers], rounds)
    failed.update(stopped)
    yardstick = YARDSTICK if YARDSTICK in seconds else None
    for name, values in seconds.items():
        rows[name]["milliseconds_per_step"] = summary(values, scale=1e3)
        if yardstick:
            rows[name]["ratio_to_hand_written"] = ratio(values, seconds[yardstick])
    for worker in workers:
        worker.close()
    return {
        "problem": {**problem.to_dict(), "sampling_rate": problem.sampling_rate},
        "first_result_steps": FIRST_STEPS,
        "contestants": {name: rows[name] for name in seconds},
        "yardsticks": {"hand_written": yardstick, "numpyro": fastest(seconds, NUMPYRO)},
        "ratios": step_ratios(seconds),
        "versions": {
            D3P if worker.contestant.name == D3P else "current stack": worker.hello["versions"] for worker in workers
        },
    }


def step_ratios(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """The ratios that have targets, against the same algorithm by hand and the fastest way to run NumPyro's SVI."""
    hand, numpyro = YARDSTICK if YARDSTICK in seconds else None, fastest(seconds, NUMPYRO)
    wanted = {
        "dpvi / hand-written": (OURS, hand),
        "dpvi / hand-written, closed form": (OURS, f"{HAND}, closed_form"),
        "dpvi / NumPyro SVI": (OURS, numpyro),
        "d3p / dpvi": (D3P, OURS),
        "d3p / hand-written": (D3P, hand),
    }
    return {
        name: ratio(seconds[above], seconds[below])
        for name, (above, below) in wanted.items()
        if above in seconds and below in seconds
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--output", type=Path, default=RESULTS / "step.json")
    parser.add_argument("--d3p-environment", type=Path, default=REPOSITORY / ".venv-d3p", help="made there if missing")
    options = parser.parse_args(arguments)
    num_steps = 4000  # at 10,000 the loops that draw everything ahead took about 9 % longer per step
    rounds = 5 if options.quick else 15

    failed: dict[str, str] = {}
    contestants = step_contestants(num_steps)
    try:
        contestants.append(d3p_contestant(options.d3p_environment, num_steps))
    except (RuntimeError, OSError) as error:
        failed[D3P] = publishable(f"its environment could not be made: {error}")
    content: dict[str, Any] = {
        "command": "python benchmarks/step.py" + (" --quick" if options.quick else ""),
        "machine": machine(),
        "rounds": rounds,
        "steps_per_measurement": {contestant.name: contestant.num_steps for contestant in contestants},
        "step": measure_step(contestants, rounds, failed),
    }
    content["not_measured"] = failed
    print(write(content, options.output, markdown))


if __name__ == "__main__":
    main()
