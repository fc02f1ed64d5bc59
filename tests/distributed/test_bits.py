"""Devices and microbatches change no bit of a trace, in single precision and compiled as for users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_one_device_eight_devices_and_parts_release_the_same_bits():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])}
    command = [sys.executable, "-W", "ignore", str(TESTS / "support" / "bits_worker.py")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    for digests in json.loads(ended.stdout.splitlines()[-1]).values():
        assert len(digests) == 4
        assert len(set(digests.values())) == 1, digests
