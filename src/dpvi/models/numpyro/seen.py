"""What a model's sites are found to be, and the sentences about those that a fit cannot use."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from dpvi.models.numpyro.missing_plate import Kind, dependent


class Seen(NamedTuple):
    """One sample, param or mutable site of an abstract run."""

    type: str
    is_observed: bool
    is_discrete: bool
    shape: tuple[int, ...]
    dtype: Any
    unconstrained_shape: tuple[int, ...]
    support: Any
    plates: dict[str, int]  # axes
    kind: Kind | None = None  # of sample sites, with the sizes of this run alone
    start: Any = None  # of param sites, as shapes


def unobserved_finding(sites: Mapping[str, Seen], record_plate: str) -> list[str]:
    """Nothing under the plate is observed: without a response every site there looks like a local latent."""
    inside = [seen for seen in sites.values() if record_plate in seen.plates]
    if any(seen.is_observed for seen in inside):
        return []
    return [
        f"Plate {record_plate!r} must hold an observed site, but nothing under it is given obs=; "
        "pass the response in data too."
    ]


def site_findings(
    small: Mapping[str, Seen],
    large: Mapping[str, Seen],
    sizes: tuple[int, int],
    record_plate: str,
    left_out: Container[str],
) -> list[str]:
    """Why sites cannot be used, from runs on ``sizes`` records; those ``left_out`` are taken care of."""
    findings = []
    for name, seen in small.items():
        other = large.get(name)
        if other is None:
            findings.append(f"Site {name!r} must exist for any number of records, but comes and goes with it.")
        elif seen.type != "sample" and name not in left_out:
            findings.append(
                f"The model must hold sample sites only, but {name!r} is a numpyro.{seen.type} (flax modules make "
                "such sites); give it a prior with numpyro.sample, or a network's weights theirs with "
                "random_flax_module."
            )
        elif not seen.is_observed and name not in left_out:
            findings += _latent_findings(name, seen, other, record_plate, sizes)
    if all(seen.is_observed or name in left_out for name, seen in small.items()):
        findings.append("The model must have at least one latent site outside the record plate, but has none to infer.")
    return findings


def _latent_findings(name: str, seen: Seen, other: Seen, record_plate: str, sizes: tuple[int, int]) -> list[str]:
    if record_plate in seen.plates:
        return [
            f"Latent site {name!r} lies inside the record plate {record_plate!r}, cannot be integrated out in closed "
            "form, and needs a guide with local variables: pass guide=dpvi.AutoAmortised(model), or one of your own."
        ]
    if seen.is_discrete:
        return [
            f"Latent site {name!r} is discrete and shared by all records, so that no gradient moves it: marginalise "
            "it, or put it under the record plate if every record has its own."
        ]
    if seen.shape != other.shape:
        known = (
            None if seen.kind is None else dependent(name, seen.kind._replace(sizes=(seen.shape, other.shape)), sizes)
        )
        return [
            known
            or f"Latent site {name!r} must have the same shape for any number of records, but grows with it: a "
            "parameter per record belongs inside the record plate, where it is integrated out or gets a guide, "
            "guide=dpvi.AutoAmortised(model)."
        ]
    return []
