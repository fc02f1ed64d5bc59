"""What a guide and its model consist of, found by tracing both abstractly on two batch sizes.

The record plate of the model is the one whose size follows the batch; what lies inside it belongs to a record. The
guide must say the same of every latent site: a site that is a record's own in one and everybody's in the other has no
per-record term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to

from dpvi.models import execution
from dpvi.models.base import ModelError
from dpvi.models.discovery import BATCH_SIZES, batched
from dpvi.models.guides.execution import drawn
from dpvi.models.sites import Site, layout


class GuidedLayout(NamedTuple):
    """The parts of a guide and its model.

    Attributes
    ----------
    sites
        Latent sites that all records share, in the order in which the model meets them. Their supports are the
        model's to know.
    record_plate, guide_plate
        Names of the plates that span the records in model and guide; None where the guide has none.
    local_sites
        Latent sites of a record's own.
    """

    sites: tuple[Site, ...]
    record_plate: str
    guide_plate: str | None
    local_sites: tuple[str, ...]


class _Seen(NamedTuple):
    type: str
    is_latent: bool
    is_discrete: bool
    is_auxiliary: bool
    can_be_differentiated: bool
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    plates: frozenset[str]


class _Sketch(NamedTuple):
    model: dict[str, _Seen]
    guide: dict[str, _Seen]
    plates: dict[str, dict[str, int]]  # "model" and "guide": {plate: size of its batch dimension}


def discover(function: Callable, guide: Callable, structure: Any, parameters: Mapping[str, Any]) -> GuidedLayout:
    """Find the shared and the local sites, or say in a :class:`ModelError` why the pair cannot be used."""
    small, large = (_sketch(function, guide, structure, parameters, size) for size in BATCH_SIZES)
    record_plate = _plate_of(small.plates["model"], large.plates["model"], "model")
    guide_plate = _plate_of(small.plates["guide"], large.plates["guide"], "guide")
    if record_plate is None:
        raise ModelError(
            "The model must have a plate that spans the records, but none follows the data; put the sites of a record "
            "under `with numpyro.plate('records', x.shape[0]):`."
        )
    findings = _type_findings(small) + _latent_findings(small, record_plate, guide_plate)
    if not any(not seen.is_latent and record_plate in seen.plates for seen in small.model.values()):
        findings.append(
            f"Plate {record_plate!r} must hold an observed site, but nothing under it is given obs=; "
            "pass the response in data too."
        )
    if findings:
        raise ModelError(findings)
    latent = {name: seen for name, seen in small.model.items() if seen.is_latent}
    shared = [
        (name, s.shape, s.unconstrained_shape, None) for name, s in latent.items() if record_plate not in s.plates
    ]
    local = tuple(name for name, seen in latent.items() if record_plate in seen.plates)
    return GuidedLayout(layout(shared), record_plate, guide_plate, local)


def _sketch(
    function: Callable, guide: Callable, structure: Any, parameters: Mapping[str, Any], num_records: int
) -> _Sketch:
    kept: dict[str, Any] = {}

    def run(values: Mapping[str, Any], key: jax.Array, batch: Any) -> None:
        def fill(message: dict, latents: Mapping[str, Any]) -> Any:
            if message["type"] == "plate":
                return execution.whole_batch(message, num_records)
            if message["type"] == "param":
                return values.get(message["name"])
            return latents.get(message["name"]) if message["type"] == "sample" and not message["is_observed"] else None

        guide_trace = execution.execute(guide, batch, lambda message: fill(message, {}), key=key)
        latents = drawn(guide_trace)
        model_trace = execution.execute(function, batch, lambda message: fill(message, latents), key=key)
        for name, trace in (("guide", guide_trace), ("model", model_trace)):
            kept[name] = {site: _seen(each) for site, each in trace.items() if each["type"] in ("sample", "mutable")}
        kept["plates"] = {"guide": _plates(guide_trace), "model": _plates(model_trace)}

    try:
        jax.eval_shape(run, parameters, jax.eval_shape(lambda: jax.random.key(0)), batched(structure, num_records))
    except Exception as error:
        raise ModelError(
            f"Guide and model must run on any number of records, but fail with {type(error).__name__} on two or three: "
            "take the size of the record plate from an argument, as in x.shape[0], in both; an autoguide cannot hold "
            "one parameter per record, so a local latent needs a guide that computes it from its record."
        ) from error
    return _Sketch(**kept)


def _seen(message: dict) -> _Seen:
    if message["type"] == "mutable":
        return _Seen("mutable", False, False, False, True, (), (), frozenset())
    plates = frozenset(frame.name for frame in message["cond_indep_stack"])
    shape = jnp.shape(message["value"])
    distribution = message["fn"]
    auxiliary = bool(message["infer"].get("is_auxiliary"))
    if message["is_observed"]:
        return _Seen("sample", False, False, auxiliary, True, shape, shape, plates)
    support = distribution.support
    discrete = support is None or support.is_discrete
    unconstrained = shape if discrete else biject_to(support).inverse_shape(shape)
    return _Seen("sample", True, discrete, auxiliary, distribution.has_rsample, shape, unconstrained, plates)


def _plates(trace: Mapping[str, dict]) -> dict[str, int]:
    return {name: each["value"].shape[0] for name, each in trace.items() if each["type"] == "plate"}


def _plate_of(small: dict[str, int], large: dict[str, int], where: str) -> str | None:
    following = [name for name, size in small.items() if (size, large.get(name)) == BATCH_SIZES]
    if len(following) > 1:
        raise ModelError(
            f"One plate must span the records, but {_names(following)} all do in the {where}; "
            "put every site of a record under one plate."
        )
    return following[0] if following else None


def _type_findings(sketch: _Sketch) -> list[str]:
    findings = []
    for where, sites in (("model", sketch.model), ("guide", sketch.guide)):
        findings += [
            f"The {where} holds the mutable site {name!r}, such as the running means of batch normalisation, which "
            "couple records and leave without noise; use layer normalisation, or modules without state."
            for name, seen in sites.items()
            if seen.type == "mutable"
        ]
    findings += [
        f"Latent site {name!r} is discrete and enumeration is not supported: marginalise it, "
        "for example with numpyro's MixtureSameFamily."
        for name, seen in {**sketch.guide, **sketch.model}.items()
        if seen.is_latent and seen.is_discrete
    ]
    findings += [
        f"The guide's draw of {name!r} cannot be differentiated with respect to its parameters, so its gradient would "
        "be wrong; choose a distribution with reparameterised draws (has_rsample), such as a transformed normal."
        for name, seen in sketch.guide.items()
        if seen.is_latent and not seen.is_discrete and not seen.can_be_differentiated
    ]
    return findings


def _latent_findings(sketch: _Sketch, record_plate: str, guide_plate: str | None) -> list[str]:
    findings = []
    guided = {name: seen for name, seen in sketch.guide.items() if seen.is_latent}
    latent = {name: seen for name, seen in sketch.model.items() if seen.is_latent}
    for name, seen in latent.items():
        if name not in guided:
            findings.append(f"The guide must draw every latent site of the model, but misses {name!r}; add it.")
            continue
        inside, other = record_plate in seen.plates, guide_plate in guided[name].plates
        if inside and not other:
            findings.append(
                f"Latent site {name!r} belongs to a record in the model but lies outside a record plate in the guide; "
                "draw it under a plate over the records whose distribution is computed from the record (amortised)."
            )
        elif other and not inside:
            findings.append(
                f"The guide draws {name!r} under its record plate, but the model shares it between all records; "
                "move it out of the plate in the guide."
            )
        elif seen.shape != guided[name].shape:
            findings.append(
                f"Latent site {name!r} has shape {seen.shape} in the model and {guided[name].shape} in the guide "
                "for the same batch; make them equal."
            )
    findings += [
        f"The guide draws {name!r}, which the model does not have; remove it, rename it, or mark a variable of the "
        "guide alone with infer={'is_auxiliary': True}."
        for name, seen in guided.items()
        if name not in latent and not seen.is_auxiliary
    ]
    return findings


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
