"""A result as one file: NumPy arrays and a JSON header in a zip archive, readable without this library.

A file holds the plan and facts about the run, and no sentence that would have to be believed: what the result promises
is computed again on reading. A checksum over header and arrays shows accidental changes; a signature shows all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from dpvi.declared.guarantee import Circumstances
from dpvi.declared.plan import Plan
from dpvi.families import FullRank, LowRank, MeanField
from dpvi.families.guide import GuideFamily
from dpvi.models.base import Model
from dpvi.models.numpyro import as_model
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.models.recipes import model_of
from dpvi.models.sites import sites_from_dict, sites_to_dict
from dpvi.population.covariates import check_columns
from dpvi.posterior import signing
from dpvi.privacy.planning import checked_guarantee
from dpvi.records.arrays import structure_from_dict, structure_to_dict
from dpvi.release.measurements import Measurements, check_histograms, check_measurements
from dpvi.release.trace import BlockSums, CurvatureSums, Segments, Trace

FORMAT_VERSION = 2
_FAMILIES = {family.__name__: family for family in (FullRank, GuideFamily, LowRank, MeanField)}
_PARTS = {"blocks": BlockSums, "segments": Segments, "curvature": CurvatureSums, "measurements": Measurements}
_HEADER, _CHECKSUM, _SIGNATURE = "header", "checksum", "signature"


def save(result: Any, path: Path) -> None:
    """Write ``result`` to ``path``, whole or not at all."""
    arrays = _packed(result)
    arrays[_CHECKSUM] = np.frombuffer(checksum_of(arrays), np.uint8)
    if result.signature is not None:
        arrays[_SIGNATURE] = np.frombuffer(result.signature, np.uint8)
    temporary = path.with_name(path.name + ".partial")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def digest_of(result: Any) -> bytes:
    """What a signature of ``result`` covers: everything that :func:`save` writes."""
    return checksum_of(_packed(result))


def _packed(result: Any) -> dict[str, Any]:
    """Header and arrays."""
    if type(result.family).__name__ not in _FAMILIES:
        raise ValueError(f"A result can be stored for the families {sorted(_FAMILIES)}, got {result.family!r}.")
    arrays: dict[str, Any]
    arrays, trace_header = _pack_trace(result.trace)
    header = {
        "format": "dpvi result",
        "format_version": FORMAT_VERSION,
        "promise": _promise(result.plan, result.circumstances),
        "circumstances": result.circumstances.to_dict(),
        **_settings(result.plan, result.family, result.estimator, result.sites, result.structure),
        "trace": trace_header,
    }
    if result.recipe is not None:
        header["recipe"] = result.recipe
    # with sorted keys a result that was read is written again as it was, so that its signature stays valid
    arrays[_HEADER] = np.frombuffer(json.dumps(header, allow_nan=False, sort_keys=True).encode(), np.uint8)
    return arrays


def _promise(plan: Plan, circumstances: Circumstances) -> str:
    """For whoever opens the file without this library."""
    stated = plan.guarantee.under(circumstances)
    return "NOT PRIVATE" if not stated.private else f"({stated.epsilon!r}, {stated.delta!r})-differential privacy"


def checksum_of(arrays: dict[str, Any]) -> bytes:
    """SHA-256 over the names, types, shapes and values of all arrays, the header's among them."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        total.update(json.dumps([name, array.dtype.str, array.shape]).encode() + b"\n")
        total.update(array.tobytes())
    return total.digest()


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


def load(path: Path, verify_key: Any = None) -> dict[str, Any]:
    """Read the fields of a result, once its claims were computed again; with ``verify_key`` its signature is checked.

    Raises
    ------
    ValueError
        With one sentence: no result, changed since it was saved, a claim that does not hold, or not signed by this key.
    """
    with open(path, "rb") as file:  # a file that is missing or may not be read says so itself
        try:
            arrays = _read(file)
            header = json.loads(arrays[_HEADER].tobytes().decode())
            version = header["format_version"] if header["format"] == "dpvi result" else None
            found = {name: arrays.pop(name, np.zeros(0, np.uint8)).tobytes() for name in (_CHECKSUM, _SIGNATURE)}
        except Exception:  # what a damaged archive raises depends on where the damage is
            raise ValueError(f"{path} is not a dpvi result, or it is damaged.") from None
    _check_version(path, version)
    digest = checksum_of(arrays)
    if not hmac.compare_digest(found[_CHECKSUM], digest):
        raise ValueError(
            f"{path} was changed after dpvi saved it, or is damaged: its content does not fit its checksum. Nothing in "
            "it can be relied on; ask for the file as it was saved."
        )
    if verify_key is not None:
        _check_signature(path, digest, found[_SIGNATURE], verify_key)
    try:
        fields = _fields(header, arrays)
    except Exception:  # a file that was made by other means
        raise ValueError(f"{path} is not a complete dpvi result of format {FORMAT_VERSION}.") from None
    _check_claims(path, header, fields)
    _check_answers(path, fields)
    fields["model"] = _model_of_recipe(path, fields)
    return {**fields, "signature": found[_SIGNATURE] or None}


def _check_version(path: Path, version: Any) -> None:
    if version == 1:
        raise ValueError(
            f"{path} is a dpvi result of format 1, which held sentences instead of facts: whether its seed can be "
            "guessed is not in it, so that nothing can be promised. Read it with the version that wrote it."
        )
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} is not a dpvi result of format {FORMAT_VERSION}, which this version reads.")


def _check_signature(path: Path, digest: bytes, found: bytes, key: Any) -> None:
    if not found:
        raise ValueError(f"{path} is not signed. Have dpvi sign it, result.sign(key), or do not ask for a signature.")
    if not signing.is_valid(digest, found, key):
        raise ValueError(
            f"The signature of {path} is not by this key, or the file was changed after dpvi signed it. Do not rely on "
            "anything in it."
        )


def _check_claims(path: Path, header: dict[str, Any], fields: dict[str, Any]) -> None:
    """Refuse a file whose plan promises more than it keeps, or that calls itself something else than it is."""
    try:
        checked_guarantee(fields["plan"])
    except ValueError as error:
        raise ValueError(f"What {path} claims does not hold. {error}") from None
    expected = _promise(fields["plan"], fields["circumstances"])
    if header.get("promise") != expected:
        raise ValueError(
            f"{path} claims {header.get('promise')!r}, but what dpvi computes from its facts is {expected!r}."
        )


def _check_answers(path: Path, fields: dict[str, Any]) -> None:
    """Refuse a file whose answers are not such as a run of its plan gives, before anything is computed from them."""
    plan, trace = fields["plan"], fields["trace"]
    try:
        if (plan.measuring is None) != (trace.measurements is None):
            raise ValueError("It holds answers where its plan takes steps, or none where its plan measures.")
        if trace.measurements is not None and plan.measuring is not None:
            dimension = sum(site.size for site in fields["sites"])
            check_measurements(trace.measurements, dimension, plan.measuring.units)
        if trace.histograms is not None and plan.covariates is not None:
            check_histograms(trace.histograms, plan.covariates)
    except ValueError as error:
        raise ValueError(f"{path} does not hold what a run of its plan releases. {error}") from None


def _model_of_recipe(path: Path, fields: dict[str, Any]) -> Model | None:
    """The model that the file describes, where it does; one that does not fit what was released is refused."""
    if fields["recipe"] is None:
        return None
    try:
        ready = rebuild_model(model_of(fields["recipe"]), fields["structure"], fields["sites"])
        _check_counted(fields["plan"].covariates, ready)
        return ready
    except ImportError:  # all that the model is not needed for can be read all the same
        return None
    except Exception as error:
        raise ValueError(f"The model that {path} describes is not the one of its run. {error}") from None


def _check_counted(covariates: Any, ready: Model) -> None:
    """Refuse a model whose columns are not those that the plan counted."""
    if not covariates:
        return
    check_columns(cast(Any, ready), covariates)
    declared = getattr(ready, "function").covariates()  # noqa: B009
    kinds = [[(type(column), column.width) for column in columns] for columns in (covariates, declared)]
    if kinds[0] != kinds[1]:
        raise ValueError("Its columns are of other kinds than those that the plan counted.")


def _read(file: BinaryIO) -> dict[str, np.ndarray]:
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _fields(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    family = dict(header["family"])
    return {
        "plan": Plan.from_dict(header["plan"]),
        "circumstances": Circumstances.from_dict(header["circumstances"]),
        "family": _FAMILIES[family.pop("name")](**family),
        "estimator": header["estimator"],
        "sites": sites_from_dict(header["sites"]),
        "structure": structure_from_dict(header["structure"]),
        "recipe": header.get("recipe"),
        "trace": _unpack_trace({name: array for name, array in arrays.items() if name != _HEADER}, header["trace"]),
    }


def rebuild_model(model: Any, structure: Any, sites: Any) -> Model:
    """The model a result was fitted with, from its function and the stored structure of one record."""
    ready = as_model(model, structure)
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
