"""How much of the way to the optimum of the regression is left, at the end, along the run and after averaging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpvi.posterior import Result
from dpvi.posterior.tail import converged_tail
from experiments.generative_model.optimum import Optimum
from experiments.generative_model.settings import Settings
from studies.mpae import mpae

_CURVE_POINTS = 25


def score(results: Sequence[Result], response: str, optimum: Optimum, settings: Settings) -> dict[str, Any]:
    """All scores of a cell; one number per finite run in each list.

    ``location_mpae`` and ``scale_mpae`` are of the last iterate, ``averaged_*`` of the converged tail's mean, and
    ``curve`` holds means over runs at ``steps`` of the run (Figures 1b, 4, H.2 and H.3). ``scales`` has one number per
    standard deviation: how far it starts from its optimum, and its mean error over runs at the end.
    """
    finite = [result for result in results if np.all(np.isfinite(result.trace.final))]
    row: dict[str, Any] = {"num_runs": len(results), "num_finite": len(finite)}
    if len(finite) < 2:
        return row
    block = regression_block(finite[0], response)
    initial = np.stack([run.trace.iterates[0] for run in finite])[:, block]
    final = np.stack([run.trace.final for run in finite])[:, block]
    tails = [converged_tail(run.trace, settings.slope_threshold) for run in finite]
    averaged = np.stack([tail.mean for tail in tails])[:, block]
    rows = np.unique(np.linspace(0, len(finite[0].trace.steps) - 1, _CURVE_POINTS).astype(int))
    along = np.stack([run.trace.iterates[rows][:, block] for run in finite], axis=1)
    curve = errors(along, initial, optimum)
    return (
        row
        | {name: values.tolist() for name, values in errors(final, initial, optimum).items()}
        | {f"averaged_{name}": values.tolist() for name, values in errors(averaged, initial, optimum).items()}
        | {"share_converged": float(np.mean([tail.converged[block] for tail in tails]))}
        | {"steps": [int(step) for step in finite[0].trace.steps[rows]]}
        | {"curve": {name: values.mean(axis=1).tolist() for name, values in curve.items()}}
        | {"scales": _by_parameter(final, initial, optimum)}
    )


def regression_block(result: Result, response: str) -> np.ndarray:
    """Positions in ξ = (m, s) of weights and intercept: locations first, then scales."""
    dimension = len(result.trace.final) // 2
    sites = [site for site in result.sites if site.name in (f"{response}_weights", f"{response}_intercept")]
    within = np.concatenate([np.arange(site.offset, site.offset + site.size) for site in sites])
    return np.concatenate([within, dimension + within])


def errors(iterates: np.ndarray, initial: np.ndarray, optimum: Optimum) -> dict[str, np.ndarray]:
    """MPAE of locations and of standard deviations (not of s) of rows of ξ, and their mean absolute errors.

    MPAE divides by how far a parameter started from its optimum, so that one which started next to it can outweigh all
    others; the absolute error has no such weights.
    """
    (location, scale), (first_location, first_scale) = _constrained(iterates), _constrained(initial)
    return {
        "location_mpae": mpae(location, first_location, optimum.location),
        "scale_mpae": mpae(scale, first_scale, optimum.scale),
        "location_error": np.mean(np.abs(location - optimum.location), axis=-1),
        "scale_error": np.mean(np.abs(scale - optimum.scale), axis=-1),
    }


def _by_parameter(final: np.ndarray, initial: np.ndarray, optimum: Optimum) -> dict[str, list[float]]:
    """Of standard deviations; all runs start with the same ones."""
    start, end = _constrained(initial)[1], _constrained(final)[1]
    return {
        "start_distance": np.abs(start[0] - optimum.scale).tolist(),
        "error": np.mean(np.abs(end - optimum.scale), axis=0).tolist(),
    }


def _constrained(xi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    location, s = np.split(np.asarray(xi, np.float64), 2, axis=-1)
    return location, np.logaddexp(0, s)
