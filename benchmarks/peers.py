"""dpvi beside what a user would pick instead: ``python benchmarks/peers.py [--quick] [--output FILE.json]``.

The same private logistic regression, hierarchical model and variational auto-encoder (:mod:`harness.tasks`) in every
library, each in an environment of its own that this script makes, with the same batch size, steps, clip norm,
optimiser and true ε (:mod:`harness.true_epsilon`). The first model of a fresh process gives time to first result and
peak memory. Then all processes train whole models in turn, round after round: time per step without compilation, and
the test log loss of every model. Writes the JSON named by ``--output`` and the Markdown made from it beside it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import environments
from harness.judge import reference_losses
from harness.output import RESULTS, machine, write
from harness.peers_report import markdown
from harness.pool import REPOSITORY, Contestant, ContestantError, Worker, publishable
from harness.statistics import ratio, summary
from harness.tasks import HIERARCHICAL, LOGISTIC, VAE, Task, black_and_white, simulated
from harness.true_epsilon import calibrated, hidden_epsilon

OURS = "dpvi"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Peer:
    """A library and a way to use it.

    Attributes
    ----------
    trains
        What it trains: for the regressions, and for the auto-encoder. None where it cannot, with ``reason``.
    sampling
        One of :data:`harness.true_epsilon.SAMPLING`; None where it is not private.
    variables
        By task, environment variables that make it faster.
    """

    name: str
    module: str
    trains: tuple[str | None, str | None]
    sampling: str | None = None
    environment: environments.Environment | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reason: str = ""

    def on(self, task: Task) -> str | None:
        return self.trains[task.name == "vae"]


# small operations of torch, and d3p's ChaCha, are faster and steadier on one thread
_SMALL = {"logistic": ONE_THREAD, "hierarchical": ONE_THREAD}
_OPACUS = {
    "module": "peer_opacus",
    "environment": environments.OPACUS,
    "variables": _SMALL,
    "sampling": "Poisson, 1/⌈N/B⌉",
}
PEERS = (
    Peer(OURS, "peer_dpvi", ("posterior", "ELBO"), "Poisson"),
    Peer(
        "d3p 0.2.0",
        "peer_d3p",
        ("posterior", "ELBO"),
        "fixed size",
        environments.D3P,
        variables={**_SMALL, "vae": ONE_THREAD},
    ),
    Peer("Opacus, mean field by hand", trains=("posterior", None), options={"kind": "mean field"}, **_OPACUS),
    Peer("Opacus", trains=("mode", "ELBO"), options={"kind": "point"}, **_OPACUS),
    Peer("Opacus, ghost clipping", trains=("mode", "ELBO"), options={"kind": "ghost"}, **_OPACUS),
    Peer("jax-privacy, ELBO by hand", "peer_jax_privacy", ("posterior", "ELBO"), "Poisson", environments.JAX_PRIVACY),
    Peer("NumPyro SVI", "peer_numpyro", ("posterior", "ELBO")),
    Peer(
        "PyMC ADVI",
        "peer_pymc",
        ("posterior", None),
        environment=environments.PYMC,
        reason="cannot: its approximations have no parameters computed from a record",
    ),
)


def worker_of(peer: Peer, task: Task) -> Worker:
    """Start a process for ``peer``, making its environment if there is none."""
    try:
        folder = REPOSITORY / f".venv-{peer.environment.name}" if peer.environment else None
        python = peer.environment.interpreter(folder) if peer.environment and folder else sys.executable
    except (RuntimeError, OSError) as error:
        raise ContestantError(publishable(f"its environment could not be made: {error}")) from None
    variables = peer.variables.get(task.name, {})
    contestant = Contestant(peer.name, peer.module, task.num_steps, peer.options, python, variables)
    return Worker(contestant)


def data_of(task: Task, folder: Path) -> tuple[Path, dict[str, float]]:
    """The file that all peers read, and losses to compare with."""
    if task.name == "vae":
        from studies.datasets.mnist import mnist

        digits = mnist()
        data = black_and_white(digits.train.images[: task.num_records], digits.test.images[: task.num_test])
    else:
        data = simulated(task)
    path = folder / f"{task.name}.npz"
    np.savez(path, **data)
    return path, reference_losses(task, data)


def first_models(
    task: Task, data: Path, tasks: Mapping[str, Task], failed: dict[str, str]
) -> tuple[dict[str, Worker], dict[str, dict[str, Any]]]:
    """One process after the other, from nothing to a trained model."""
    workers, rows = {}, {}
    for peer in PEERS:
        if peer.on(task) is None:
            if peer.reason:
                failed[peer.name] = peer.reason
            continue
        try:
            worker_of(peer, task).close()  # makes the environment, and brings its files into memory
            began = time.time()
            worker = worker_of(peer, task)
            answer = worker.train(tasks[peer.name], data, seed=0)
        except ContestantError as error:
            failed[peer.name] = str(error)
            continue
        workers[peer.name] = worker
        rows[peer.name] = {
            "trains": peer.on(task),
            "private": peer.sampling is not None,
            "first_model_seconds": round(answer["finished"] - began, 2),
            "peak_megabytes": round(answer["peak_megabytes"]),
            "versions": worker.hello["versions"],
        }
        print(
            f"{task.name}, {peer.name}: first model after {rows[peer.name]['first_model_seconds']} s", file=sys.stderr
        )
    return workers, rows


def rounds_of(
    workers: Mapping[str, Worker], tasks: Mapping[str, Task], data: Path, rounds: int, failed: dict[str, str]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds per step and test log loss of whole models, trained in turn; each round begins one process later."""
    names = list(workers)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    losses: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1, rounds + 1):
        shift = number % len(names)
        for name in [*names[shift:], *names[:shift]]:
            if name in failed:
                continue
            try:
                answer = workers[name].train(tasks[name], data, seed=number)
            except ContestantError as error:
                failed[name] = str(error)
                continue
            seconds[name].append(answer["seconds"])
            losses[name].append(answer["log_loss"])
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    return seconds, losses


def measure(task: Task, rounds: int, folder: Path) -> dict[str, Any]:
    """All that is reported of one task."""
    content: dict[str, Any] = {"task": {**task.to_dict(), "noise_multiplier": None}, "rounds": rounds}
    try:
        data, content["reference_log_losses"] = data_of(task, folder)
    except FileNotFoundError as error:
        return {**content, "skipped": publishable(str(error))}
    privacy = {peer.name: calibrated(task, peer.sampling) for peer in PEERS if peer.sampling and peer.on(task)}
    tasks = {
        peer.name: replace(task, noise_multiplier=privacy.get(peer.name, {}).get("noise_multiplier", 0.0))
        for peer in PEERS
    }
    failed: dict[str, str] = {}
    workers, rows = first_models(task, data, tasks, failed)
    seconds, losses = rounds_of(workers, tasks, data, rounds, failed)
    for worker in workers.values():
        worker.close()
    ours = rows.get(OURS)
    for name, row in rows.items():
        if name in failed or not seconds[name]:
            continue
        row["privacy"] = privacy.get(name)
        row["milliseconds_per_step"] = summary(seconds[name], scale=1e3)
        row["test_log_loss"] = {
            "mean": float(np.mean(losses[name])),
            "standard_error": float(np.std(losses[name], ddof=1) / np.sqrt(rounds)) if rounds > 1 else None,
        }
        if ours and OURS not in failed:
            row["ratios_to_dpvi"] = {
                "milliseconds_per_step": ratio(seconds[name], seconds[OURS]),
                **{k: round(row[k] / ours[k], 3) for k in ("first_model_seconds", "peak_megabytes")},
            }
    content["contestants"] = {name: row for name, row in rows.items() if "test_log_loss" in row}
    return {**content, "not_measured": failed, "true_epsilon_of_fixed_size_as_poisson": hidden_epsilon(task)}


def quick(task: Task) -> Task:
    """The same task, small enough to see that everything runs."""
    sizes = {"vae": (6_000, 500, 4)}.get(task.name, (task.num_records // 10, 1_000, 50))
    num_records, num_test, num_steps = sizes
    batch_size = task.batch_size // (1 if task.name == "vae" else 5)
    return replace(task, num_records=num_records, num_test=num_test, num_steps=num_steps, batch_size=batch_size)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes and two rounds, to see that everything runs")
    parser.add_argument("--tasks", nargs="*", default=["logistic", "hierarchical", "vae"])
    parser.add_argument("--output", type=Path, default=RESULTS / "peers.json")
    options = parser.parse_args(arguments)
    content: dict[str, Any] = {
        "command": "python benchmarks/peers.py" + (" --quick" if options.quick else ""),
        "machine": machine(),
        "tasks": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for task, rounds in ((LOGISTIC, 7), (HIERARCHICAL, 7), (VAE, 3)):
            if task.name not in options.tasks:
                continue
            began = time.perf_counter()
            chosen, rounds = (quick(task), 2) if options.quick else (task, rounds)
            content["tasks"][task.name] = measure(chosen, rounds, Path(folder))
            content["tasks"][task.name]["minutes"] = round((time.perf_counter() - began) / 60, 1)
            write(content, options.output, markdown)  # after each task: a run of an hour may be cut short
    print(markdown(content))


if __name__ == "__main__":
    main()
