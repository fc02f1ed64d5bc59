"""One request to a peer: train a whole model, judge it, and say what it took. Runs inside the peer's environment."""

from __future__ import annotations

import functools
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness.judge import test_log_loss
from harness.tasks import Arrays, Task


def answer(contestant: Any, request: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Train with ``request["seed"]``; the loss is computed after the clock has stopped and memory was read.

    ``finished`` is the wall clock at the trained model, so that whoever started the process knows how long the wait
    was from nothing to a model.
    """
    task, data = Task(**request["task"]), records(request["data"])
    trained = contestant.train(task, data, request["seed"], **options)
    finished, memory = time.time(), peak_megabytes()
    return {
        "seconds": trained.seconds_per_step,
        "finished": finished,
        "peak_megabytes": memory,
        "log_loss": test_log_loss(task, data, trained.parameters),
    }


@functools.cache
def records(path: str) -> Arrays:
    with np.load(path) as content:
        return dict(content)


def peak_megabytes() -> float:
    """The most memory this process has held.

    On Linux from ``VmHWM``: ``ru_maxrss`` survives ``exec`` and would begin with what the parent process held.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found.group(1)) / 1024
    scale = 2**20 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
