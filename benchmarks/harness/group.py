"""Processes that work on one thing together, asked as if they were one worker."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from harness.pool import Contestant, Worker
from harness.problem import Problem

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


class Group:
    """``num_processes`` workers of one contestant, process k on core k; ``apart``, each does the whole work alone."""

    def __init__(self, contestant: Contestant, num_processes: int, apart: bool = False) -> None:
        self.contestant = contestant
        self._threads = ThreadPoolExecutor(num_processes)
        port = _free_port()
        members = [
            replace(contestant, environment=_environment(process, num_processes, port, apart))
            for process in range(num_processes)
        ]
        self._workers = list(self._threads.map(Worker, members))

    def ask(self, action: str, problem: Problem, num_steps: int | None = None) -> float:
        """The slowest process's answer."""
        return max(self._threads.map(lambda worker: worker.ask(action, problem, num_steps), self._workers))

    def close(self) -> None:
        list(self._threads.map(Worker.close, self._workers))
        self._threads.shutdown()


def _environment(process: int, num_processes: int, port: int, apart: bool) -> dict[str, str]:
    return {
        "DPVI_PROCESS": str(0 if apart else process),
        "DPVI_PROCESSES": str(1 if apart else num_processes),
        "DPVI_PORT": str(port),
        "DPVI_CORE": str(process),
        "OMP_NUM_THREADS": "1",
        "XLA_FLAGS": ONE_THREAD,
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]
