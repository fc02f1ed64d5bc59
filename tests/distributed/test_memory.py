"""Data larger than memory: a run over 100 GB holds less than two."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.launch import REPOSITORY, environment
from support.memory_worker import COLUMNS

NUM_RECORDS = 250_000_000  # of 400 bytes


@pytest.mark.skipif(sys.platform != "linux", reason="sparse files and /proc are those of Linux")
def test_a_run_over_100_gigabytes_holds_less_than_two(tmp_path):
    path = tmp_path / "records.bin"
    path.touch()
    try:
        os.truncate(path, 4 * COLUMNS * NUM_RECORDS)  # a hole of 100 GB, which takes no space
    except OSError:
        pytest.skip("this file system holds no sparse file of 100 GB")
    worker = REPOSITORY / "tests" / "support" / "memory_worker.py"
    command = [sys.executable, str(worker), str(path), str(NUM_RECORDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2.0
