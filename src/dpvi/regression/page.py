"""A regression as a page: its coefficients in own units and on a common scale, and how predictors move the response."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpvi.models.formula import FormulaModel
from dpvi.models.formula.families import LINKS
from dpvi.models.formula.priors import INTERCEPT
from dpvi.posterior import Posterior
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.metric.metric_posterior import MetricGaussian
from dpvi.regression.draws import drawn, in_own_units, on_declared_scale
from dpvi.regression.population import population, values_of, with_value
from dpvi.regression.predictions import mean_draws
from dpvi.regression.summary import CoefficientTable
from dpvi.reporting.page.charts import Effect
from dpvi.reporting.page.forest import Coefficient, Estimates
from dpvi.reporting.page.report import report_page
from dpvi.reporting.page.shell import write_page

if TYPE_CHECKING:
    from dpvi.regression.fitted import RegressionResult

_DRAWS, _EFFECT_DRAWS = 10_000, 400
_EVERY = 4  # row of the simulated population
_MOST_EFFECTS = 8
_RATIOS = {"logit": "odds ratio", "log": "ratio of means"}
_OWN = "What one unit of a column, as it stands in the table, adds to the linear predictor."
_DECLARED = (
    "What a quarter of a column's declared range adds, and of an indicator the whole step: these can be held against "
    "each other, and priors are stated on this scale."
)


def write_regression_page(fitted: RegressionResult, path: str | Path, **contents: Any) -> Path:
    """Write the page about ``fitted``; ``contents`` as :class:`dpvi.reporting.Contents` has them."""
    model = fitted.model
    facts = {
        "Formula": fitted.formula,
        "Family": f"{fitted.family}, link {LINKS[fitted.family]}, of {model.response.label}",
    }
    own: dict[str, Any] = {
        "facts": facts,
        "priors": model.prior_rows(),
        "estimates": estimates(fitted),
        "effects": effects(fitted),
        "ratio": _RATIOS.get(LINKS[fitted.family], ""),
    }
    return write_page(report_page(fitted.result, posterior=fitted.posterior, **own | contents), path)


def estimates(fitted: RegressionResult) -> list[Estimates]:
    """Coefficients in own units, and on the declared scale."""
    draws, model = drawn(fitted.posterior, _DRAWS), fitted.model
    own = _rows(fitted.summary(), in_own_units(model, draws), model)
    declared = _rows(fitted.summary(units="declared"), on_declared_scale(model, draws), model)
    probability = fitted.summary().probability
    return [
        Estimates(own, probability, "In units of the table", _OWN),
        Estimates(declared, probability, "On one scale", _DECLARED),
    ]


def _rows(table: CoefficientTable, draws: dict[str, np.ndarray], model: FormulaModel) -> list[Coefficient]:
    signed = {INTERCEPT, *model.design.names}
    nothing = np.full(len(table.names), np.nan)
    parts = [nothing if part is None else part for part in (table.sampling_sd, table.privacy_sd)]
    columns = zip(table.names, table.estimate, table.sd, table.lower, table.upper, *parts, strict=True)
    found = []
    for name, *values in columns:
        mean, sd, lower, upper, *both = map(float, values)
        sampling, privacy = (None if np.isnan(part) else part for part in both)
        above = float(np.mean(draws[name] > 0)) if name in signed else None
        found.append(Coefficient(name, mean, sd, lower, upper, sampling, privacy, above, name == INTERCEPT))
    return found


def effects(fitted: RegressionResult) -> list[Effect]:
    """How the mean response moves with each predictor, averaged over people as the run's counts describe them."""
    model, result = fitted.model, fitted.result
    if result.plan.covariates is None or result.trace.histograms is None or model.trials is not None:
        return []
    rows = population(result, model)[::_EVERY]
    every, alone = fitted.draws(_EFFECT_DRAWS), _sampling_draws(fitted.posterior)
    return [_effect(model, name, rows, every, alone) for name in list(model.design.raw.names)[:_MOST_EFFECTS]]


def _sampling_draws(posterior: Posterior) -> dict[str, np.ndarray] | None:
    """Draws of the posterior that the same model has without privacy, around the same answer."""
    found = posterior.distribution
    if not isinstance(found, MetricGaussian):
        return None
    without = Gaussian.from_covariance(found.mean, found.sampling_covariance)
    return drawn(Posterior(without, posterior.bijections, posterior.method, posterior.guarantee), _EFFECT_DRAWS)


def _effect(
    model: FormulaModel, name: str, rows: np.ndarray, every: dict[str, np.ndarray], alone: dict[str, np.ndarray] | None
) -> Effect:
    values = values_of(model, name)

    def averaged(draws: dict[str, np.ndarray]) -> np.ndarray:
        """(values, draws)"""
        means = [mean_draws(model, with_value(model, rows, name, each), draws) for each in values]
        if model.family == "ordinal":  # the expected position among the levels, counted from 1
            means = [mean @ np.arange(1, mean.shape[-1] + 1) for mean in means]
        return np.stack([mean.mean(axis=1) for mean in means])

    total = averaged(every)
    lower, upper = np.quantile(total, [0.025, 0.975], axis=1)
    inner = (
        ((), ()) if alone is None else tuple(map(tuple, np.quantile(averaged(alone), [0.025, 0.975], axis=1).tolist()))
    )
    label = {"logit": f"probability of {model.response.label}"}.get(LINKS[model.family], f"mean {model.response.label}")
    if model.family == "ordinal":
        label = f"mean position of {model.response.label} among its levels"
    shown, mean = tuple(_shown(each) for each in values), tuple(total.mean(axis=1).tolist())
    return Effect(f"By {name}", name, label, shown, mean, tuple(lower.tolist()), tuple(upper.tolist()), *inner)


def _shown(value: Any) -> float | str:
    """A number for an axis, or the name of a level."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    return float(value) if isinstance(value, (int, float, np.number)) else str(value)
