"""How far runs end from the non-private optimum, and whether their traces show how far apart they end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpvi.posterior import Result
from dpvi.posterior.tail import converged_tail
from experiments.adult_logistic.optimum import Optimum
from experiments.adult_logistic.settings import Settings
from studies.mpae import mpae


def score(results: Sequence[Result], optimum: Optimum, settings: Settings) -> dict[str, Any]:
    """All scores of a cell; one number per finite run in each list."""
    finite = [result for result in results if np.all(np.isfinite(result.trace.final))]
    row: dict[str, Any] = {"num_runs": len(results), "num_finite": len(finite)}
    if len(finite) < 2:
        return row
    tails = [converged_tail(run.trace, settings.slope_threshold, settings.num_candidates) for run in finite]
    final = np.array([run.trace.final for run in finite], np.float64)
    averaged = np.array([tail.mean for tail in tails])
    initial = np.array([run.trace.iterates[0] for run in finite], np.float64)
    return (
        row
        | _distances(final, optimum, "")
        | _distances(averaged, optimum, "averaged_")
        | _proportional_errors(final, initial, optimum)
        | {"noise": noise_check(final, np.array([t.variance for t in tails]), np.array([t.converged for t in tails]))}
    )


def noise_check(final: np.ndarray, variances: np.ndarray, converged: np.ndarray) -> dict[str, Any]:
    """Standard deviation of each converged trace against that of last iterates over runs (Figure 5b).

    Parameters
    ----------
    final
        Last iterates in the unconstrained space, (n, p).
    variances, converged
        Variance of each parameter over its tail and whether it had one, (n, p).

    Returns
    -------
    dict
        ``mse``, one for each run with a converged parameter; ``baseline``, the error of predicting no noise at all;
        ``floor``, that of a perfect prediction: the deviation s over n runs scatters around the true σ, E(s − σ)² =
        2σ²(1 − c₄(n)); and ``ratio``, the mean over runs of trace deviation over deviation between runs (root mean
        squares over parameters).
    """
    n = len(final)
    between = final.std(axis=0, ddof=1)
    used = [i for i in range(n) if converged[i].any()]
    errors = [float(np.mean((np.sqrt(variances[i]) - between)[converged[i]] ** 2)) for i in used]
    baselines = [float(np.mean(between[converged[i]] ** 2)) for i in used]
    within = [float(np.mean(variances[i][converged[i]])) for i in used]
    c4 = math.sqrt(2 / (n - 1)) * math.exp(math.lgamma(n / 2) - math.lgamma((n - 1) / 2))
    baseline = float(np.mean(baselines)) if used else None
    return {
        "share_converged": float(converged.mean()),
        "mse": errors,
        "baseline": baseline,
        "floor": None if baseline is None else 2 * (1 - c4) * baseline,
        "ratio": float(np.sqrt(np.mean(within) / np.mean(baselines))) if used else None,
    }


def _constrained(xi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Locations and standard deviations of rows of ξ."""
    location, s = np.split(xi, 2, axis=-1)
    return location, np.logaddexp(0, s)


def _distances(xi: np.ndarray, optimum: Optimum, prefix: str) -> dict[str, list[float]]:
    location, scale = _constrained(xi)
    return {
        f"{prefix}location_distance": np.linalg.norm(location - optimum.location, axis=1).tolist(),
        f"{prefix}scale_distance": np.linalg.norm(scale - optimum.scale, axis=1).tolist(),
    }


def _proportional_errors(final: np.ndarray, initial: np.ndarray, optimum: Optimum) -> dict[str, list[float]]:
    end, start = _constrained(final), _constrained(initial)
    return {
        "location_mpae": mpae(end[0], start[0], optimum.location).tolist(),
        "scale_mpae": mpae(end[1], start[1], optimum.scale).tolist(),
    }
