"""What is measured of a run, and what a cell says of its runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.misfit.methods import Outcome
from experiments.misfit.problems import Problem
from experiments.misfit.reference import Oracle, Reference, limit

_QUANTILE = 1.959964
_LEAST_SHARE = 1e-3  # a privacy part below this share of the non-private deviation counts as this share

Run = dict[str, Any]


def run_of(problem: Problem, found: Reference, oracle: Oracle, shift: np.ndarray, seed: int, outcome: Outcome) -> Run:
    """One run as plain values: by coordinate the error and the deviations, in non-private standard deviations.

    ``shift`` is how far the posterior's mean lies from its mode, from :func:`~experiments.misfit.reference.mean_shift`.
    Where a method does not tell its privacy part apart, it is what is left of its variance without the non-private one.
    """
    total = outcome.sd_total / found.sd
    privacy = outcome.sd_privacy
    part = np.sqrt(np.maximum(total**2 - 1, 0)) if privacy is None else privacy / found.sd
    truth = None if problem.truth is None else (outcome.mean - problem.truth) / found.sd
    return {
        "seed": seed,
        "error": _plain((outcome.mean - found.mode) / found.sd),
        "error_of_mean": _plain((outcome.mean - found.mode) / found.sd - shift),
        "error_of_truth": None if truth is None else _plain(truth),
        "privacy": _plain(part),
        "total": _plain(total),
        "oracle": float(np.mean(oracle.widths(found))),
        "message": outcome.message,
        "seconds_fit": round(outcome.seconds_fit, 3),
        "seconds_posterior": round(outcome.seconds_posterior, 3),
    }


def facts_of(problem: Problem, epsilon: float, signal: float) -> dict[str, Any]:
    """What a row says of its problem."""
    return {
        "num_records": problem.num_records,
        "dimension": problem.dimension,
        "parameters": list(problem.parameters),
        "slopes": list(problem.slopes),
        "signal": signal,
        "limit": limit(problem, epsilon),
    }


def row_of(facts: dict[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    """The figures of a cell.

    ``inside_privacy`` is the share of non-private means inside the 95 % interval of the privacy part, over coordinates
    and runs; ``inside_full`` that of the full interval. A run that is not finite has no mean inside, and widths and
    z-scores leave it out.
    """
    good = [run for run in runs if _finite(run)]
    share = len(good) / len(runs)
    row: dict[str, Any] = {**facts, "runs": len(runs), "failed": len(runs) - len(good)}
    row["warned"] = float(np.mean([bool(run["message"]) for run in runs]))
    row["messages"] = sorted({run["message"][:200] for run in runs if run["message"]})[:3]
    for name in ("seconds_fit", "seconds_posterior"):
        row[name] = float(np.median([run[name] for run in runs]))
    if not good:
        return row | {"inside_privacy": 0.0, "inside_slopes": 0.0, "inside_full": 0.0}
    error, privacy, total = (np.array([run[name] for run in good], float) for name in ("error", "privacy", "total"))
    z = error / np.maximum(privacy, _LEAST_SHARE)
    inside = np.abs(z) <= _QUANTILE
    of_mean = np.array([run["error_of_mean"] for run in good], float) / np.maximum(privacy, _LEAST_SHARE)
    slopes = facts["slopes"]
    by_coordinate = inside.mean(axis=0) * share
    worst = min(slopes, key=lambda at: by_coordinate[at])
    ratio = total.mean() / np.mean([run["oracle"] for run in good])
    row |= {
        "inside_privacy": float(inside.mean()) * share,
        "inside_privacy_of_mean": float((np.abs(of_mean) <= _QUANTILE).mean()) * share,
        "inside_full": float((np.abs(error) <= _QUANTILE * total).mean()) * share,
        "inside_slopes": float(inside[:, slopes].mean()) * share,
        "inside_by_coordinate": _plain(by_coordinate),
        "worst_slope": facts["parameters"][worst],
        "inside_worst_slope": float(by_coordinate[worst]),
        "rms_z": float(np.sqrt(np.mean(z**2))),
        "rms_z_slopes": float(np.sqrt(np.mean(z[:, slopes] ** 2))),
        "rms_z_by_coordinate": _plain(np.sqrt(np.mean(z**2, axis=0))),
        "width_mean": float(total.mean()),
        "width_median": float(np.median(total)),
        "width_over_limit": float(np.median(total) / facts["limit"]),
        "width_over_oracle": float(ratio),
    }
    if good[0]["error_of_truth"] is not None:
        of_truth = np.array([run["error_of_truth"] for run in good], float)
        row["covers_truth"] = float((np.abs(of_truth) <= _QUANTILE * total).mean()) * share
    return row


def _finite(run: Run) -> bool:
    return all(value is not None for name in ("error", "privacy", "total") for value in run[name])


def _plain(values: Any) -> list[float | None]:
    """Floats with six digits; ``None`` where one is not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in np.asarray(values, float).tolist()]
