"""Where real data are, for the tests that need them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """A data set's folder under DPVI_DATA, by name; tests are skipped where there is none."""

    def folder(name: str) -> Path:
        found = Path(os.environ.get("DPVI_DATA") or "") / name
        if not os.environ.get("DPVI_DATA") or not found.is_dir():
            pytest.skip(f"DPVI_DATA does not name a folder that holds {name}")
        return found

    return folder


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without data: nothing declared, an empty cache, whose folder is returned."""
    monkeypatch.delenv("DPVI_DATA", raising=False)
    monkeypatch.setenv("DPVI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
