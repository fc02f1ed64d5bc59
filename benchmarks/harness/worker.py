"""One contestant in a process of its own: reads requests as JSON lines, answers with JSON lines.

Started by :mod:`harness.pool`, possibly under another interpreter (d3p needs one), so it imports nothing but the
standard library and numpy before the contestant.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from typing import Any, TextIO

from harness import peer
from harness.problem import Problem, records

PACKAGES = (
    *("jax", "jaxlib", "numpyro", "optax", "numpy", "scipy", "dpvi"),
    *("d3p", "jax-chacha-prng", "torch", "opacus", "jax-privacy", "pymc", "pytensor"),
)


def versions() -> dict[str, str]:
    """Versions of what is installed here, and of Python."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def answer(contestant: Any, request: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request; ``seconds`` is per step for ``run`` and wall clock for ``first_result``."""
    if request["action"] == "train":
        return peer.answer(contestant, request, options)
    problem = Problem(**request["problem"])
    if request["records"]:
        records(problem)  # simulated outside the clock
    if request["action"] == "run":
        return {"seconds": contestant.run(problem, request["num_steps"], **options)}
    start = time.perf_counter()
    contestant.first_result(problem, request["num_steps"], **options)
    return {"seconds": time.perf_counter() - start}


def reply(out: TextIO, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=out, flush=True)


def main(module: str, options: dict[str, Any]) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a contestant prints must not mix with the answers
    try:
        start = time.perf_counter()
        contestant = importlib.import_module(f"contestants.{module}")
        reply(out, {"import_seconds": time.perf_counter() - start, "versions": versions()})
        for line in sys.stdin:
            reply(out, answer(contestant, json.loads(line), options))
    except Exception as error:  # whatever a contestant raises belongs in the report, not in the way of the others
        reply(out, {"error": f"{type(error).__name__}: {error}"})
        raise


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
