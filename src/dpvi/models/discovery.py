"""What a NumPyro model consists of, found by tracing it abstractly on two batch sizes.

Nothing is computed: the model runs under ``jax.make_jaxpr`` on records that have shapes and dtypes but no values. The
record plate is the one whose size follows the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core
from numpyro.distributions import biject_to

from dpvi.models.base import ModelError
from dpvi.models.dependence import depends
from dpvi.models.execution import execute, plates_of, scaled_in_a_loop, whole_batch
from dpvi.models.sites import Site, layout, support_parameters, with_parameters

BATCH_SIZES = (2, 3)


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
    responses
        ``{index of a leaf: site}`` for leaves passed to a site as they are, ``obs=y``.
    """

    sites: tuple[Site, ...]
    record_plate: str
    imputed: dict[str, np.ndarray]
    responses: dict[int, str]


class _Seen(NamedTuple):
    """One sample, param or mutable site of an abstract run."""

    type: str
    is_observed: bool
    is_discrete: bool
    shape: tuple[int, ...]
    dtype: Any
    unconstrained_shape: tuple[int, ...]
    support: Any
    plates: dict[str, int]


class _Sketch(NamedTuple):
    sites: dict[str, _Seen]
    plates: dict[str, tuple[int, bool]]  # size of the batch dimension, whether it draws a subsample of its own
    responses: dict[int, str]
    scaled: dict[str, list[str]]  # by plate, scaled sites of one that is met in loops only
    jaxpr: Any  # its outputs are the traced bounds of the supports, in order


def discover(function: Callable, structure: Any) -> Layout:
    """Find the latent sites and the record plate, or say in a :class:`ModelError` why the model cannot be used."""
    small, large = (_sketch(function, structure, size) for size in BATCH_SIZES)
    record_plate, findings = _record_plate(small, large)
    if record_plate is None:
        raise ModelError(findings)
    findings += scale_findings(small.scaled[record_plate], record_plate)
    imputed = _imputed(small, record_plate)
    # Without a response every site under the plate looks like a local latent, which is not what is wrong.
    findings += _unobserved_finding(small, record_plate) or _site_findings(small, large, record_plate, imputed)
    if findings:
        raise ModelError(findings)
    latent = {name: seen for name, seen in small.sites.items() if not seen.is_observed and name not in imputed}
    supports = _fixed_supports(latent, small.sites, small.jaxpr)
    entries = [(name, seen.shape, seen.unconstrained_shape, supports[name]) for name, seen in latent.items()]
    zeros = {name: np.zeros((), small.sites[name].dtype) for name in imputed}
    return Layout(layout(entries), record_plate, zeros, small.responses)


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
            return _any_value(message, noise)

        trace = execute(function, batch, fill, key=key)
        kept["sites"] = {name: _seen(message) for name, message in trace.items() if _is_site(message)}
        kept["plates"] = _plates(trace)
        kept["scaled"] = {plate: scaled_in_a_loop(trace, plate) for plate in kept["plates"]}
        kept["responses"] = _responses(trace, jax.tree.leaves(batch))
        return [value for seen in kept["sites"].values() for value in _traced(seen.support)]

    key, noise = jax.eval_shape(lambda: (jax.random.key(0), jnp.zeros(())))
    try:
        jaxpr = jax.make_jaxpr(run)(key, noise, batched(structure, num_records))
    except Exception as error:
        raise ModelError(_failure(error, met)) from error
    return _Sketch(**kept, jaxpr=jaxpr)


def _any_value(message: dict, noise: jax.Array) -> Any:
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


def _seen(message: dict) -> _Seen:
    if message["type"] != "sample":
        return _Seen(message["type"], True, False, (), None, (), None, {})
    plates = {frame.name: frame.size for frame in message["cond_indep_stack"]}
    shape, dtype = jnp.shape(message["value"]), jnp.result_type(message["value"])
    if message["is_observed"]:
        return _Seen("sample", True, False, shape, dtype, (), None, plates)
    support = message["fn"].support
    if support is None or support.is_discrete:
        return _Seen("sample", False, True, shape, dtype, shape, None, plates)
    unconstrained_shape = _bijection(message["name"], support).inverse_shape(shape)
    return _Seen("sample", False, False, shape, dtype, unconstrained_shape, support, plates)


def _traced(support: Any) -> list[Any]:
    return [value for value in support_parameters(support) or () if isinstance(value, Tracer)]


def _fixed_supports(latent: Iterable[str], sites: dict[str, _Seen], jaxpr: Any) -> dict[str, Any]:
    """Supports with traced bounds replaced by their values, and None where a bound moves with a latent or a record."""
    moving = depends(jaxpr, [True] * len(jaxpr.in_avals))
    values = list(moving)
    if not all(moving):
        # Constant bounds ignore the inputs, so any will do.
        inputs = [jnp.zeros(aval.shape, aval.dtype) for aval in jaxpr.in_avals[1:]]
        values = [np.asarray(value) for value in jax.jit(core.jaxpr_as_fun(jaxpr))(jax.random.key(0), *inputs)]
    bounds = iter(zip(moving, values, strict=True))
    supports = {}
    for name, seen in sites.items():
        parameters, known, moves = support_parameters(seen.support), [], False
        for parameter in parameters or ():
            traced = isinstance(parameter, Tracer)
            flag, value = next(bounds) if traced else (False, parameter)
            moves, known = moves or flag, [*known, value]
        supports[name] = None if parameters is None or moves else with_parameters(seen.support, known)
    return {name: supports[name] for name in latent}


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


def _failure(error: Exception, plates: list[str]) -> list[str]:
    if isinstance(error, ModelError):
        return list(error.findings)
    if isinstance(error, (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)):
        return [
            f"The model must be a JAX function of the records, but fails with {type(error).__name__}: "
            "sizes and branches must not depend on values of records; pass sizes as settings with functools.partial."
        ]
    # The text of the error may hold sizes, so it stays in the traceback; the sentence names the likely cause.
    if plates:
        hint = (
            f"check that the size of {_names(plates)} is taken from an argument, as in x.shape[0], "
            "and that further axes of a record are declared with to_event or a plate of their own"
        )
    else:
        hint = "check its arguments: a tuple of data is passed by position, a dict by name"
    return [
        f"The model must run on any number of records, but fails with {type(error).__name__} on two or three; {hint}."
    ]


def _record_plate(small: _Sketch, large: _Sketch) -> tuple[str | None, list[str]]:
    findings, following = [], []
    for name, (size, draws) in small.plates.items():
        other, draws_too = large.plates.get(name, (size, draws))
        if (size, other) == BATCH_SIZES:
            following.append(name)
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
    if len(following) > 1:
        findings.append(
            f"One plate must span the records, but {_names(following)} all do; "
            "put every site of a record under one plate."
        )
        return None, findings
    if not following:
        return None, [*findings, _missing(small)]
    return following[0], findings


def _missing(sketch: _Sketch) -> str:
    holding = sorted({plate for seen in sketch.sites.values() if seen.is_observed for plate in seen.plates})
    if holding:
        return (
            f"The model must have a plate that spans the records, but the size of {_names(holding)} does not follow "
            "the data; take it from an argument, as in numpyro.plate('records', x.shape[0])."
        )
    return (
        "The model must have a plate that spans the records, but none follows the data; put the observed sites under "
        "`with numpyro.plate('records', x.shape[0]):` so that each record has a term of its own."
    )


def scale_findings(names: list[str], record_plate: str) -> list[str]:
    """``names`` as from :func:`~dpvi.models.execution.scaled_in_a_loop`."""
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


def _unobserved_finding(sketch: _Sketch, record_plate: str) -> list[str]:
    inside = [seen for seen in sketch.sites.values() if record_plate in seen.plates]
    if any(seen.is_observed for seen in inside):
        return []
    return [
        f"Plate {record_plate!r} must hold an observed site, but nothing under it is given obs=; "
        "pass the response in data too."
    ]


def _site_findings(small: _Sketch, large: _Sketch, record_plate: str, imputed: list[str]) -> list[str]:
    findings = []
    for name, seen in small.sites.items():
        other = large.sites.get(name)
        if other is None:
            findings.append(f"Site {name!r} must exist for any number of records, but comes and goes with it.")
        elif seen.type != "sample":
            findings.append(
                f"The model must hold sample sites only, but {name!r} is a numpyro.{seen.type} (flax modules make "
                "such sites); give it a prior with numpyro.sample."
            )
        elif not seen.is_observed and name not in imputed:
            findings += _latent_findings(name, seen, other, record_plate)
    if all(seen.is_observed or name in imputed for name, seen in small.sites.items()):
        findings.append("The model must have at least one latent site outside the record plate, but has none to infer.")
    return findings


def _latent_findings(name: str, seen: _Seen, other: _Seen, record_plate: str) -> list[str]:
    if record_plate in seen.plates:
        return [
            f"Latent site {name!r} lies inside the record plate {record_plate!r} and needs a guide with local "
            "variables: pass one with guide=, marginalise it (for a mixture, numpyro's MixtureSameFamily), or observe "
            "it."
        ]
    if seen.is_discrete:
        return [
            f"Latent site {name!r} is discrete and enumeration is not supported: marginalise it, "
            "for example with numpyro's MixtureSameFamily."
        ]
    if seen.shape != other.shape:
        return [
            f"Latent site {name!r} must have the same shape for any number of records, but grows with it: a parameter "
            "per record belongs inside the record plate and needs a guide with local variables, guide=."
        ]
    return []


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
