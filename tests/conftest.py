"""Strict JAX for every test; 64-bit mode on request, because float32 is what users run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import pytest

from dpvi.privacy import planning

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_platforms", "cpu")

# Most of a small fit is compiling, and fits of one shape compile to the same program: all workers share what they make.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def plans_are_labels() -> Iterator[None]:
    """Most tests of the mechanism need a noise scale, not an accountant: their plans carry any ε as a label."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("dpvi.fitting", "dpvi.preparation"):
            patch.setattr(f"{module}.checked_guarantee", lambda plan: plan.guarantee)
        yield


@pytest.fixture(scope="module", autouse=True)
def programs_are_forgotten() -> Iterator[None]:
    """Compiled programs of one module are of no use to the next and would fill the memory of a long session."""
    yield
    jax.clear_caches()


@pytest.fixture
def accounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans mean what they claim, as they do for users."""
    for module in ("dpvi.fitting", "dpvi.preparation"):
        monkeypatch.setattr(f"{module}.checked_guarantee", planning.checked_guarantee)


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test in 64-bit mode."""
    with jax.enable_x64(True):
        yield
