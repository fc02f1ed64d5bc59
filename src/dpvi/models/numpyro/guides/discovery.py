"""What a guide and its model consist of, found by tracing both abstractly on two batch sizes.

The record plate of the model is the one whose size follows the batch; what lies inside it belongs to a record. The
guide must say the same of every latent site: a site that is a record's own in one and everybody's in the other has no
per-record term.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to

from dpvi.models.base import ModelError
from dpvi.models.numpyro import execution
from dpvi.models.numpyro.discovery import BATCH_SIZES, batched, scale_findings
from dpvi.models.numpyro.guides.execution import drawn, same_shape, shape_of, stand_in
from dpvi.models.numpyro.implied import RecordPlate, Spans, crossing_findings, lacking, spans_of, with_plate
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
    implied
        What the model lacked of its record plate; None where it lacked nothing.
    """

    sites: tuple[Site, ...]
    record_plate: str
    guide_plate: str | None
    local_sites: tuple[str, ...]
    implied: RecordPlate | None


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
    spans: Spans  # of the model
    scaled: dict[str, dict[str, list[str]]]  # the same: {plate: scaled sites of one that is met in loops only}


def discover(function: Callable, guide: Callable, structure: Any, parameters: Mapping[str, Any]) -> GuidedLayout:
    """Find the shared and the local sites, or say in a :class:`ModelError` why the pair cannot be used."""
    small, large = (_sketch(function, guide, structure, parameters, size) for size in BATCH_SIZES)
    crossed = crossing_findings(small.spans, large.spans, BATCH_SIZES)
    if crossed:
        raise ModelError(crossed)
    implied = lacking(small.spans, large.spans, BATCH_SIZES)
    if implied is not None:
        plated = with_plate(function, implied)
        small, large = (_sketch(plated, guide, structure, parameters, size) for size in BATCH_SIZES)
    record_plate = _plate_of(small.plates["model"], large.plates["model"], "model")
    guide_plate = _plate_of(small.plates["guide"], large.plates["guide"], "guide")
    if record_plate is None:
        raise ModelError(
            "The model must have a plate that spans the records, but none follows the data; put the sites of a record "
            "under `with numpyro.plate('records', x.shape[0]):`."
        )
    findings = _type_findings(small) + _latent_findings((small, large), record_plate, guide_plate)
    for where, plate in (("model", record_plate), ("guide", guide_plate)):
        findings += scale_findings(small.scaled[where].get(plate or "", []), plate or "")
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
    return GuidedLayout(layout(shared), record_plate, guide_plate, local, implied)


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
            is_latent = message["type"] == "sample" and not message["is_observed"]
            return stand_in(message, latents.get(message["name"])) if is_latent else None

        guide_trace = execution.execute(guide, batch, lambda message: fill(message, {}), key=key)
        latents = drawn(guide_trace)
        model_trace = execution.execute(function, batch, lambda message: fill(message, latents), key=key)
        for name, trace in (("guide", guide_trace), ("model", model_trace)):
            kept[name] = {site: _seen(each) for site, each in trace.items() if each["type"] in ("sample", "mutable")}
        kept["spans"] = spans_of(model_trace)
        kept["plates"] = {"guide": execution.plates_of(guide_trace), "model": execution.plates_of(model_trace)}
        kept["scaled"] = {
            where: {plate: execution.scaled_in_a_loop(trace, plate) for plate in kept["plates"][where]}
            for where, trace in (("guide", guide_trace), ("model", model_trace))
        }

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
    distribution = message["fn"]
    auxiliary = bool(message["infer"].get("is_auxiliary"))
    if message["is_observed"]:
        shape = jnp.shape(message["value"])
        return _Seen("sample", False, False, auxiliary, True, shape, shape, plates)
    shape = shape_of(message)  # not the value's, which in the model is the guide's
    support = distribution.support
    discrete = support is None or support.is_discrete
    unconstrained = shape if discrete else biject_to(support).inverse_shape(shape)
    return _Seen("sample", True, discrete, auxiliary, distribution.has_rsample, shape, unconstrained, plates)


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
        f"Latent site {name!r} is discrete, and no guide can move it by gradients: leave out the guide, then discrete "
        "latents of a record are summed over, or marginalise it, for example with numpyro's MixtureSameFamily."
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


def _latent_findings(sketches: tuple[_Sketch, _Sketch], record_plate: str, guide_plate: str | None) -> list[str]:
    findings, small = [], sketches[0]
    guided = {name: seen for name, seen in small.guide.items() if seen.is_latent}
    latent = {name: seen for name, seen in small.model.items() if seen.is_latent}
    for name, seen in latent.items():
        if name not in guided:
            findings += [] if seen.is_discrete else [_missing(name, small.model)]
            continue
        inside, other = record_plate in seen.plates, guide_plate in guided[name].plates
        if inside and not other:
            findings.append(
                f"Latent site {name!r} belongs to a record in the model but lies outside a record plate in the guide; "
                "draw it under a plate over the records, from a distribution that is computed from the record "
                "(amortised), as a guide written by hand can and an autoguide cannot."
            )
        elif other and not inside:
            findings.append(
                f"The guide draws {name!r} under its record plate, but the model shares it between all records; "
                "move it out of the plate in the guide."
            )
        else:
            findings += _shape_findings(name, sketches, (record_plate, guide_plate))
    findings += [
        f"The guide draws {name!r}, which the model does not have; remove it, rename it, or mark a variable of the "
        "guide alone with infer={'is_auxiliary': True}."
        for name, seen in guided.items()
        if name not in latent and not seen.is_auxiliary
    ]
    return findings or _growing_findings(sketches, (record_plate, guide_plate))


def _missing(name: str, sites: Container[str]) -> str:
    observed = name.removesuffix("_unobserved")
    if observed != name and f"{observed}_observed" in sites:  # the two halves of numpyro.sample(obs_mask=)
        return (
            f"The guide must draw every latent site of the model, but misses {name!r}, the values that obs_mask= says "
            f"are missing in {observed!r}; draw it under the record plate of the guide, or leave such values out by "
            "`with numpyro.handlers.mask(mask=...):` around the site in place of obs_mask=."
        )
    return f"The guide must draw every latent site of the model, but misses {name!r}; add it."


def _shape_findings(name: str, sketches: tuple[_Sketch, _Sketch], record_plates: tuple[str, str | None]) -> list[str]:
    """Another shape in guide and model: broadcast, the density of a draw would count several times, or not at all."""
    for size, sketch in zip(BATCH_SIZES, sketches, strict=True):  # one batch size may be that of another axis
        modelled, guided = sketch.model.get(name), sketch.guide.get(name)
        if modelled is None or guided is None or same_shape(modelled.shape, guided.shape):
            continue
        missing = (modelled.plates - guided.plates).difference(record_plates)
        further = (guided.plates - modelled.plates).difference(record_plates)
        remedy = "give its distribution in the guide that shape, by expand, to_event or the dim= of its plates"
        if missing:
            remedy = f"draw it under {_names(sorted(missing))} in the guide, too"
        elif further:
            remedy = f"draw it outside {_names(sorted(further))} in the guide, or under it in the model, too"
        batch = f" for {size} records" if record_plates[0] in modelled.plates else ""
        return [
            f"Latent site {name!r} must have the shape it has in the model, {modelled.shape}{batch}, but the guide "
            f"draws {guided.shape}, which would be repeated or count several times; {remedy}."
        ]
    return []


def _growing_findings(sketches: tuple[_Sketch, _Sketch], record_plates: tuple[str, str | None]) -> list[str]:
    """Sites outside the record plates that depend on how many records there are: a single record sees others."""
    findings = []
    for where, small, large in (
        ("model", sketches[0].model, sketches[1].model),
        ("guide", sketches[0].guide, sketches[1].guide),
    ):
        findings += [
            f"Site {name!r} of the {where} must exist for any number of records, but comes and goes with it; put what "
            "belongs to a record under the record plate."
            for name in sorted(set(small) ^ set(large))
        ]
        findings += [
            f"Latent site {name!r} of the {where} must have the same shape for any number of records, but grows with "
            "it: a latent per record belongs under the record plate, in guide and model."
            for name, seen in small.items()
            if seen.is_latent
            and name in large
            and seen.shape != large[name].shape
            and not seen.plates.intersection(record_plates)
        ]
    return findings


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
