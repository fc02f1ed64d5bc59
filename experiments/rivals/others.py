"""Other people's programs, run where they are: BinAgg from a folder, diffprivlib by another Python; none is copied."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from experiments.rivals.problems import DataSet, Interval, Problem

_SHARES = (1, 3, 3, 3)  # of BinAgg's binning, counts, sums of x and sums of y, by default
_SCRIPT = Path(__file__).with_name("diffprivlib_script.py")


def load_binagg(folder: Path | None) -> Any:
    """The package ``binagg`` from ``folder``/src, or wherever it is installed; None where it is not."""
    if folder is not None and str(folder / "src") not in sys.path:
        sys.path.append(str(folder / "src"))
    try:
        return importlib.import_module("binagg")
    except ImportError:
        return None


def binagg_charge(dimension: int) -> float:
    """How many times the signal that it is asked for BinAgg spends.

    It adds noise of scale Δ_j/μ_s to each of the d sums of x in a bin, each a release of signal μ_s, and charges them
    as one: μ² grows by (d − 1) μ_s².

    Examples
    --------
    >>> round(binagg_charge(3), 3)
    1.282
    """
    squares = [share**2 for share in _SHARES]
    return math.sqrt((sum(squares) + (dimension - 1) * squares[2]) / sum(squares))


def run_binagg(package: Any, problem: Problem, data: DataSet, signal: float, seed: int) -> Interval:
    """Its regression with its own defaults.

    Its ``random_state`` would seed binning and noise alike, so that they are not independent; NumPy's global generator
    is seeded once instead.
    """
    np.random.seed(seed)
    found = package.dp_linear_regression(
        data.x, data.y, list(problem.bounds), (-problem.response_bound, problem.response_bound), mu=signal
    )
    return Interval(found.coefficients, *np.asarray(found.confidence_intervals).T)


def has_diffprivlib(python: Path | None) -> bool:
    """Whether ``python`` can import it."""
    if python is None or not python.exists():
        return False
    return subprocess.run([python, "-c", "import diffprivlib"], capture_output=True, check=False).returncode == 0


def run_diffprivlib(
    python: Path, problem: Problem, data: list[DataSet], epsilon: float, first_seed: int
) -> tuple[list[Interval], list[float]]:
    """Estimates and seconds of each data set; pure ε, and no intervals."""
    constant = [j for j, (low, high) in enumerate(problem.bounds) if low == high]
    columns = [j for j in range(len(problem.bounds)) if j not in constant]
    scaled = [problem.scaled(each) for each in data]
    bounds = np.asarray(problem.bounds)[columns] / problem.scale[columns][:, None]
    request = {
        "kind": problem.kind,
        "epsilon": epsilon,
        "intercept": bool(constant),
        "bounds": bounds.tolist(),
        "response_bound": problem.response_bound,
        "first_seed": first_seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        np.savez(path / "data.npz", x=np.stack([s.x[:, columns] for s in scaled]), y=np.stack([s.y for s in scaled]))
        (path / "request.json").write_text(json.dumps(request), encoding="utf-8")
        subprocess.run([python, _SCRIPT, folder], check=True, capture_output=True)
        answer = json.loads((path / "answer.json").read_text(encoding="utf-8"))
    unknown = np.full(len(problem.bounds), np.nan)
    found = []
    for slopes, intercept in zip(answer["slopes"], answer["intercepts"], strict=True):
        estimate = np.empty(len(problem.bounds))
        estimate[columns], estimate[constant] = slopes, intercept
        found.append(problem.raw(Interval(estimate, unknown, unknown)))
    return found, answer["seconds"]
