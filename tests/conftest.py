"""Strict JAX for every test; 64-bit mode on request, because float32 is what users run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import pytest
from support.labels import CHECKING, believe_plans

from dpvi.privacy import planning

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_platforms", "cpu")

# Most of a test is compiling, and tests of one shape compile the same programs: all workers share what they make, down
# to single additions, which take several times as long to compile as to load.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# LLVM's optimisation takes a quarter of the time of tests that mostly compile, and changes rounding alone: these go
# without. What privacy rests on (mechanism, sampling, clipping, gradients), its statistics, plain fits and doctests are
# compiled as for users, and so are tests that run chains, which take longer without than they save.
QUICKLY_COMPILED = (
    *("models/", "train/", "test_dpsvi.py", "test_examples.py", "test_fit_clipping.py", "test_guided_fit.py"),
    *(f"posterior/test_{name}.py" for name in ("joint", "methods", "na_dpvi_result", "posterior")),
)

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def plans_are_labels() -> Iterator[None]:
    """Most tests of the mechanism need a noise scale, not an accountant: their plans carry any ε as a label."""
    with pytest.MonkeyPatch.context() as patch:
        believe_plans(patch.setattr)
        yield


@pytest.fixture(scope="module", autouse=True)
def programs_are_forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled programs of one module are of no use to the next and would fill the memory of a long session."""
    file = request.path.relative_to(Path(__file__).parent).as_posix()
    jax.config.update("jax_disable_most_optimizations", file.startswith(QUICKLY_COMPILED))
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


@pytest.fixture
def accounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans mean what they claim, as they do for users."""
    for module in CHECKING:
        monkeypatch.setattr(f"{module}.checked_guarantee", planning.checked_guarantee)


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test in 64-bit mode."""
    with jax.enable_x64(True):
        yield
