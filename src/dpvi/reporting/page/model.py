"""What is known of a result's model: its parameters and priors, its response, and how estimates may be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro

from dpvi.models.numpyro import NumPyroModel
from dpvi.models.sites import Site, is_real
from dpvi.reporting.page.elements import Markup, element, joined, number, table

_RATIOS = {
    "Bernoulli": "odds ratio",
    "Binomial": "odds ratio",
    "Poisson": "rate ratio",
    "NegativeBinomial": "rate ratio",
}


def model_section(
    family: str, sites: tuple[Site, ...], model: Any, facts: Mapping[str, str], rows: Sequence[Sequence[str]] = ()
) -> Markup:
    """Parameters with their priors as far as known, and further ``facts`` one by one."""
    priors = priors_of(model, sites)
    response = response_of(model)
    known = {**facts, **({"Response": response} if response and "Response" not in facts else {})}
    listed = [[name, text] for name, text in {**known, "Approximation": family}.items()]
    parts = [table("The model in short", [], listed, class_="plain")]
    if rows:
        heads = ["Parameter", "Prior on the declared scale", "Prior in own units"]
        parts.append(table("Priors: what was thought before the records were asked", heads, rows))
    elif sites:
        found = [[site.name, _shape(site.shape), priors.get(site.name, _support(site))] for site in sites]
        parts.append(table("Parameters", ["Parameter", "Numbers", "Prior" if priors else "Support"], found))
    if not priors and sites:
        note = "A result holds no model, because a model is a program; with it this page would show the priors, too."
        parts.append(element("p", note, class_="note"))
    return joined(parts)


def priors_of(model: Any, sites: tuple[Site, ...]) -> dict[str, str]:
    """``{site: "Normal(loc = 0, scale = 1)"}`` where the model can be asked."""
    messages = _messages(model)
    return {site.name: described(messages[site.name]["fn"]) for site in sites if site.name in messages}


def response_of(model: Any) -> str:
    """Name and distribution of what the model observes."""
    observed = [each for each in _messages(model).values() if each["type"] == "sample" and each["is_observed"]]
    return "; ".join(f"{each['name']} ~ {_kind(each['fn'])}" for each in observed if _kind(each["fn"]) != "Unit")


def ratio_of(model: Any) -> str:
    """What exp(coefficient) is called for the one response of a model; empty where there is no such name."""
    observed = [each for each in _messages(model).values() if each["type"] == "sample" and each["is_observed"]]
    kinds = [_kind(each["fn"]) for each in observed]
    found = [name for kind, name in _RATIOS.items() if len(kinds) == 1 and kinds[0].startswith(kind)]
    return found[0] if found else ""


def described(distribution: Any) -> str:
    """A distribution with its arguments, in words."""
    inner = _unwrapped(distribution)
    arguments = [(name, getattr(inner, name, None)) for name in getattr(inner, "arg_constraints", {})]
    told = ", ".join(f"{name} = {_values(value)}" for name, value in arguments if value is not None)
    return f"{_kind(inner)}({told})"


def real_parameters(sites: tuple[Site, ...]) -> set[str]:
    """Sites whose numbers may have either sign."""
    return {site.name for site in sites if site.support is not None and is_real(site.support)}


def _messages(model: Any) -> dict[str, dict]:
    if not isinstance(model, NumPyroModel):
        return {}
    with numpyro.validation_enabled(False):
        return model.run(jnp.zeros(model.dimension), model.placeholder())


def _unwrapped(distribution: Any) -> Any:
    while type(distribution).__name__ in ("Independent", "ExpandedDistribution", "MaskedDistribution"):
        distribution = distribution.base_dist
    return distribution


def _kind(distribution: Any) -> str:
    name = type(_unwrapped(distribution)).__name__
    return name.removesuffix("Logits").removesuffix("Probs")


def _values(value: Any) -> str:
    numbers = np.unique(np.asarray(value, np.float64))
    if len(numbers) == 1:
        return number(float(numbers[0]))
    return f"{number(float(numbers[0]))} to {number(float(numbers[-1]))}" if len(numbers) else "–"


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "1"


def _support(site: Site) -> str:
    if site.support is None:
        return "known to the model only"
    return str(getattr(site.support, "__name__", None) or type(site.support).__name__).strip("_").replace("_", " ")
