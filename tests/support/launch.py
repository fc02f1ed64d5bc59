"""Processes of a test: started together, ended in bounded time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

REPOSITORY = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("fit_worker.py")
SECONDS = 240  # far above what any of them takes; a hang is a failure


class Ended(NamedTuple):
    """How a process ended, and the arrays it wrote by case."""

    code: int
    errors: str
    written: dict[str, Any]


def launch(folder: Path, *options: dict[str, Any]) -> list[Ended]:
    """Run ``fit_worker.py`` once per ``options``, side by side."""
    shared = {"cache": str(REPOSITORY / ".pytest_cache" / "compiled"), "port": free_port()}
    outputs = [folder / str(number) for number in range(len(options))]
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps({**shared, **each, "output": str(output)})],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=environment(),
        )
        for each, output in zip(options, outputs, strict=True)
    ]
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        Ended(process.returncode, text, read(folder, output.name))
        for process, text, output in zip(processes, errors, outputs, strict=True)
    ]


def environment() -> dict[str, str]:
    """Of a process that runs this tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])}


def read(folder: Path, name: str) -> dict[str, Any]:
    return {path.stem.partition("-")[2]: dict(np.load(path)) for path in folder.glob(f"{name}-*.npz")}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]
