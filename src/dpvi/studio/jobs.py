"""Jobs in processes of their own, with their progress and one sentence where they fail."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PERCENT = re.compile(rb"(\d+)%\|")
_STOPPED = "Stopped. What a run had asked before it was stopped stays spent; a ledger keeps it reserved."
_BROKEN = "The run ended unexpectedly, perhaps for lack of memory; close other programs and try again."


class JobError(Exception):
    """Why a job has no answer, in one sentence."""


class Jobs:
    """Runs one job at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether a job is running."""
        return self._process is not None

    async def run(self, kind: str, job: dict[str, Any], told: Callable[[float], None] | None = None) -> dict[str, Any]:
        """The answer of a job; ``told`` hears of progress between 0 and 1."""
        if self.busy:
            raise JobError("Another run is still going on; wait for it, or stop it.")
        self._stopped = False
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.json"
            path.write_text(json.dumps({"kind": kind, **job}), encoding="utf-8")
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dpvi.studio.worker", str(path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                out, _ = await asyncio.gather(_all_of(self._process.stdout), _progress(self._process.stderr, told))
                await self._process.wait()
            finally:
                self._process = None
        return self._answer(out)

    def stop(self) -> None:
        """End the job that is running, if there is one."""
        if self._process is not None:
            self._stopped = True
            self._process.terminate()

    def _answer(self, out: bytes) -> dict[str, Any]:
        if self._stopped:
            raise JobError(_STOPPED)
        lines = out.decode("utf-8", "replace").splitlines()
        try:
            answer = json.loads(lines[-1])
        except (IndexError, json.JSONDecodeError):
            raise JobError(_BROKEN) from None
        if "error" in answer:
            raise JobError(answer["error"])
        return answer


async def _all_of(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    return await stream.read()


async def _progress(stream: asyncio.StreamReader | None, told: Callable[[float], None] | None) -> None:
    """Read a progress bar until its process ends; everything else there is left alone."""
    assert stream is not None
    rest = b""
    while chunk := await stream.read(4096):
        rest = (rest + chunk)[-4096:]
        found = _PERCENT.findall(rest)
        if found and told is not None:
            told(int(found[-1]) / 100)
