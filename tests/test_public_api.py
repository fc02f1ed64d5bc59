"""The names a user imports, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dpvi

SOURCES = Path(dpvi.__file__).parents[1]
HEAVY = ("jax", "numpyro", "optax", "arviz", "matplotlib")
CAUGHT = {
    *("CompilerError", "ConvergenceWarning", "FallbackWarning", "IntervalWarning"),
    *("LostProcessError", "ModelError", "ModelNotice"),
    "PrivacyWarning",
}
WITHOUT_JAX = {
    "columns of a table": "import dpvi; dpvi.table.Numeric(0, 1); dpvi.Schema; dpvi.SchemaError",
    "warnings, and releases of one's own": (
        "import dpvi; dpvi.ConvergenceWarning; dpvi.FallbackWarning; dpvi.CompilerError; dpvi.GaussianRelease"
    ),
    "import": "import dpvi",
    "plan": "import dpvi; dpvi.plan; dpvi.plan_nonprivate; dpvi.Plan; dpvi.Guarantee; dpvi.PrivacyWarning",
    "a plan made, saved and read": (
        "import dpvi; plan = dpvi.plan_nonprivate(sampling_rate=0.1, num_steps=5); "
        "dpvi.Plan.from_json(plan.to_json()) == plan or exit(1); print(plan.guarantee)"
    ),
}


@pytest.mark.parametrize("name", dpvi.__all__)
def test_every_public_name_resolves(name):
    assert getattr(dpvi, name) is not None
    assert name in dir(dpvi)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        dpvi.fitt


def test_the_promised_names_are_public():
    promised = {
        "glm",
        "plan",
        "plan_nonprivate",
        "fit",
        "fit_many",
        "from_functions",
        "from_pymc",
        "check",
        "validate",
        "Plan",
        "Result",
    }
    assert promised <= set(dpvi.__all__)
    assert promised | {"MeanField", "FullRank", "LowRank"} <= set(dpvi.__all__)
    assert {"Vanilla", "Preconditioned", "Natural", "Aligned", "AlignedNatural", "Guided"} <= set(dpvi.__all__)
    assert {*CAUGHT, "SchemaError", "SourceError", "join", "na_dpvi_sgd", "GaussianRelease"} <= set(dpvi.__all__)


def test_what_is_raised_is_what_is_exported():
    from dpvi.declared.validation import CompilerError
    from dpvi.run.placement.hosts import LostProcessError

    assert dpvi.CompilerError is CompilerError
    assert dpvi.LostProcessError is LostProcessError
    for name in CAUGHT:
        assert issubclass(getattr(dpvi, name), Exception)


def test_packages_are_there_after_a_plain_import():
    """In a fresh process: elsewhere another test may have imported them."""
    packages = sorted(set(dir(dpvi)) - set(dpvi.__all__))
    assert {"table", "run", "models", "posterior", "privacy"} <= set(packages)
    code = "; ".join(["import dpvi", *(f"dpvi.{name}" for name in packages), "dpvi.run.na_dpvi_sgd"])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(SOURCES)}, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", WITHOUT_JAX)
def test_planning_loads_no_jax(case):
    code = f"{WITHOUT_JAX[case]}; import sys; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(SOURCES)}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""
