"""The model check that ``fit`` always runs: is this model one prior plus one independent term per record?

It works on shapes and simulated records and never reads a value of the data. Privacy does not rest on it, because a
term is only ever computed from one record and the prior from none; what it protects is the meaning of the answer, since
a model that couples records would silently be fitted as another model.

===========================================  ==========================================================
finding                                      found by
===========================================  ==========================================================
an array that may hold the records           what the callable can reach, :mod:`dpvi.models.captured`
no record plate, or two that cross           axes of plates and observed sites on two batch sizes
local latents, ``param`` sites               one abstract run
prior or outer site that reads records       data flow in the jaxpr, blind to neither integers nor bits
prior that depends on the number of records  values on two batch sizes
coupling between records                     values with the other records exchanged, and on a batch of one
non-finite density or gradient               simulated records of several kinds; one finite kind is enough
===========================================  ==========================================================
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.models.base import GenerativeModel, Model, ModelError
from dpvi.models.captured import captured
from dpvi.models.constants import bound
from dpvi.models.dependence import depends
from dpvi.models.failures import explained, place
from dpvi.models.notices import tell
from dpvi.models.numpyro import as_model
from dpvi.models.numpyro.conjugate import described as described_latents
from dpvi.models.numpyro.discovery import batched
from dpvi.models.numpyro.execution import LOG_DETERMINANT
from dpvi.models.numpyro.guides import GuidedModel, check_guide
from dpvi.models.numpyro.implied import RecordPlate
from dpvi.models.simulate import Simulated, compiled_for_few_calls, differs, simulate, with_responses
from dpvi.models.value_findings import finite_findings, integral_findings, size_findings, usable
from dpvi.population.generative import prior_draws
from dpvi.records.arrays import structure_of
from dpvi.records.frames import arguments_of
from dpvi.records.sources.base import described

_BATCH = 3
_SAME_PROGRAM = 1e-6  # one program, other neighbours: equal up to a few roundings
_PRIOR, _PRIOR_DRAWS = "prior", 4
_STARTS = (
    "The density of the model is not finite near z = 0, but at draws from its prior. A run that takes steps starts "
    "near z = 0 unless it is told otherwise: pass initial_location=, for example prior medians."
)
_OFFSETS = (-1.5, 0.8)  # from the posterior mean of what is integrated out, in standard deviations


@overload
def check(
    model: Model | Callable,
    data: Any,
    *,
    guide: None = None,
    static: Mapping[str, Any] | None = None,
    initial_location: Any = None,
) -> Model: ...
@overload
def check(
    model: Model | Callable,
    data: Any,
    *,
    guide: Callable,
    static: Mapping[str, Any] | None = None,
    initial_location: Any = None,
) -> GuidedModel: ...
def check(
    model: Model | Callable,
    data: Any,
    *,
    guide: Callable | None = None,
    static: Mapping[str, Any] | None = None,
    initial_location: Any = None,
) -> Model | GuidedModel:
    """Refuse a model that is not a prior plus one independent term per record, and return it ready to fit.

    Parameters
    ----------
    model
        A NumPyro callable or a :class:`~dpvi.models.base.Model`.
    data
        The records, in arrays or on disk, or anything with the same shapes and dtypes: values are never read.
    guide
        A NumPyro guide, for :func:`dpvi.fit` with one: then guide and model are checked together, see
        :func:`~dpvi.models.numpyro.guides.check_guide`.
    static
        ``{argument: constant}`` for model and guide, as for :func:`dpvi.fit`.
    initial_location
        As for :func:`dpvi.fit`: without a guide, a further point at which the model is tried.

    Returns
    -------
    model
        A :class:`~dpvi.models.base.Model`, or a :class:`~dpvi.models.numpyro.guides.GuidedModel` with a guide.

    Raises
    ------
    ModelError
        With one sentence per finding.
    """
    data = arguments_of(model, data, static or ())
    data, (model, guide) = bound(data, (model, guide), static)
    held = {"model": model} if guide is None else {"model": model, "guide": guide}
    structure_of(described(data))  # its sentences about leaves come first
    captured(held, data)
    if guide is None:
        return check_model(model, described(data), initial_location)
    guided = check_guide(model, guide, described(data))
    tell_of_plate(guided.layout.implied)
    return guided


def check_model(model: Model | Callable, data: Any, initial_location: Any = None) -> Model:
    """:func:`check` of a model without a guide that was handed its constants and holds no records."""
    structure = structure_of(data)
    ready = as_model(model, structure)
    if isinstance(ready, GenerativeModel):
        if jax.tree.structure(ready.structure) != jax.tree.structure(structure) or ready.structure != structure:
            raise ModelError(
                "The model was built for records of another structure; build it again from the structure of this data."
            )
        findings = _outer_findings(ready) + ready.own_findings()
    else:
        findings = _output_findings(ready, structure)
    if not findings:
        findings = _value_findings(ready, structure, initial_location)
    if findings:
        raise ModelError(findings)
    if isinstance(ready, GenerativeModel):
        tell_of_plate(_implied(ready))
        if _integrated(ready):
            tell(f"Continuous latents of a record are integrated out: {described_latents(_integrated(ready))}.")
    return ready


def tell_of_plate(implied: RecordPlate | None) -> None:
    """Say which plate was added to a model, or which were taken as one."""
    if implied is not None:
        tell(f"The model was completed: {implied}. The check found no record that depends on another.")


def _integrated(model: Any) -> Mapping[str, Any]:
    return getattr(getattr(model, "layout", None), "integrated", {})


def _implied(model: Any) -> RecordPlate | None:
    return getattr(getattr(model, "layout", None), "implied", None)


def _outer_findings(model: GenerativeModel) -> list[str]:
    """Sites outside the record plate that read records, by data flow."""

    batch = batched(model.structure, _BATCH)
    try:
        jaxpr, (values, terms) = jax.make_jaxpr(model.outside, return_shape=True)(_vector(model), batch)
    except Exception as error:
        raise ModelError(
            f"The model must run when every latent site is given a value, but fails with {type(error).__name__}"
            f"{place(error)}; draw random numbers at sample sites only, not with numpyro.prng_key."
        ) from error
    flags = depends(jaxpr, [False] + [True] * len(jax.tree.leaves(batch)))
    moving = {name for name, flag in zip(sorted(values), flags[: len(values)], strict=True) if flag}
    reading = {name for name, flag in zip(sorted(terms), flags[len(values) :], strict=True) if flag}
    findings = [
        f"The support of {name!r} reads records: take its bounds from public knowledge." for name in sorted(moving)
    ]
    for name in sorted(reading - moving - {LOG_DETERMINANT}):
        if name in values:
            findings.append(
                f"The prior of {name!r} reads records: a prior must be fixed before any record is seen; "
                "take its scale or centre from public knowledge."
            )
        else:
            findings.append(
                f"Observed site {name!r} reads records but lies outside the record plate {model.record_plate!r}: "
                "move it under that plate, so that each record has a term of its own."
            )
    return findings


def _output_findings(model: Model, structure: Any) -> list[str]:
    """Whether the two functions of any other model return scalars."""
    findings = []
    for name, function, arguments in (
        ("log_prior", model.log_prior, (_vector(model),)),
        ("log_likelihood", model.log_likelihood, (_vector(model), structure)),
    ):
        try:
            output = jax.eval_shape(function, *arguments)
        except Exception as error:
            raise ModelError(
                f"{name} must be a JAX function of the parameters{' and one record' if len(arguments) > 1 else ''}, "
                f"but fails with {type(error).__name__} on their shapes; see the error above."
            ) from error
        shape, dtype = getattr(output, "shape", None), getattr(output, "dtype", None)
        if shape != () or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            findings.append(
                f"{name} must return one floating-point number, got {_describe(output)}; sum over what it returns."
            )
    return findings


def _vector(model: Model) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((model.dimension,), jnp.result_type(float))


def _describe(output: Any) -> str:
    if hasattr(output, "shape"):
        return f"an array of shape {output.shape} and dtype {output.dtype}"
    return f"a {type(output).__name__}"


def _value_findings(model: Model, structure: Any, initial_location: Any) -> list[str]:
    """What only numbers show: one compiled function, run on each kind of simulated records."""
    evaluate = compiled_for_few_calls(lambda z, batch: _evaluate(model, z, batch), model.dimension)
    first: _Tried | None = None
    for where, z in _points(model, initial_location):
        try:
            tried = _try(model, evaluate, z, simulate(structure, _BATCH))
        except Exception as error:
            raise ModelError(
                f"The model must run on a batch of one record, but fails with {explained(error, structure)}; "
                "keep the record axis in every array, for example no jnp.squeeze without an axis."
            ) from error
        first = first or tried
        if not finite_findings(tried.results):
            if where == _PRIOR:
                tell(_STARTS)
            break
    else:
        assert first is not None
        tried = first
    findings = finite_findings(tried.results)
    if isinstance(model, GenerativeModel):
        findings += size_findings(tried.results)
        findings += _neighbour_findings(evaluate, tried)
        findings = findings or integral_findings(_integrated(model), tried.results)
        if _implied(model) is not None and not findings:  # what no user vouched for is tried at another point, too
            further = _try(model, evaluate, -3 * tried.z, tried.kinds)
            findings += size_findings(further.results) + _neighbour_findings(evaluate, further)
    return findings


class _Tried(NamedTuple):
    """A model at one point, on batches of each kind."""

    z: jax.Array
    kinds: list[Simulated]
    results: list[dict[str, Any]]


def _try(model: Model, evaluate: Callable, z: jax.Array, kinds: list[Simulated]) -> _Tried:
    results = [evaluate(z, simulated.first) for simulated in kinds]
    plain = any(usable(result) for simulated, result in zip(kinds, results, strict=True) if simulated.varied)
    if not plain and isinstance(model, GenerativeModel):
        kinds = with_responses(model, z, kinds)
        results = [evaluate(z, simulated.first) for simulated in kinds]
    return _Tried(z, kinds, results)


def _points(model: Model, initial_location: Any) -> Iterator[tuple[str, jax.Array]]:
    """Where a model is tried, until it is finite: near z = 0, where a run was told to start, and at prior draws."""
    dtype = jnp.result_type(float)
    yield "near zero", jnp.asarray(0.3 * np.random.default_rng(1).standard_normal(model.dimension), dtype)
    if initial_location is not None:
        with contextlib.suppress(TypeError, ValueError):  # the run itself says what is wrong with it
            given = initial_location
            z = model.unconstrain(given) if isinstance(given, dict) else jnp.asarray(given, dtype)
            if z.shape == (model.dimension,):
                yield "initial_location", z.astype(dtype)
    if isinstance(model, GenerativeModel):
        with contextlib.suppress(NotImplementedError):  # an improper prior has no sampler
            draws = prior_draws(model, jax.random.key(1), _PRIOR_DRAWS)
            yield from ((_PRIOR, draw.astype(dtype)) for draw in draws)


def _evaluate(model: Model, z: jax.Array, batch: Any) -> dict[str, Any]:
    singles, gradients = jax.vmap(jax.value_and_grad(model.log_likelihood), (None, 0))(z, batch)
    prior, prior_gradient = jax.value_and_grad(model.log_prior)(z)
    result = {
        "singles": singles,
        "gradients_finite": jnp.all(jnp.isfinite(gradients), axis=1),
        "prior": prior,
        "prior_finite": jnp.isfinite(prior) & jnp.all(jnp.isfinite(prior_gradient)),
    }
    if isinstance(model, GenerativeModel):
        result["terms"] = model.record_terms(z, batch)
        if _integrated(model):
            elsewhere: Any = model  # of NumPyro's models alone
            result["elsewhere"] = jnp.stack([elsewhere.record_terms(z, batch, offset=each) for each in _OFFSETS])
        result["prior_terms"] = model.outside(z, model.placeholder(_BATCH))[1]
        result["prior_terms_of_one"] = model.outside(z, model.placeholder())[1]
    return jax.lax.stop_gradient(result)


def _neighbour_findings(evaluate: Callable, tried: _Tried) -> list[str]:
    for simulated, result in zip(tried.kinds, tried.results, strict=True):
        for row in range(_BATCH if simulated.varied else 0):
            if differs(
                evaluate(tried.z, simulated.among_others(row))["terms"][row], result["terms"][row], _SAME_PROGRAM
            ):
                return [
                    "Records are coupled: the term of a record changes with the values of other records in the batch; "
                    "centre, scale or rank with public constants outside the model instead."
                ]
    return []
