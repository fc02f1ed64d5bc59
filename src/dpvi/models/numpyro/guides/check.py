"""The check that ``fit`` runs on a guide and its model: is their ELBO a part without records plus one term per record?

It works on shapes and simulated records and never reads a value of the data. Privacy does not rest on it, because a
term is only ever computed from one record and the rest from none; what it protects is the meaning of the answer.

===========================================  ==========================================================
finding                                      found by
===========================================  ==========================================================
global draw or density that reads records    data flow in the jaxpr
start or constraint that reads records       data flow in the jaxpr
support that moves with a parameter          data flow in the jaxpr
parameter that grows with the records        starts on two batch sizes
global term with the number of records       values on two batch sizes
term that depends on a record's place        terms of a record that is in the batch twice
coupling between records                     terms with the other records exchanged, and of a record alone
non-finite term or gradient                  simulated records of several kinds; one finite kind is enough
global draws outside the model's support     densities at several draws
parameter without a gradient                 gradients on all kinds, away from the start
===========================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro.distributions import constraints
from numpyro.primitives import Messenger

from dpvi.models.base import ModelError
from dpvi.models.dependence import depends
from dpvi.models.numpyro import execution
from dpvi.models.numpyro.discovery import batched
from dpvi.models.numpyro.guides.execution import drawn, run_guide, run_model
from dpvi.models.numpyro.guides.model import GuidedModel
from dpvi.models.numpyro.guides.parameters import merged
from dpvi.models.simulate import Simulated, compiled_for_few_calls, differs, simulate
from dpvi.models.sites import support_parameters
from dpvi.records.arrays import structure_of

_BATCH = 3
_SAME_PROGRAM = 1e-5  # one program, other neighbours: equal up to the roundings of a network
_DRAWS = 32  # of the global latents; half of a normal's are negative
_OF_GUIDE = "guide of "  # as the terms of GuidedModel.outside are named
_OTHER_PROGRAM = 1e-3  # a record alone against a batch of three: sums may be ordered differently


def check_guide(function: Any, guide: Any, data: Any) -> GuidedModel:
    """Refuse a guide and model whose ELBO has no per-record terms, and return the pair ready to fit.

    Parameters
    ----------
    function, guide
        NumPyro model and guide.
    data
        The records, or anything with the same shapes and dtypes: values are never read.

    Raises
    ------
    ModelError
        With one sentence per finding.
    """
    function = getattr(function, "function", function)
    for name, value in (("model", function), ("guide", guide)):
        if not callable(value) or isinstance(value, type):
            raise TypeError(f"A fit with a guide needs a NumPyro {name}, a function, got {type(value).__name__}.")
    try:
        ready = GuidedModel(function, guide, structure_of(data))
        if ready.num_parameters == 0:
            raise ModelError("Guide and model must have at least one numpyro.param to learn, but have none.")
        findings = _start_findings(ready) + _flow_findings(ready)
        if not findings:
            findings = _value_findings(ready)
    except jax.errors.UnexpectedTracerError as error:
        raise ModelError(
            "Guide or model keeps an array that an earlier call computed, in a cache or a global; compute it before, "
            "or anew in every call."
        ) from error
    if findings:
        raise ModelError(findings)
    return ready


def _start_findings(model: GuidedModel) -> list[str]:
    """Starts and constraints that read records, by data flow, and parameters that grow with them."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    shapes = []
    for size in (_BATCH, _BATCH + 1):
        batch = batched(model.structure, size)
        flow = jax.make_jaxpr(lambda key, batch, n=size: _starts(model, key, batch, n), return_shape=True)
        jaxpr, starts = flow(key, batch)
        shapes.append(starts)
    flags = depends(jaxpr, [False] + [True] * len(jax.tree.leaves(batch)))  # pyright: ignore[reportPossiblyUnboundVariable]
    reading = jax.tree.unflatten(jax.tree.structure(shapes[-1]), flags)
    findings = []
    for name in shapes[0]:
        small, large = (jax.tree.map(lambda leaf: leaf.shape, each[name]) for each in shapes)
        if small != large:
            findings.append(
                f"Parameter {name!r} grows with the number of records: one parameter per record would be that record's "
                "own and cannot be released; compute it from the record by a network (amortised)."
            )
        elif any(jax.tree.leaves(reading[name])):
            findings.append(
                f"The start or constraint of parameter {name!r} reads records, and would be released without noise; "
                "start it from public knowledge."
            )
    return findings


def _starts(model: GuidedModel, key: jax.Array, batch: Any, num_records: int) -> dict[str, Any]:
    """Starting values of every parameter with the traced bounds of its constraint."""

    def fill(values: Mapping[str, Any]) -> Callable:
        def of(message: dict) -> Any:
            if message["type"] == "plate":
                return execution.whole_batch(message, num_records)
            latent = message["type"] == "sample" and not message["is_observed"]
            return values.get(message["name"]) if latent else None

        return of

    guide_trace = execution.execute(model.guide, batch, fill({}), key=key)
    model_trace = execution.execute(model.function, batch, fill(drawn(guide_trace)), key=key)
    met = merged([{n: m for n, m in trace.items() if m["type"] == "param"} for trace in (guide_trace, model_trace)])
    return {name: (message["value"], _traced_bounds(message)) for name, message in met.items()}


def _traced_bounds(message: dict) -> list[Any]:
    bounds = support_parameters(message["kwargs"].get("constraint", constraints.real)) or ()
    return [bound for bound in bounds if isinstance(bound, Tracer)]


def _flow_findings(model: GuidedModel) -> list[str]:
    """Global sites whose draw or density reads records, and supports that read parameters."""

    def outside(xi: jax.Array, eta: jax.Array, key: jax.Array, batch: Any) -> tuple[dict, dict]:
        guide_trace, model_trace = model.run(xi, eta, key, batch)
        inside = set(model.layout.local_sites) | _under(guide_trace, model.layout.guide_plate)
        values = {name: value for name, value in drawn(guide_trace).items() if name not in inside}
        return values, model.outside(guide_trace, model_trace)

    xi, eta = (_vector(size) for size in (model.num_parameters, model.num_base))
    batch, key = batched(model.structure, _BATCH), jax.eval_shape(lambda: jax.random.key(0))
    jaxpr, (values, terms) = jax.make_jaxpr(outside, return_shape=True)(xi, eta, key, batch)
    # a record's key is a hash of the record
    flags = depends(jaxpr, [False, False, True] + [True] * len(jax.tree.leaves(batch)))
    drawing = {name for name, flag in zip(sorted(values), flags[: len(values)], strict=True) if flag}
    reading = {name for name, flag in zip(sorted(terms), flags[len(values) :], strict=True) if flag}
    findings = [
        f"The guide's draw of {name!r} reads records, but all records share it: its distribution must be a function of "
        "parameters alone, because only terms of single records are clipped and noised."
        for name in sorted(drawing)
    ]
    for name in sorted(reading):
        site = name.removeprefix(_OF_GUIDE)
        if site in drawing:
            continue
        what = f"The guide's distribution of {site!r}" if name != site else f"The prior or outer site {site!r}"
        findings.append(
            f"{what} reads records but lies outside the record plate: take it from parameters or public knowledge, "
            f"or move it under the plate {model.record_plate!r}."
        )
    moving = jax.make_jaxpr(model.moving_supports())(xi, _vector(model.dimension))
    supports = zip(sorted(site.name for site in model.sites), depends(moving, [True, False]), strict=True)
    return findings + [
        f"The support of {name!r} moves with a parameter; give it fixed bounds." for name, flag in supports if flag
    ]


def _under(trace: Mapping[str, dict], plate: str | None) -> set[str]:
    if plate is None:
        return set()
    return {name for name, message in trace.items() if execution.membership(message, plate) is not None}


def _vector(size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size,), jnp.result_type(float))


def _value_findings(model: GuidedModel) -> list[str]:
    """What only numbers show, on each kind of simulated records."""
    random, dtype = np.random.default_rng(1), jnp.result_type(float)
    # away from the start: a network with a layer of zeros has gradients that vanish there only
    xi = model.initial(jax.random.key(1)) + jnp.asarray(0.05 * random.standard_normal(model.num_parameters), dtype)
    eta = jnp.asarray(random.standard_normal(model.num_base), dtype)
    # two programs, with the point as an argument: in one, or with a network's parameters as constants, both compiling
    # and running take many times as long
    terms, gradients = (
        partial(compiled_for_few_calls(partial(function, model), model.num_parameters), xi, eta)
        for function in (_terms, _gradients)
    )
    kinds = simulate(model.structure, _BATCH)
    try:
        results = [terms(simulated.first) | _judged(*gradients(simulated.first)) for simulated in kinds]
    except jax.errors.UnexpectedTracerError:
        raise
    except Exception as error:
        raise ModelError(
            f"Guide and model must run on a batch of one record, but fail with {type(error).__name__}; "
            "keep the record axis in every array, for example no jnp.squeeze without an axis."
        ) from error
    return _finite_findings(results) or (
        _draw_findings(model, xi, random.standard_normal((_DRAWS, model.num_base)))
        + _size_findings(results[0])
        + _coupling_findings(model, terms, kinds, results)
        + _gradient_findings(model, results)
    )


def _terms(model: GuidedModel, xi: jax.Array, eta: jax.Array, batch: Any) -> dict[str, Any]:
    """The terms of all records of a batch, of each of them alone with the values its latents have there, and of one
    that is there twice.

    ``outside`` and ``outside_alone`` are what all records share, on the batch and beside a record alone.
    """
    key = jax.random.key(2)
    guide_trace, model_trace = model.run(xi, eta, key, batch)
    terms = _per_record(model.inside(guide_trace, model_trace))
    local = _under(guide_trace, model.layout.guide_plate) & drawn(guide_trace).keys()
    axes = {name: execution.membership(guide_trace[name], model.layout.guide_plate or "").dim for name in local}
    event = {name: jnp.ndim(guide_trace[name]["value"]) - len(guide_trace[name]["fn"].batch_shape) for name in local}

    def taken(rows: jax.Array) -> tuple[dict[str, dict], dict[str, dict]]:
        """Guide and model on some of the records, with the values their latents have in the whole batch."""
        some = jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0), batch)
        values = {name: jnp.take(guide_trace[name]["value"], rows, axis=axes[name] - event[name]) for name in local}
        return model.run(xi, eta, key, some, values)

    def alone(row: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        traces = taken(row[None])
        return _per_record(model.inside(*traces))[0], model.outside(*traces)

    singles, outside = jax.vmap(alone)(jnp.arange(_BATCH))
    together = model.outside(guide_trace, model_trace)
    twice = _per_record(model.inside(*taken(jnp.zeros((2,), int))))
    return {"terms": terms, "alone": singles, "twice": twice, "outside": together, "outside_alone": outside}


def _gradients(model: GuidedModel, xi: jax.Array, eta: jax.Array, batch: Any) -> tuple[jax.Array, ...]:
    """Of every record its term and that term's gradient, and the same of what no record enters."""

    def total(xi: jax.Array, record: Any) -> jax.Array:
        return model.term(xi, eta, model.own_key(eta, record), record)

    own = jax.vmap(jax.value_and_grad(total), (None, 0))(xi, batch)
    return *own, *jax.value_and_grad(model.record_free)(xi, eta)


def _judged(terms: Any, gradients: Any, free: Any, free_gradient: Any) -> dict[str, np.ndarray]:
    """Whether terms and their gradients are finite, and which parameters they move."""
    finite = np.isfinite(gradients)
    return {
        "finite": np.isfinite(terms) & np.all(finite, axis=1),
        "free_finite": np.isfinite(free) & np.all(np.isfinite(free_gradient)),
        "moved": np.any((np.asarray(gradients) != 0) & finite, axis=0) | (np.asarray(free_gradient) != 0),
    }


def _per_record(inside: list[tuple[int, jax.Array, int]]) -> jax.Array:
    with jax.numpy_dtype_promotion("standard"):
        rows = [sign * jnp.moveaxis(log_prob, axis, 0) for sign, log_prob, axis in inside]
        return sum(jnp.sum(jnp.reshape(row, (row.shape[0], -1)), axis=1) for row in rows)  # pyright: ignore


def _finite_findings(results: list[dict[str, Any]]) -> list[str]:
    findings = []
    if not results[0]["free_finite"]:
        findings.append(
            "log p − log q of the global sites, or its gradient, is not finite near the start: check the starting "
            "values of the guide's parameters and the prior."
        )
    if not any(np.any(result["finite"]) for result in results):
        findings.append(
            "The term of a record, or its gradient, is not finite for any kind of simulated record (normal, uniform, "
            "positive, proportions, zeros, ones, whole numbers 0 and 1): check the supports and scales of the sites "
            "under the record plate."
        )
    return findings


def _draw_findings(model: GuidedModel, xi: jax.Array, seeds: np.ndarray) -> list[str]:
    """Whether some draws of what all records share have no density: one such step would end a run in NaN."""
    if not model.sites:
        return []
    terms = jax.jit(jax.vmap(model.record_free, (None, 0)))(xi, jnp.asarray(seeds, xi.dtype))
    if np.all(np.isfinite(terms)):
        return []
    return [
        f"log p − log q of the global sites is not finite at some of the guide's draws near the start: {_DRAWS} were "
        "tried. The guide must draw inside the model's support, for example from a LogNormal where the prior is "
        "positive, or from a normal that a bijection maps into it, as autoguides do."
    ]


def _size_findings(result: dict[str, Any]) -> list[str]:
    """Shared terms that are others beside one record: every record is scored alone, so they would be its own."""
    return [
        f"log {'q' if name.startswith(_OF_GUIDE) else 'p'} of {name.removeprefix(_OF_GUIDE)!r} depends on the number "
        "of records, which is private, and one where a record is scored; take a public constant."
        for name, together in sorted(result["outside"].items())
        if differs(result["outside_alone"][name], together, _OTHER_PROGRAM)
    ]


def _coupling_findings(
    model: GuidedModel, terms: Callable, kinds: list[Simulated], results: list[dict[str, Any]]
) -> list[str]:
    # what a batch of three draws from numpyro.prng_key() is not what three batches of one draw
    comparable = not _uses_keys(model)
    if comparable and any(differs(result["twice"][:1], result["twice"][1:], _SAME_PROGRAM) for result in results):
        return [
            "The term of a record changes with its place in the batch, as where the index of the record plate picks a "
            "parameter per record: nobody's place is known to a private step, and one parameter per record would be "
            "that record's own; compute it from the record by a network (amortised)."
        ]
    if comparable and any(differs(result["alone"], result["terms"], _OTHER_PROGRAM) for result in results):
        return [
            "The term of a record changes when it is alone in the batch: each term must come from its own record and "
            "the parameters only; remove means, ranks, batch normalisation and sizes taken over the batch."
        ]
    for simulated, result in zip(kinds, results, strict=True):
        for row in range(_BATCH if simulated.varied else 0):
            if differs(terms(simulated.among_others(row))["terms"][row], result["terms"][row], _SAME_PROGRAM):
                return [
                    "Records are coupled: the term of a record changes with the values of other records in the batch; "
                    "centre, scale or normalise with public constants instead."
                ]
    return []


class _NoticeKeys(Messenger):
    """Notes whether a function calls ``numpyro.prng_key``."""

    def __init__(self, function: Callable, noticed: list[bool]):
        self._noticed = noticed
        super().__init__(function)

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "prng_key":
            self._noticed.append(True)


def _uses_keys(model: GuidedModel) -> bool:
    noticed: list[bool] = []

    def run(xi: jax.Array, key: jax.Array) -> None:
        parameters, batch = model.parameters.constrain(xi), model.placeholder()
        guide = _NoticeKeys(model.guide, noticed)
        trace = run_guide(guide, batch, parameters, (key, key), model.layout.guide_plate)
        run_model(_NoticeKeys(model.function, noticed), batch, parameters, (key, key), model.record_plate, trace)

    jax.eval_shape(run, _vector(model.num_parameters), jax.eval_shape(lambda: jax.random.key(0)))
    return bool(noticed)


def _gradient_findings(model: GuidedModel, results: list[dict[str, Any]]) -> list[str]:
    moved = np.any([result["moved"] for result in results], axis=0)
    idle = [site.name for site in model.parameters.sites if not np.any(moved[site.offset : site.offset + site.size])]
    return [
        f"Parameter {name!r} never gets a gradient, and would move by noise alone; {_remedy(name)}." for name in idle
    ]


def _remedy(name: str) -> str:
    if name.endswith("$params"):  # numpyro.contrib.module's, also where random_flax_module then draws the weights
        return (
            "use the network in a distribution, or, where its weights are drawn from a prior, hide what they start "
            f"from: numpyro.handlers.block(model, hide=[{name!r}]), and a guide of that model"
        )
    return "use it in a distribution, or make it a constant"
