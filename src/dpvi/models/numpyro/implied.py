"""The plate over the records where a model leaves it out, or has several.

Without a plate NumPyro multiplies the densities of all entries of an observed array, which is what a plate says, too.
So a site with one such axis that follows the number of records gets that plate, be it an axis of ``to_event``, and
several plates over the same records count as one. This says where the axis of the records is. It does not say that
records are independent: the check finds that out afterwards, for this plate as for one that the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import Independent
from numpyro.primitives import Messenger

from dpvi.models.numpyro.execution import plates_of

_NAME, _OTHER_NAME = "records", "dpvi_records"


class RecordPlate(NamedTuple):
    """What a model lacks of its plate over the records.

    Attributes
    ----------
    name
        Of the plate.
    sites
        ``{site without the plate: (negative) batch axis of the records}``.
    same
        Further plates that span the records, which count as this one.
    """

    name: str
    sites: dict[str, int]
    same: tuple[str, ...]

    def __str__(self) -> str:
        parts = []
        if self.sites:
            sites = ", ".join(map(repr, self.sites))
            parts.append(f"no plate spans the records at {sites}, which got numpyro.plate({self.name!r}, ...)")
        if self.same:
            names = ", ".join(map(repr, (self.name, *self.same)))
            parts.append(f"the plates {names} span the same records and count as one")
        return "; ".join(parts)


class Span(NamedTuple):
    """Axes of a site that are no event of a distribution itself, those of ``to_event`` among them, and its plates."""

    shape: tuple[int, ...]
    plates: tuple[str, ...]
    is_observed: bool


class Spans(NamedTuple):
    """Which axes the observed sites and the plates of a run have.

    Attributes
    ----------
    sites
        ``{site: what it spans}``; sites in loops are left out.
    plates
        ``{plate: (size, whether it is met as a whole)}``.
    """

    sites: dict[str, Span]
    plates: dict[str, tuple[int, bool]]


def spans_of(trace: Mapping[str, dict]) -> Spans:
    """What :func:`lacking` compares, from the messages of an abstract run."""
    sites = {}
    for name, message in trace.items():
        if message["type"] != "sample" or "_scan_current_index" in message["infer"]:
            continue
        shape = batch_shape(message)
        if shape is not None:
            observed = message["is_observed"] or f"{name.removesuffix('_unobserved')}_observed" in trace
            sites[name] = Span(shape, tuple(frame.name for frame in message["cond_indep_stack"]), observed)
    plates = {}
    for name, size in plates_of(trace).items():
        whole = name in trace and trace[name]["args"][0] == size
        plates[name] = (size, whole)
    return Spans(sites, plates)


def batch_shape(message: dict) -> tuple[int, ...] | None:
    """The shape of a site's log-density before sums that ``to_event`` asks for; None where nothing fits together."""
    base, _ = without_events(message["fn"])
    shape = jnp.shape(message["value"])
    own = shape[: len(shape) - base.event_dim]
    try:
        return np.broadcast_shapes(own, base.batch_shape)
    except ValueError:
        return None


def without_events(distribution: Any) -> tuple[Any, int]:
    """A distribution without ``to_event``, and how many axes that took."""
    events = 0
    while isinstance(distribution, Independent):
        events += distribution.reinterpreted_batch_ndims
        distribution = distribution.base_dist
    return distribution, events


def lacking(small: Spans, large: Spans, sizes: tuple[int, int]) -> RecordPlate | None:
    """What a model lacks of its plate; None where it lacks nothing, or nothing that could be added.

    Parameters
    ----------
    small, large
        Of runs on two numbers of records.
    sizes
        These numbers.
    """
    over = [name for name, (size, _) in small.plates.items() if (size, large.plates.get(name, (0, True))[0]) == sizes]
    inside = [site.plates for site in small.sites.values()]
    crossed = any(sum(name in over for name in frames) > 1 for frames in inside)
    if len(over) > 1 and (crossed or not all(small.plates[name][1] for name in over)):
        return None
    sites = {}
    for name, site in small.sites.items():
        axes = following(site.shape, large.sites[name].shape if name in large.sites else (), sizes)
        if len(axes) == 1 and not set(site.plates).intersection(over):
            sites[name] = axes[0]
    if not over and not any(small.sites[name].is_observed for name in sites):
        return None
    if not sites and len(over) < 2:
        return None
    taken = small.sites.keys() | small.plates.keys()
    name = over[0] if over else _OTHER_NAME if _NAME in taken else _NAME
    return RecordPlate(name, sites, tuple(over[1:]))


def following(shape: tuple[int, ...], other: tuple[int, ...], sizes: tuple[int, int]) -> list[int]:
    """The (negative) axes that have as many entries as there are records, in both of two runs."""
    if len(shape) != len(other):
        return []
    pairs = list(zip(shape, other, strict=True))
    return [axis - len(pairs) for axis, pair in enumerate(pairs) if pair == sizes]


def crossing_findings(small: Spans, large: Spans, sizes: tuple[int, int]) -> list[str]:
    """Sites in which every record meets every other, because a column of shape (n, 1) meets a vector."""
    findings = []
    for name, site in small.sites.items():
        other = large.sites[name].shape if name in large.sites else ()
        if site.is_observed and len(following(site.shape, other, sizes)) > 1:
            findings.append(
                f"Site {name!r} pairs every record with every other: its values and its distribution have the records "
                "along different axes, as where y of shape (n, 1) meets means of shape (n,); pass y[:, 0], a vector, "
                "or give both the same shape."
            )
    return findings


def with_plate(function: Callable, plate: RecordPlate) -> Callable:
    """``function`` with its record plate where it lacks it."""

    @wraps(function, updated=())
    def plated(*args: Any, **kwargs: Any) -> Any:
        with _Plated(plate):
            return function(*args, **kwargs)

    return plated


class _Plated(Messenger):
    """Puts sites under the record plate, and gives all plates over the records one name."""

    def __init__(self, plate: RecordPlate):
        self._plate = plate
        super().__init__(None)

    def process_message(self, msg: dict) -> None:
        lacks = self._plate
        if msg["type"] == "plate" and msg["name"] in lacks.same:
            msg["name"] = lacks.name
        stack = msg.get("cond_indep_stack") or []
        stack[:] = [frame._replace(name=lacks.name) if frame.name in lacks.same else frame for frame in stack]
        if msg["type"] != "sample" or msg["name"] not in lacks.sites:
            return
        axis = lacks.sites[msg["name"]]
        base, events = without_events(msg["fn"])
        shape = base.batch_shape if msg["value"] is None else batch_shape(msg)
        if shape is None or len(shape) < -axis:
            return
        if -axis <= events:  # the records are among the axes of to_event: those after them stay there
            msg["fn"], events = base.to_event(-axis - 1), -axis - 1
        numpyro.plate(lacks.name, shape[axis], dim=axis + events).process_message(msg)
