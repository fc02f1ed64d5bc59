"""A result as one file: NumPy arrays and a JSON header in a zip archive, readable without this library."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dpvi.core.guarantee import Guarantee
from dpvi.core.plan import Plan
from dpvi.core.trace import BlockSums, CurvatureSums, Segments, Trace
from dpvi.data.records import structure_from_dict, structure_to_dict
from dpvi.families import FullRank, LowRank, MeanField
from dpvi.families.guide import GuideFamily
from dpvi.models.base import Model
from dpvi.models.guides import GuidedModel
from dpvi.models.numpyro import NumPyroModel
from dpvi.models.sites import sites_from_dict, sites_to_dict

FORMAT_VERSION = 1
_FAMILIES = {family.__name__: family for family in (FullRank, GuideFamily, LowRank, MeanField)}
_PARTS = {"blocks": BlockSums, "segments": Segments, "curvature": CurvatureSums}
_HEADER = "header"


def save(result: Any, path: Path) -> None:
    """Write ``result`` to ``path``, whole or not at all."""
    if type(result.family).__name__ not in _FAMILIES:
        raise ValueError(f"A result can be stored for the families {sorted(_FAMILIES)}, got {result.family!r}.")
    arrays: dict[str, Any]
    arrays, trace_header = _pack_trace(result.trace)
    header = {
        "format": "dpvi result",
        "format_version": FORMAT_VERSION,
        "assumptions": list(result.guarantee.assumptions),
        **_settings(result.plan, result.family, result.estimator, result.sites, result.structure),
        "trace": trace_header,
    }
    arrays[_HEADER] = np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8)
    temporary = path.with_name(path.name + ".partial")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_storable(plan: Plan, family: Any, estimator: dict[str, Any], sites: Any, structure: Any) -> None:
    """Refuse what :func:`save` could not write, before a run spends anything.

    A family of one's own is let through: its result has a posterior, and only cannot be stored.

    Raises
    ------
    TypeError
        With one sentence that names the part.
    """
    stored = family if type(family).__name__ in _FAMILIES else MeanField()
    for part, content in _settings(plan, stored, estimator, sites, structure).items():
        try:
            json.dumps(content, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"A result is stored as JSON and arrays, and the {part} of this run could not be: {error}. Use plain "
                "numbers, text and tuples of them in its settings; nothing was released."
            ) from None


def _settings(plan: Plan, family: Any, estimator: dict[str, Any], sites: Any, structure: Any) -> dict[str, Any]:
    """What a file says of a run besides the trace, and what is known before it."""
    return {
        "plan": plan.to_dict(),
        "family": _family_to_dict(family),
        "estimator": estimator,
        "sites": sites_to_dict(sites),
        "structure": structure_to_dict(structure),
    }


def _family_to_dict(family: Any) -> dict[str, Any]:
    # a guide is a program: of it the file holds the parameters' names and shapes, and the trace their values
    settings = {"parameters": family.parameters} if isinstance(family, GuideFamily) else dataclasses.asdict(family)
    return {"name": type(family).__name__, **settings}


def load(path: Path) -> dict[str, Any]:
    """Read the fields of a result."""
    with open(path, "rb") as file:  # a file that is missing or may not be read says so itself
        try:
            header, arrays = _read(file)
            if header["format"] != "dpvi result" or header["format_version"] != FORMAT_VERSION:
                raise ValueError("another format")
            return _fields(header, arrays)
        except Exception:  # what a damaged archive raises depends on where the damage is
            raise ValueError(
                f"{path} is not a dpvi result of format {FORMAT_VERSION}, which this version reads, or it is damaged."
            ) from None


def _read(file: BinaryIO) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop(_HEADER).tobytes().decode()), arrays


def _fields(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    plan = Plan.from_dict(header["plan"])
    family = dict(header["family"])
    guarantee: Guarantee = dataclasses.replace(plan.guarantee, assumptions=tuple(header["assumptions"]))
    return {
        "plan": plan,
        "guarantee": guarantee,
        "family": _FAMILIES[family.pop("name")](**family),
        "estimator": header["estimator"],
        "sites": sites_from_dict(header["sites"]),
        "structure": structure_from_dict(header["structure"]),
        "trace": _unpack_trace(arrays, header["trace"]),
    }


def rebuild_model(model: Any, structure: Any, sites: Any) -> Model:
    """The model a result was fitted with, from its function and the stored structure of one record."""
    ready = model if isinstance(model, Model) else NumPyroModel(model, structure)
    stored = [(site.name, site.shape) for site in sites]
    found = [(site.name, site.shape) for site in getattr(ready, "sites", ())]
    if stored != found:
        raise ValueError(f"This result was fitted with parameters {stored}, but the model given has {found}.")
    return ready


def rebuild_guide(model: Any, guide: Any, structure: Any, family: GuideFamily) -> GuidedModel:
    """The guide and model a result was fitted with, from their functions and the stored structure of one record."""
    if model is None or guide is None:
        raise ValueError(
            "This result was fitted with a guide; pass both, Result.load(path, model=model, guide=guide), or neither."
        )
    ready = GuidedModel(getattr(model, "function", model), guide, structure)
    found = tuple(ready.parameters.describe())
    if found != family.parameters:
        raise ValueError(f"This result was fitted with parameters {family.parameters}, but the guide has {found}.")
    return ready


def _pack_trace(trace: Trace) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays, header = {}, {}
    for name, value in trace._asdict().items():
        if name in _PARTS:
            for part, array in value._asdict().items() if value is not None else ():
                arrays[f"{name}.{part}"] = array
        elif isinstance(value, np.ndarray):
            arrays[name] = value
        elif value is None:
            continue
        else:
            header[name] = int(value)
    return arrays, header


def _unpack_trace(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Trace:
    fields: dict[str, Any] = dict(header)
    for name, kind in _PARTS.items():
        present = f"{name}.{kind._fields[0]}" in arrays
        fields[name] = kind(*(arrays[f"{name}.{part}"] for part in kind._fields)) if present else None
    fields.update({name: array for name, array in arrays.items() if "." not in name})
    return Trace(**fields)
