"""Worker processes, and timing several of them round-robin so that all see the same state of the machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.problem import Problem
from harness.tasks import Task

BENCHMARKS = Path(__file__).resolve().parent.parent
REPOSITORY = BENCHMARKS.parent


class ContestantError(RuntimeError):
    """A contestant could not be imported or run; the message is fit to be published."""


@dataclass(frozen=True)
class Contestant:
    """A module of ``contestants/`` with the options its functions get, and the interpreter and checkout to run it."""

    name: str
    module: str
    num_steps: int
    options: Mapping[str, Any] = field(default_factory=dict)
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_records: bool = True
    tree: Path = REPOSITORY


class Worker:
    """A running contestant. ``hello`` holds its import time and the versions it found."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        paths = [str(contestant.tree / BENCHMARKS.name)]
        if contestant.python == sys.executable:
            paths += [str(contestant.tree / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", **contestant.environment}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        arguments = [contestant.python, "-m", "harness.worker", contestant.module, json.dumps(dict(contestant.options))]
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.hello = self._read()

    def ask(self, action: str, problem: Problem, num_steps: int | None = None) -> float:
        """Seconds for ``first_result``, seconds per step for ``run``."""
        request = {
            "action": action,
            "problem": problem.to_dict(),
            "num_steps": num_steps or self.contestant.num_steps,
            "records": self.contestant.needs_records,
        }
        return self._send(request)["seconds"]

    def train(self, task: Task, data: Path, seed: int) -> dict[str, Any]:
        """The answer of a peer, as :mod:`harness.peer` describes it."""
        return self._send({"action": "train", "task": task.to_dict(), "data": str(data), "seed": seed})

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _send(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):  # the pipe, or our end of it after an earlier failure
            raise ContestantError("the process stopped") from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        content = json.loads(line) if line else {"error": "the process stopped"}
        if "error" in content:
            self.close()
            raise ContestantError(publishable(content["error"]))
        return content


def publishable(message: str) -> str:
    """The first line of ``message`` without file paths: results are committed."""
    return re.sub(r"\s*\(?/[^\s,)]+\)?", "", message.strip().splitlines()[0])[:200]


def round_robin(
    entries: Sequence[tuple[str, Worker, Problem]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Time every entry once per round, starting each round one entry later; also which entries failed, and why.

    The first round compiles and is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in entries}
    failed: dict[str, str] = {}
    for number in range(rounds + 1):
        shift = number % max(len(entries), 1)
        for name, worker, problem in [*entries[shift:], *entries[:shift]]:
            if name in failed:
                continue
            try:
                value = worker.ask("run", problem)
            except ContestantError as error:
                failed[name] = str(error)
                continue
            if number > 0:
                seconds[name].append(value)
    return {name: values for name, values in seconds.items() if name not in failed}, failed
