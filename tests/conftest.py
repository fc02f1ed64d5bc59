"""Strict JAX for every test; 64-bit mode on request, because float32 is what users run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest
from support.labels import CHECKING, believe_plans

from dpvi.backend.compiling import forget_programs, plain_fusions
from dpvi.privacy import planning

try:  # JAX has options of the compiler for one function at a time; without this place for all, tests only take longer
    from jax._src import compiler
except ImportError:
    compiler = None

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_platforms", "cpu")

# Most of a test is compiling, and tests of one shape compile the same programs: all workers share what they make, down
# to single additions, which take several times as long to compile as to load.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# What is left is mostly XLA. Its emitters of fusions take half of that, LLVM's optimisation half of the rest, and both
# change rounding alone: tests that mostly compile go without both, tests that run long go without the first. What
# privacy rests on (mechanism, sampling, clipping), its statistics, studies and doctests are compiled as for users.
QUICKLY_COMPILED = (
    *(
        "models/",
        "population/",
        "run/placement/",
        "regression/",
        "run/placement/",
        "run/program/",
        "synthetic/",
        "test_examples.py",
    ),
    *(f"run/test_{name}" for name in ("checkpoint", "dpsvi", "fit", "guided_fit", "optimizers")),
    *(f"experiments/test_{name}" for name in ("adult", "deep", "dpvim", "generative", "learning_rate", "vae")),
    *(f"gradients/test_{name}" for name in ("ghost_models", "gradients", "guided", "named_layers")),
    *(f"posterior/test_{name}" for name in ("joint", "methods", "na_dpvi", "posterior", "score.py")),
    *(f"posterior/test_{name}" for name in ("score_clip_norm", "score_driver", "storage")),
)
COMPILED_WITHOUT_FUSIONS = (*QUICKLY_COMPILED, "experiments/", "posterior/", "reporting/", "studies/baselines/")

# What takes long, whole fits above all: ``make test-slow``. Everything else is ``make test``.
SLOW = (
    "attacks/",
    "auditing/",
    "benchmarks/",
    "cli/test_from_table_to_page.py",
    "distributed/",
    "estimators/test_page.py",
    "estimators/test_private_runs.py",
    "experiments/",
    "posterior/metric/test_metric_posterior.py",
    "posterior/metric/test_metric_strategy.py",
    "regression/",
    "reporting/",
    "run/measuring/test_measuring_fit.py",
    "run/test_checkpoint.py",
    "run/test_dpsvi_examples.py",
    "run/test_many_same_data.py",
    "statistical/",
    "studies/",
    "studio/test_in_a_browser.py",
    "test_examples.py",
    "test_leaks.py",
)

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_in(item.path, SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def plans_are_labels() -> Iterator[None]:
    """Most tests of the mechanism need a noise scale, not an accountant: their plans carry any ε as a label."""
    with pytest.MonkeyPatch.context() as patch:
        believe_plans(patch.setattr)
        yield


@pytest.fixture(scope="module", autouse=True)
def programs_are_forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled programs of one module are of no use to the next and would fill the memory of a long session."""
    with pytest.MonkeyPatch.context() as patch:
        if is_in(request.path, QUICKLY_COMPILED):
            jax.config.update("jax_disable_most_optimizations", True)
        if is_in(request.path, COMPILED_WITHOUT_FUSIONS) and hasattr(compiler, "get_compile_options"):
            plain_fusions()  # is found out once, by compiling something
            patch.setattr(compiler, "get_compile_options", partial(without_fusions, compiler.get_compile_options))
        yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    forget_programs()


def is_in(file: Path, places: tuple[str, ...]) -> bool:
    tests = Path(__file__).parent
    return file.is_relative_to(tests) and file.relative_to(tests).as_posix().startswith(places)


def without_fusions(options_for: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Options of the compiler whose kernels are written as they were before XLA had its emitters of fusions."""
    overrides = {**plain_fusions(), **(options.pop("env_options_overrides", None) or {})}
    return options_for(*args, env_options_overrides=overrides, **options)


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
