"""Weakly informative priors on the declared scale, in place of priors that are scaled by the records.

A column of the design runs over four units of its declared range, an indicator over one. With ``prior_scale`` 2.5,

==================  ==============================================================================================
parameter           prior
==================  ==============================================================================================
coefficients        Normal(0, 2.5) per quarter of the column's declared range, or per indicator
intercept           Normal(middle of the response, 5), where every column is in the middle of its declared range
``sigma``           LogNormal(−1, 1), in quarters of the response's declared range: 95 % within 1/20 and 2.6
``concentration``   LogNormal(0, 1.5)
``shape``           LogNormal(0, 1.5)
``cutpoints``       as if all levels were as likely, each Normal or log-normal around that with scales 2.5 and 1
varying intercepts  Normal(0, sd) with sd ~ HalfNormal(1)
==================  ==============================================================================================

The units of a Gaussian response are quarters of its declared range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

from dpvi.models.formula.design import FormulaDesign
from dpvi.models.formula.errors import FormulaError
from dpvi.models.formula.families import Response

PRIOR_SCALE = 2.5
_FURTHER = {
    "gaussian": ("sigma", (-1.0, 1.0)),
    "student_t": ("sigma", (-1.0, 1.0)),
    "negative_binomial": ("concentration", (0.0, 1.5)),
    "gamma": ("shape", (0.0, 1.5)),
}
_GROUP_SCALE = 1.0
INTERCEPT = "Intercept"


class Priors(NamedTuple):
    """Priors of a design's coefficients on the declared scale, in the order of its columns."""

    location: np.ndarray
    scale: np.ndarray
    intercept: tuple[float, float]


def checked_prior(prior: Any) -> dict[str, tuple[float, float]]:
    """``{term or column: (mean, standard deviation)}`` in own units, as plain numbers."""
    if prior is None:
        return {}
    if not isinstance(prior, Mapping):
        raise FormulaError(_shape_of_priors(prior))
    found = {}
    for name, pair in prior.items():
        try:
            mean, deviation = (float(number) for number in pair)
        except (TypeError, ValueError):
            raise FormulaError(_shape_of_priors({name: pair})) from None
        if not (isinstance(name, str) and math.isfinite(mean) and math.isfinite(deviation) and deviation > 0):
            raise FormulaError(_shape_of_priors({name: pair}))
        found[name] = (mean, deviation)
    return found


def _shape_of_priors(given: Any) -> str:
    return (
        "prior must be {name of a term: (mean, standard deviation)}, per unit of the column as it stands in the table, "
        f"such as prior={{'age': (0, 0.1)}}, got {given!r}."
    )


def priors_of(
    design: FormulaDesign, response: Response, prior: Mapping[str, tuple[float, float]], prior_scale: float
) -> Priors:
    """The priors of all coefficients; what is given in own units is put on the declared scale."""
    names, terms = design.names, design.term_names
    unknown = sorted(prior.keys() - {*names, *terms, INTERCEPT})
    if unknown:
        known = ", ".join(map(repr, dict.fromkeys([INTERCEPT, *terms, *names])))
        raise FormulaError(f"prior names {', '.join(map(repr, unknown))}, but there are {known}.")
    location, scale = np.zeros(len(names)), np.full(len(names), float(prior_scale))
    for index, (name, term) in enumerate(zip(names, terms, strict=True)):
        given = prior.get(name, prior.get(term))
        if given is not None:
            location[index], scale[index] = np.array(given) * design.scale[index] / response.unit
    intercept = (response.start, 2.0 * prior_scale)
    if INTERCEPT in prior:
        mean, deviation = prior[INTERCEPT]
        intercept = ((mean - response.middle) / response.unit, deviation / response.unit)
    return Priors(location, scale, intercept)


def further_priors(response: Response) -> dict[str, Any]:
    """``{site: prior}`` of what a family has besides coefficients."""
    if response.family in _FURTHER:
        site, numbers = _FURTHER[response.family]
        return {site: dist.LogNormal(*numbers)}
    if response.family != "ordinal":
        return {}
    shares = np.arange(1, response.num_levels) / response.num_levels
    even = np.log(shares / (1 - shares))
    centre = np.concatenate([even[:1], np.log(np.diff(even))])
    spread = np.concatenate([[PRIOR_SCALE], np.ones(len(even) - 1)])
    base = dist.Normal(centre.astype(np.float32), spread.astype(np.float32)).to_event(1)
    return {"cutpoints": dist.TransformedDistribution(base, OrderedTransform())}


def group_priors(levels: int) -> tuple[Any, Any]:
    """Of the standard deviation between levels, and of the levels in units of it."""
    return dist.HalfNormal(_GROUP_SCALE), dist.Normal(0.0, 1.0).expand([levels]).to_event(1)


def described(design: FormulaDesign, response: Response, priors: Priors) -> list[tuple[str, str, str]]:
    """(parameter, prior on the declared scale, prior per unit of the column): what ``prior_summary`` shows."""
    unit, rows = response.unit, []
    if design.parsed.intercept and response.family != "ordinal":
        mean, deviation = priors.intercept
        own = f"Normal({response.middle + unit * mean:.4g}, {unit * deviation:.4g}) at the middle of all columns"
        rows.append((INTERCEPT, f"Normal({mean:.4g}, {deviation:.4g})", own))
    for name, mean, deviation, scale in zip(design.names, priors.location, priors.scale, design.scale, strict=True):
        own = f"Normal({mean * unit / scale:.4g}, {deviation * unit / scale:.4g})"
        rows.append((name, f"Normal({mean:.4g}, {deviation:.4g})", own))
    for group in design.parsed.groups:
        rows.append((f"sd(1 | {group})", f"HalfNormal({_GROUP_SCALE:g})", f"HalfNormal({_GROUP_SCALE * unit:.4g})"))
    if response.family in _FURTHER:
        site, (mean, deviation) = _FURTHER[response.family]
        own = f"LogNormal({mean + math.log(unit):.4g}, {deviation:g})"
        rows.append((site, f"LogNormal({mean:g}, {deviation:g})", own))
    if response.family == "ordinal":
        text = "all levels as likely; Normal(·, 2.5), then log-normal steps with scale 1"
        rows.append(("cutpoints", text, "as beside"))
    return rows
