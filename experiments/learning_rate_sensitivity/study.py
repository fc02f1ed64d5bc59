"""One learning rate: many runs, and what NA-DPVI makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

import dpvi
from dpvi.posterior.na_dpvi import model_of_run, quadrature
from dpvi.posterior.na_dpvi.model import after_burn_in
from dpvi.posterior.result import Result
from dpvi.run.optimizers import na_dpvi_sgd
from experiments.learning_rate_sensitivity.problem import (
    BETA,
    FAMILY,
    DataSets,
    Optimum,
    beta_bernoulli,
    draw_data,
    make_plan,
    optimum,
)
from experiments.learning_rate_sensitivity.theorem import TradeOff, trade_off

LEVEL = 0.9
OTHER_UNIT = 1000.0


@dataclass(frozen=True)
class Settings:
    """How much is run."""

    num_sets: int = 150
    num_steps: int = 2000
    lambda_c: tuple[float, ...] = (1 / 16, 1 / 4, 1.0, 4.0, 16.0, 64.0)
    seed: int = 0


def study(settings: Settings) -> dict[str, Any]:
    """Rows for every λ_c, on the same data sets and with the same noise."""
    data, plan = draw_data(settings.num_sets, settings.seed), make_plan(settings.num_steps)
    best = optimum(data.records)
    rows = [
        measure(fit(data, plan, factor, settings), data, best) | {"lambda_c": factor} for factor in settings.lambda_c
    ]
    return {
        "num_sets": settings.num_sets,
        "num_steps": settings.num_steps,
        "num_records": data.records.shape[1],
        "seed": settings.seed,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "noise_multiplier": plan.noise_multiplier,
        "beta": list(BETA),
        "level": LEVEL,
        "other_unit": OTHER_UNIT,
        "rows": rows,
    }


def fit(data: DataSets, plan: Any, lambda_c: float, settings: Settings) -> list[Result]:
    """All data sets side by side, with the paper's gradient descent."""
    return dpvi.fit_many(
        beta_bernoulli,
        data.records,
        plan,
        family=FAMILY,
        estimator=dpvi.Preconditioned(beta=BETA),
        optimizer=na_dpvi_sgd(plan, FAMILY, 1, beta=BETA, lambda_c=lambda_c),
        initial_location=np.zeros(1),
        seeds=[1000 * settings.seed + index for index in range(settings.num_sets)],
        progress=False,
    )


def measure(results: list[Result], data: DataSets, best: Optimum) -> dict[str, Any]:
    """Coverage of φ* and of the true parameter, and both sides of Theorem 2, over all runs."""
    finite = [i for i, result in enumerate(results) if np.all(np.isfinite(result.trace.final))]
    models = [_model(results[i]) for i in finite]
    optimum_ranks = np.array([quadrature(model).cdf(best.phi[i]) for i, model in zip(finite, models, strict=True)])
    theta_ranks = np.array([_rank(results[i], "na_dpvi", data.logits[i]) for i in finite])
    naive_ranks = np.array([_rank(results[i], "last", data.logits[i]) for i in finite])
    found = [_trade_off(results[i], best.phi[i]) for i in finite]
    scores = np.array([(t.estimate - best.curvature[i]) / t.deviation for i, t in zip(finite, found, strict=True)])
    widths = np.array([quadrature(model).standard_deviation for model in models])
    return {
        "num_finite": len(finite),
        "coverage_location": coverage(optimum_ranks[:, 0]),
        "coverage_scale": coverage(optimum_ranks[:, 1]),
        "coverage_parameter": coverage(theta_ranks),
        "coverage_parameter_last_iterate": coverage(naive_ranks),
        "location_deviation": float(np.median(widths[:, 0])),
        "curvature_relative_deviation": float(
            np.median([t.deviation[0] / best.curvature[i, 0] for i, t in zip(finite, found, strict=True)])
        ),
        "curvature_score_rms": np.sqrt(np.mean(scores**2, axis=0)).tolist(),
        "theorem": summary_of(found),
    }


def summary_of(found: list[TradeOff]) -> dict[str, float]:
    """How often (A9) fails when read with a standard deviation, and with a variance in these units and in others."""
    ratios = {
        "deviation": [t.ratio() for t in found],
        "deviation_other_unit": [t.ratio(1, OTHER_UNIT) for t in found],
        "variance": [t.ratio(2) for t in found],
        "variance_other_unit": [t.ratio(2, OTHER_UNIT) for t in found],
    }
    content: dict[str, float] = {f"violated_{name}": float(np.mean(np.array(r) < 1)) for name, r in ratios.items()}
    return content | {"median_ratio": float(np.median(ratios["deviation"]))}


def coverage(ranks: np.ndarray) -> dict[str, float]:
    """Share of ranks within the central interval, with its standard error under the nominal level."""
    error = np.sqrt(LEVEL * (1 - LEVEL) / len(ranks))
    return {"share": float(np.mean(np.abs(ranks - 0.5) < LEVEL / 2)), "standard_error": float(error)}


def _model(result: Result) -> Any:
    return model_of_run(result.trace, result.family, result.plan, result.estimator)


def _rank(result: Result, method: str, truth: float) -> float:
    """P(z ≤ truth) under a posterior."""
    distribution: Any = result.posterior(method).distribution
    if method == "last":
        location, scale = FAMILY.location(result.trace.final), FAMILY.standard_deviations(result.trace.final)
        return float(scipy.special.ndtr((truth - location[0]) / scale[0]))
    return float(np.mean(scipy.special.ndtr((truth - distribution.locations[:, 0]) / distribution.scales[:, 0])))


def _trade_off(result: Result, phi_star: np.ndarray, burn_in: float = 0.2) -> TradeOff:
    """(A9) of a run after burn-in, all rows being in the trace."""
    trace = result.trace
    used = after_burn_in(trace.blocks.count, burn_in)
    first = int(np.argmax(used)) * trace.block_length
    products = np.sum(trace.blocks.gradient_phi[used] - trace.blocks.gradient[used] * phi_star, axis=0)
    plan = result.plan
    return trade_off(trace.iterates[first:], products, phi_star, plan.sampling_rate, plan.noise_scale, np.array(BETA))
