"""What a NumPyro model consists of, found by tracing it abstractly on two batch sizes.

Nothing is computed: the model runs under ``jax.make_jaxpr`` on records that have shapes and dtypes but no values. The
record plate is the one whose size follows the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core
from numpyro.distributions import ExpandedDistribution, Independent, MaskedDistribution, biject_to

from dpvi.models.base import ModelError
from dpvi.models.dependence import depends
from dpvi.models.failures import failure_findings
from dpvi.models.numpyro.conjugate import Latent, integrable
from dpvi.models.numpyro.enumeration import Discrete, enumeration_findings, finite_support
from dpvi.models.numpyro.execution import execute, plates_of, scaled_in_a_loop, whole_batch
from dpvi.models.numpyro.implied import RecordPlate, Spans, crossing_findings, lacking, spans_of, with_plate
from dpvi.models.numpyro.missing_plate import Kind, missing_plate
from dpvi.models.numpyro.seen import Seen, site_findings, unobserved_finding
from dpvi.models.sites import Site, layout, support_parameters, with_parameters

BATCH_SIZES = (2, 3)
_NETWORK = "$params"  # how numpyro.contrib.module calls the parameters of a network


class Layout(NamedTuple):
    """The parts of a model that fit needs to know.

    Attributes
    ----------
    sites
        Global latent sites in the order in which the model meets them.
    record_plate
        Name of the plate that spans the records.
    imputed
        ``{name: zero}`` for the unobserved half of sites with ``obs_mask``: their terms integrate to one, so they are
        left out.
    unread
        ``{name: zeros}`` for parameters of networks whose weights have priors: nothing reads where they start.
    enumerated
        Discrete latent sites of a record, which are summed over.
    integrated
        Continuous latent sites of a record, which are integrated out in closed form.
    responses
        ``{index of a leaf: site}`` for leaves passed to a site as they are, ``obs=y``.
    implied
        What the model lacked of its record plate; None where it lacked nothing.
    """

    sites: tuple[Site, ...]
    record_plate: str
    imputed: dict[str, np.ndarray]
    unread: dict[str, Any]
    enumerated: dict[str, Discrete]
    integrated: dict[str, Latent]
    responses: dict[int, str]
    implied: RecordPlate | None


class _Sketch(NamedTuple):
    sites: dict[str, Seen]
    plates: dict[str, tuple[int, bool]]  # size of the batch dimension, whether it draws a subsample of its own
    spans: Spans
    responses: dict[int, str]
    scaled: dict[str, list[str]]  # by plate, scaled sites of one that is met in loops only
    finite: list[str]  # discrete latents with a finite support
    jaxpr: Any  # its outputs are the traced bounds of the supports, in order, and then the finite supports


def discover(function: Callable, structure: Any) -> Layout:
    """Find the latent sites and the record plate, or say in a :class:`ModelError` why the model cannot be used."""
    small, large = (_sketch(function, structure, size) for size in BATCH_SIZES)
    crossed = crossing_findings(small.spans, large.spans, BATCH_SIZES)
    if crossed:
        raise ModelError(crossed)
    implied = lacking(small.spans, large.spans, BATCH_SIZES)
    if implied is not None:
        function = with_plate(function, implied)
        small, large = (_sketch(function, structure, size) for size in BATCH_SIZES)
    record_plate, findings = _record_plate(small, large)
    if record_plate is None:
        raise ModelError(findings)
    findings += scale_findings(small.scaled[record_plate], record_plate)
    imputed = _imputed(small, record_plate)
    unread = _unread(small)
    bounds, finite = _values(small)
    enumerated = _enumerated(small, record_plate, imputed, finite)
    findings += enumeration_findings(enumerated)
    integrated = _integrated(function, structure, small, record_plate, imputed)
    left_out = {*imputed, *unread, *enumerated, *integrated}
    findings += unobserved_finding(small.sites, record_plate) or site_findings(
        small.sites, large.sites, BATCH_SIZES, record_plate, left_out
    )
    if findings:
        raise ModelError(findings)
    latent = {name: seen for name, seen in small.sites.items() if not seen.is_observed and name not in left_out}
    supports = _fixed_supports(latent, small.sites, bounds)
    entries = [(name, seen.shape, seen.unconstrained_shape, supports[name]) for name, seen in latent.items()]
    zeros = {name: np.zeros((), small.sites[name].dtype) for name in imputed}
    return Layout(layout(entries), record_plate, zeros, unread, enumerated, integrated, small.responses, implied)


def batched(structure: Any, num_records: int) -> Any:
    """The structure of a batch: a leading axis before every leaf."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((num_records, *leaf.shape), leaf.dtype), structure)


def _sketch(function: Callable, structure: Any, num_records: int) -> _Sketch:
    kept: dict[str, Any] = {}
    met: list[str] = []

    def run(key: jax.Array, noise: jax.Array, batch: Any) -> list[Any]:
        def fill(message: dict) -> Any:
            if message["type"] == "plate":
                met.append(message["name"])
                return whole_batch(message, num_records)
            return any_value(message, noise)

        trace = execute(function, batch, fill, key=key)
        kept["sites"] = {name: _seen(message) for name, message in trace.items() if _is_site(message)}
        kept["plates"] = _plates(trace)
        kept["spans"] = spans_of(trace)
        kept["scaled"] = {plate: scaled_in_a_loop(trace, plate) for plate in kept["plates"]}
        kept["responses"] = _responses(trace, jax.tree.leaves(batch))
        kept["finite"], values = [], []
        for name, seen in kept["sites"].items():
            support = finite_support(trace[name]["fn"]) if seen.is_discrete else None
            if support is not None:
                kept["finite"].append(name)
                values.append(jnp.asarray(support).astype(seen.dtype))
        return [value for seen in kept["sites"].values() for value in _traced(seen.support)] + values

    key, noise = jax.eval_shape(lambda: (jax.random.key(0), jnp.zeros(())))
    try:
        jaxpr = jax.make_jaxpr(run)(key, noise, batched(structure, num_records))
    except Exception as error:
        raise ModelError(failure_findings(error, met, structure)) from error
    return _Sketch(**kept, jaxpr=jaxpr)


def any_value(message: dict, noise: jax.Array) -> Any:
    """Some value of a continuous latent site that depends on ``noise``; sampling would fail for improper priors."""
    if message["type"] != "sample" or message["is_observed"]:
        return None
    support = message["fn"].support
    if support is None or support.is_discrete:
        return None
    bijection = _bijection(message["name"], support)
    return bijection(jnp.broadcast_to(noise, bijection.inverse_shape(message["fn"].shape())))


def _bijection(name: str, support: Any) -> Any:
    try:
        return biject_to(support)
    except NotImplementedError:
        raise ModelError(
            f"Latent site {name!r} must have a support with a bijection from the real numbers, "
            f"got {type(support).__name__.lstrip('_')}; choose another distribution or parameterisation."
        ) from None


def _is_site(message: dict) -> bool:
    return message["type"] in ("sample", "param", "mutable")


def _seen(message: dict) -> Seen:
    if message["type"] != "sample":
        start = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), message["value"]
        )
        return Seen(message["type"], True, False, (), None, (), None, {}, start=start)
    plates = {frame.name: frame.dim for frame in message["cond_indep_stack"]}
    shape, dtype = jnp.shape(message["value"]), jnp.result_type(message["value"])
    in_loop, event_dim = "_scan_current_index" in message["infer"], message["fn"].event_dim
    kind = Kind(_class_name(message["fn"]), message["is_observed"], in_loop, (shape, shape), event_dim)
    if message["is_observed"]:
        return Seen("sample", True, False, shape, dtype, (), None, plates, kind)
    support = message["fn"].support
    if support is None or support.is_discrete:
        return Seen("sample", False, True, shape, dtype, shape, None, plates, kind)
    unconstrained_shape = _bijection(message["name"], support).inverse_shape(shape)
    return Seen("sample", False, False, shape, dtype, unconstrained_shape, support, plates, kind)


def _class_name(distribution: Any) -> str:
    while isinstance(distribution, (Independent, ExpandedDistribution, MaskedDistribution)):
        distribution = distribution.base_dist
    return type(distribution).__name__


def _traced(support: Any) -> list[Any]:
    return [value for value in support_parameters(support) or () if isinstance(value, Tracer)]


def _values(sketch: _Sketch) -> tuple[list[tuple[bool, Any]], dict[str, Any]]:
    """(whether it moves with a latent or a record, value) of traced bounds, and finite supports that do not move."""
    jaxpr = sketch.jaxpr
    moving = depends(jaxpr, [True] * len(jaxpr.in_avals))
    values = list(moving)
    if not all(moving):
        # Constant values ignore the inputs, so any will do.
        inputs = [jnp.zeros(aval.shape, aval.dtype) for aval in jaxpr.in_avals[1:]]
        values = [np.asarray(value) for value in jax.jit(core.jaxpr_as_fun(jaxpr))(jax.random.key(0), *inputs)]
    found = list(zip(moving, values, strict=True))
    num_bounds = len(found) - len(sketch.finite)
    finite = {name: value for name, (moves, value) in zip(sketch.finite, found[num_bounds:], strict=True) if not moves}
    return found[:num_bounds], finite


def _enumerated(
    sketch: _Sketch, record_plate: str, imputed: list[str], finite: Mapping[str, Any]
) -> dict[str, Discrete]:
    latents = {}
    for name, seen in sketch.sites.items():
        if not seen.is_discrete or record_plate not in seen.plates or name in imputed or seen.kind is None:
            continue
        shape = list(seen.shape)
        shape[seen.plates[record_plate] - seen.kind.event_dim] = 1
        latents[name] = Discrete(finite.get(name), tuple(shape), seen.kind.event_dim, seen.kind.in_loop)
    return latents


def _integrated(
    function: Callable, structure: Any, sketch: _Sketch, record_plate: str, imputed: list[str]
) -> dict[str, Latent]:
    """The continuous latents of a record, where all of them can be integrated out."""
    given = {
        name: jax.ShapeDtypeStruct(seen.shape, seen.dtype)
        for name, seen in sketch.sites.items()
        if record_plate in seen.plates and seen.type == "sample" and name not in imputed
        if not seen.is_observed and not seen.is_discrete
    }
    if not given:
        return {}

    def run(values: Mapping[str, Any], key: jax.Array, noise: jax.Array, batch: Any) -> dict[str, dict]:
        def fill(message: dict) -> Any:
            if message["type"] == "plate":
                return whole_batch(message, BATCH_SIZES[0])
            return values[message["name"]] if message["name"] in values else any_value(message, noise)

        return execute(function, batch, fill, key=key)

    key, noise = jax.eval_shape(lambda: (jax.random.key(0), jnp.zeros(())))
    return integrable(run, given, (key, noise, batched(structure, BATCH_SIZES[0])), record_plate, imputed)


def _fixed_supports(latent: Iterable[str], sites: dict[str, Seen], found: list[tuple[bool, Any]]) -> dict[str, Any]:
    """Supports with traced bounds replaced by their values, and None where a bound moves with a latent or a record."""
    bounds = iter(found)
    supports = {}
    for name, seen in sites.items():
        parameters, known, moves = support_parameters(seen.support), [], False
        for parameter in parameters or ():
            traced = isinstance(parameter, Tracer)
            flag, value = next(bounds) if traced else (False, parameter)
            moves, known = moves or flag, [*known, value]
        supports[name] = None if parameters is None or moves else with_parameters(seen.support, known)
    return {name: supports[name] for name in latent}


def record_plate_of(small: Mapping[str, dict], large: Mapping[str, dict]) -> str:
    """The plate that spans the records, from runs on the two batch sizes; a :class:`ModelError` where there is none."""
    sizes = [plates_of(trace) for trace in (small, large)]
    spanning = [name for name, size in sizes[0].items() if (size, sizes[1].get(name)) == BATCH_SIZES]
    if len(spanning) != 1:
        raise ModelError("One plate must span the records, numpyro.plate(...), with every site of a record under it.")
    return spanning[0]


def _plates(trace: dict[str, dict]) -> dict[str, tuple[int, bool]]:
    plates = {name: (size, False) for name, size in plates_of(trace).items()}
    for name, message in trace.items():
        if message["type"] == "plate":
            size, subsample_size = message["args"]
            draws = message["kwargs"]["rng_key"] is not None
            plates[name] = (message["value"].shape[0], draws and subsample_size not in (None, size))
    return plates


def _responses(trace: dict[str, dict], leaves: list[Any]) -> dict[int, str]:
    return {
        index: name
        for name, message in trace.items()
        if message["type"] == "sample" and message["is_observed"]
        for index, leaf in enumerate(leaves)
        if message["value"] is leaf
    }


def _record_plate(small: _Sketch, large: _Sketch) -> tuple[str | None, list[str]]:
    findings, spanning = [], []
    for name, (size, draws) in small.plates.items():
        other, draws_too = large.plates.get(name, (size, draws))
        if (size, other) == BATCH_SIZES:
            spanning.append(name)
        elif size != other:
            findings.append(
                f"Plate {name!r} must either have a fixed size or one entry per record, but its size changes with the "
                "number of records without being equal to it; give it the number of rows of an argument."
            )
        elif draws or draws_too:  # a subsample of two or three is taken for all records of one batch
            findings.append(
                f"Plate {name!r} draws a subsample inside the model, which the accountant knows nothing of; "
                "remove subsample_size, fit draws the batches."
            )
    if len(spanning) > 1:
        findings.append(
            f"One plate must span the records, but {_names(spanning)} all do; "
            "put every site of a record under one plate."
        )
        return None, findings
    if not spanning:
        return None, [*findings, _missing(small, large)]
    return spanning[0], findings


def _missing(small: _Sketch, large: _Sketch) -> str:
    kinds = {}
    for name, seen in small.sites.items():
        other = large.sites.get(name)
        if seen.kind is not None and other is not None:
            kinds[name] = seen.kind._replace(sizes=(seen.shape, other.shape))
    if len(large.sites) > len(small.sites):
        return (
            "The model must have a plate that spans the records, but makes sites for every single record, as a Python "
            "loop over a time series does; give it one site per record's value under numpyro.plate('records', "
            "x.shape[0]), and let a whole series be one record."
        )
    holding = sorted({plate for seen in small.sites.values() if seen.is_observed for plate in seen.plates})
    return missing_plate(kinds, _names(holding), BATCH_SIZES)


def scale_findings(names: list[str], record_plate: str) -> list[str]:
    """``names`` as from :func:`~dpvi.models.numpyro.execution.scaled_in_a_loop`."""
    return [
        f"Site {name!r} is scaled in the body of a loop, by subsample_size= of the plate {record_plate!r} or by "
        "handlers.scale; leave both out, fit draws the batches."
        for name in names
    ]


def _imputed(sketch: _Sketch, record_plate: str) -> list[str]:
    # numpyro.sample(..., obs_mask=) splits a site in these two names.
    return [
        name
        for name, seen in sketch.sites.items()
        if name.endswith("_unobserved")
        and not seen.is_observed
        and record_plate in seen.plates
        and name.removesuffix("_unobserved") + "_observed" in sketch.sites
    ]


def _unread(sketch: _Sketch) -> dict[str, Any]:
    # random_flax_module and its kin start a network, and then draw all or some of its weights under the same name.
    return {
        name: jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), seen.start)
        for name, seen in sketch.sites.items()
        if seen.type == "param"
        and name.endswith(_NETWORK)
        and any(site.startswith(name.removesuffix(_NETWORK) + "/") for site in sketch.sites)
    }


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
