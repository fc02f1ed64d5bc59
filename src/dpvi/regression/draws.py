"""Draws of a regression's parameters in the units of the table, from draws on the declared scale.

With c_j and s_j the declared middle and scale of column j, u the response's unit and m its middle, a coefficient per
unit of its column is u w_j/s_j, and the intercept m + u (intercept − Σ_j w_j c_j/s_j). Both are linear, so that means,
standard deviations and intervals go over exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from dpvi.models.formula import FormulaModel
from dpvi.models.formula.priors import INTERCEPT, further_priors
from dpvi.posterior import Posterior


def drawn(posterior: Posterior, num_samples: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Draws of all sites with a fixed key, so that printing twice prints the same numbers."""
    draws = posterior.sample(num_samples, jax.random.key(seed), deterministic=False)
    return {name: np.asarray(draw, np.float64) for name, draw in draws.items()}


def privacy_only(posterior: Posterior, num_samples: int) -> dict[str, np.ndarray] | None:
    """Draws of what privacy alone leaves open, where a posterior tells it apart."""
    distribution = getattr(posterior.distribution, "privacy", None)
    if distribution is None:
        return None
    return drawn(Posterior(distribution, posterior.bijections, posterior.method, posterior.guarantee), num_samples)


def in_own_units(
    model: FormulaModel, draws: Mapping[str, np.ndarray], *, levels: bool = False
) -> dict[str, np.ndarray]:
    """``{name: draws}`` of coefficients and of what the family has besides, per unit of the table's columns.

    ``levels`` adds the intercept of every level of ``(1 | group)``.
    """
    design, response, found = model.design, model.response, {}
    weights = draws["weights"] / design.scale if design.names else np.zeros((len(next(iter(draws.values()))), 0))
    shift = weights @ design.centre
    if model.has_intercept:
        found[INTERCEPT] = response.middle + response.unit * (draws["intercept"] - shift)
    found |= {name: response.unit * weights[:, index] for index, name in enumerate(design.names)}
    for group in design.parsed.groups:
        found |= _group(model, group, draws, levels)
    for site in further_priors(response):
        if site != "cutpoints":
            found[site] = draws[site] * (response.unit if site == "sigma" else 1.0)
            continue
        names = model.schema[response.name].levels  # pyright: ignore[reportAttributeAccessIssue]
        for index in range(len(names) - 1):
            found[f"{names[index]} | {names[index + 1]}"] = draws[site][:, index] + shift
    return found


def on_declared_scale(model: FormulaModel, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """``{name: draws}`` per quarter of each column's declared range, as priors are stated."""
    found = {INTERCEPT: draws["intercept"]} if model.has_intercept else {}
    found |= {name: draws["weights"][:, index] for index, name in enumerate(model.design.names)}
    for group in model.design.parsed.groups:
        found[f"sd(1 | {group})"] = draws[f"sd_{group}"]
    for site in further_priors(model.response):
        several = draws[site].ndim > 1
        found |= {f"{site}[{i}]": each for i, each in enumerate(draws[site].T)} if several else {site: draws[site]}
    return found


def _group(model: FormulaModel, group: str, draws: Mapping[str, np.ndarray], levels: bool) -> dict[str, np.ndarray]:
    unit = model.response.unit
    found = {f"sd(1 | {group})": unit * draws[f"sd_{group}"]}
    if levels:
        effects = unit * draws[f"sd_{group}"][:, None] * draws[f"effects_{group}"]
        names = model.design.raw.places[group].levels or ()
        found |= {f"(1 | {group})[{name}]": effects[:, index] for index, name in enumerate(names)}
    return found
