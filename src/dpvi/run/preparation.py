"""What happens before a run: everything that can be wrong is said here, before a single record is read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpvi.declared.guarantee import Captured
from dpvi.declared.plan import Plan
from dpvi.declared.validation import FallbackWarning
from dpvi.families import Family, MeanField
from dpvi.families.guide import GuideFamily
from dpvi.gradients import Aligned, Estimator
from dpvi.gradients.base import describe
from dpvi.gradients.ghost import uses_ghost_clipping
from dpvi.gradients.ghost.microbatch import checked_microbatch_size
from dpvi.gradients.guided import Guided
from dpvi.gradients.named_layers import release_layers
from dpvi.mechanism.rng import root_key
from dpvi.models.base import GenerativeModel, Model, ModelError
from dpvi.models.captured import captured, listed, with_constants
from dpvi.models.check import check_model, tell_of_plate
from dpvi.models.numpyro.guides import check_guide
from dpvi.models.scaled import warn_of_scales
from dpvi.population.covariate_law import CovariateLaw
from dpvi.population.covariates import check_columns
from dpvi.posterior.score import ScoreModel
from dpvi.posterior.storage import check_storable
from dpvi.privacy.planning import checked_guarantee, warn_about_delta
from dpvi.records.arrays import structure_of, structure_to_dict
from dpvi.records.sampling import poisson_sampler
from dpvi.records.sharding import Records, make_shards
from dpvi.records.sources.base import RowSource, described
from dpvi.records.sources.mapped import as_source
from dpvi.release.driver import Driver
from dpvi.run.measurable import measured_model, refuse_beside_measuring, warn_about_devices
from dpvi.run.placement.hosts import from_first, ready_together, require_same
from dpvi.run.placement.placement import Placed, Rows, bring_in, place, shard_lengths
from dpvi.run.program.step import Algorithm
from dpvi.run.untold import run_within_memory

_FIRST_RATE, _LAST_RATE = 0.03, 0.003
_MAX_PASS_ELEMENTS = 2**25
_ON_DISK = "leave the records on disk until they are drawn (dpvi.open_npy) or spread them (devices=)"


class Prepared(NamedTuple):
    """A run that has passed all checks."""

    algorithm: Algorithm
    placed: Placed
    key: jax.Array  # the root key
    scores: ScoreModel | None  # the law of the scores that are measured, where some are
    captured: tuple[Captured, ...]  # what model, guide, law and driver hold beside the records


class _Inference(NamedTuple):
    """What is fitted, and how."""

    model: Model
    family: Family
    estimator: Estimator
    scores: ScoreModel | None


def prepare(
    model: Any,
    data: Any,
    plan: Plan,
    *,
    guide: Any = None,
    family: Family = MeanField(),
    estimator: Estimator = Aligned(),
    optimizer: optax.GradientTransformation | None = None,
    seed: int | None = None,
    driver: Driver | None = None,
    covariate_law: CovariateLaw | None = None,
    microbatch_size: int | None = None,
    devices: Sequence[Any] | None = None,
    initial_location: Any = None,
    origin: Any = None,
) -> Prepared:
    """Check everything that can be wrong before a single record is read, then bring the records in.

    Parameters are those of :func:`dpvi.fit`, whose constants are bound to model and guide already, and ``origin``, the
    user's own arrays where ``data`` is a copy of them.
    """
    with ready_together():
        if isinstance(plan, Plan) and plan.measuring is not None:
            refuse_beside_measuring(guide, estimator, optimizer, driver)
        if guide is not None:
            _refuse_beside_a_guide(family, estimator, covariate_law)
        if driver is not None:
            _check_measurable(guide, estimator)
        _check_settings(plan, family, estimator, optimizer)
        microbatch_size = checked_microbatch_size(microbatch_size)
        key = root_key(seed)
        checked_guarantee(plan)  # a plan that promises more than it keeps must not run
        given, data = data, as_source(data)
        structure = structure_of(described(data))
        held = {"model": model, "guide": guide, "covariate_law": covariate_law, "driver": driver}
        settings = {"family": family, "estimator": estimator, "optimizer": optimizer}
        found = captured(held, data, unlisted=settings, origin=given if origin is None else origin)
        if guide is None:
            chosen = _with_family(model, data, plan, family, estimator, driver, covariate_law, initial_location)
        else:
            chosen = _with_guide(model, guide, data, plan, estimator)
        found = with_constants(found, chosen.model, structure, data)
        check_storable(plan, chosen.family, describe(chosen.estimator), getattr(chosen.model, "sites", ()), structure)
        release_layers(plan.clipping, chosen.model, chosen.family, chosen.estimator)
        if optimizer is None:
            schedule = None if chosen.scores is None else plan.schedule
            optimizer = _default_optimizer(schedule.move_steps(plan.num_steps) if schedule else plan.num_steps)
        rows = run_within_memory(_ON_DISK, bring_in, data, devices)
        if plan.measuring is not None:
            warn_about_devices(devices if isinstance(devices, Sequence) else None)
    run_settings = {"microbatch_size": microbatch_size, "a driver or none": driver is not None}
    key = _agreed_key(key, seed, plan, chosen, structure, rows, run_settings)
    algorithm, placed = _placed(chosen, optimizer, plan, rows, structure, microbatch_size)
    if plan.private:
        warn_about_delta(plan, algorithm.sampler.num_records)
    return Prepared(algorithm, placed, key, chosen.scores, listed(found))


def _with_family(
    model: Any,
    data: Any,
    plan: Plan,
    family: Family,
    estimator: Estimator,
    driver: Driver | None,
    covariate_law: CovariateLaw | None,
    initial_location: Any,
) -> _Inference:
    estimator.check(family)
    ready = check_model(model, described(data), initial_location)
    warn_of_scales(ready)
    _check_covariates(ready, plan)
    if driver is None:
        return _Inference(ready, family, estimator, _score_model(ready, plan, estimator, covariate_law))
    if covariate_law is not None:
        raise ValueError(
            "A driver of your own is not given the covariate_law; leave it out, and pass it to "
            "result.posterior('score', covariate_law=...) afterwards."
        )
    return _Inference(ready, family, estimator, None)


def _with_guide(model: Any, guide: Any, data: Any, plan: Plan, estimator: Estimator) -> _Inference:
    ready = check_guide(model, guide, described(data))
    warn_of_scales(ready)
    tell_of_plate(ready.layout.implied)
    _check_covariates(ready, plan)
    if plan.schedule is not None and plan.schedule.measures:
        warnings.warn(
            "The plan measures scores for sharp noise-aware intervals, which a guide does not have; all steps go "
            "to the optimiser instead and the posterior will be method='average'.",
            FallbackWarning,
            stacklevel=4,  # the line that called fit
        )
    family = cast(Family, GuideFamily(tuple(ready.parameters.describe()), ready))
    guided = estimator if isinstance(estimator, Guided) else Guided()
    guided.check(family)
    return _Inference(cast(Model, ready), family, guided, None)


def _agreed_key(
    key: jax.Array,
    seed: int | None,
    plan: Plan,
    chosen: _Inference,
    structure: Any,
    rows: Rows,
    given: dict[str, Any],
) -> jax.Array:
    """Process 0's root key in every process, where all were given the same settings.

    What decides which program is compiled must be the same, too: processes in different ones would wait for each other.
    """
    family: Any = chosen.family
    settings = {
        "plan": plan.to_dict(),
        "family": repr(family) if not isinstance(family, GuideFamily) else family.parameters,
        "estimator": repr(chosen.estimator),
        "structure of a record": structure_to_dict(structure),
        "seed": seed,
        "precision": jnp.zeros(()).dtype.name,
        "records in memory or on disk": isinstance(rows.held, RowSource),
        "devices": [] if rows.mesh is None else [str(device) for device in rows.mesh.devices.flat],
        "number of parameters": chosen.model.dimension,
        "size of a release": chosen.estimator.release_size(chosen.family, chosen.model.dimension),
        "scores measured or not": chosen.scores is not None,
        "version of JAX": jax.__version__,
        **given,
    }
    require_same(settings)
    words = from_first(jax.random.key_data(key))
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(key))


def _check_settings(plan: Any, family: Any, estimator: Any, optimizer: Any) -> None:
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must come from dpvi.plan(...) or dpvi.plan_nonprivate(...), got {type(plan).__name__}.")
    for name, value, method, example in (
        ("family", family, "transform", "MeanField()"),
        ("estimator", estimator, "release", "Aligned()"),
    ):
        if isinstance(value, type) or not hasattr(value, method):
            raise TypeError(f"{name} must be an object such as dpvi.{example}, got {value!r}.")
    if optimizer is not None and not isinstance(optimizer, optax.GradientTransformation):
        raise TypeError(
            f"optimizer must be an optax optimiser such as optax.adam(0.01), got {type(optimizer).__name__}."
        )


def _refuse_beside_a_guide(family: Any, estimator: Any, covariate_law: Any) -> None:
    if (
        family != MeanField()
        or covariate_law is not None
        or not (estimator == Aligned() or isinstance(estimator, Guided))
    ):
        raise ValueError(
            "A guide takes the place of family, estimator and covariate_law; leave them out, or leave out the guide. "
            "Settings of its gradient are estimator=dpvi.Guided(...)."
        )


def _check_measurable(guide: Any, estimator: Any) -> None:
    """Refuse a driver where a step releases no score at a point of its choice: it would only seem to measure."""
    if guide is None and isinstance(estimator, Aligned):
        return
    releases = f"{type(estimator).__name__}() does not release" if guide is None else "a guide does not have"
    raise ValueError(
        f"A driver measures scores at points of its choice, which {releases}. Use estimator=Aligned() without a guide, "
        "or leave out the driver."
    )


def _default_optimizer(num_steps: int) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(_FIRST_RATE, max(num_steps, 1), _LAST_RATE / _FIRST_RATE))


def _placed(
    chosen: _Inference,
    optimizer: optax.GradientTransformation,
    plan: Plan,
    rows: Rows,
    structure: Any,
    microbatch_size: int | None,
) -> tuple[Algorithm, Placed]:
    """The algorithm for all records there are, and the records where it reads them."""
    model, family, estimator, _ = chosen
    lengths = shard_lengths(rows)
    num_records = sum(lengths)
    if plan.num_records is not None and plan.num_records != num_records:
        raise ValueError("The plan declares another number of records than the data has; make a plan for this data.")
    release_size = estimator.release_size(family, model.dimension)
    record_size = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(structure))
    slots = max(1, _MAX_PASS_ELEMENTS // max(release_size, record_size, 1))
    if uses_ghost_clipping(estimator, release_size):  # then no release is formed, and none need fit
        slots = max(1, _MAX_PASS_ELEMENTS // max(record_size, 1))
    sampler = poisson_sampler(num_records, plan.sampling_rate, slots)
    if plan.measuring is not None:  # records are read where they are, part by part
        algorithm = Algorithm(model, family, estimator, optimizer, plan, sampler)
        bounds = jnp.asarray((0, rows.num_records), jnp.int32)
        return algorithm, Placed(Records(None, bounds), rows.held, rows.num_records, rows.mesh)
    shards = None if rows.mesh is None else make_shards(lengths, sampler, plan.sampling_rate)
    algorithm = Algorithm(model, family, estimator, optimizer, plan, sampler, microbatch_size, shards)
    with ready_together():
        return run_within_memory(_ON_DISK, place, rows, algorithm, structure)


def _score_model(
    model: Model, plan: Plan, estimator: Estimator, covariate_law: CovariateLaw | None
) -> ScoreModel | None:
    """The law of the scores that the plan measures; ``None`` where it measures none, or none can be had.

    A plan that measures and pays for nothing else falls back to moving, with a warning. One that pays for histograms,
    which nothing else reads, is refused, and so is a ``covariate_law`` that would be left aside.
    """
    if plan.measuring is not None:
        return measured_model(model, plan, covariate_law)
    if not plan.private or plan.schedule is None or not plan.schedule.measures:
        _refuse_unread(plan, covariate_law, "no step of this plan measures")
        return None
    if covariate_law is not None and plan.covariates:
        raise ValueError(
            "The covariate_law would replace histograms that the plan pays for. Leave it out, or make a plan with "
            "covariates=[], which pays for the number of records alone."
        )
    if isinstance(estimator, Aligned) and estimator.num_draws == 1:
        try:
            return ScoreModel(cast(GenerativeModel, model), plan, covariate_law=covariate_law)
        except ModelError as error:
            reason = str(error)
            _refuse_unread(plan, covariate_law, reason)
    else:
        reason = f"{estimator!r} does not release the scores that Aligned() does."
        _refuse_unread(plan, covariate_law, reason)
    warnings.warn(
        "The plan measures scores for sharp noise-aware intervals, which is not possible here; all steps go "
        f"to the optimiser instead and the posterior will be method='stationary', on the wide side. {reason}",
        FallbackWarning,
        stacklevel=5,  # the line that called fit
    )
    return None


def _refuse_unread(plan: Plan, covariate_law: CovariateLaw | None, reason: str) -> None:
    """Refuse histograms that would be paid for, and a law that was given, where no scores are measured to read them."""
    if plan.private and plan.covariates:
        unread, remedy = "histograms of covariates, which this plan pays for", "Make a plan without covariates="
    elif covariate_law is not None:
        unread, remedy = "a covariate_law", "Leave it out"
    else:
        return
    raise ValueError(f"Only the score posterior reads {unread}, and here is none: {reason.rstrip('.')}. {remedy}.")


def _check_covariates(model: Any, plan: Plan) -> None:
    """Refuse a plan that would pay for histograms of columns that are not there, or that nothing reads."""
    if not plan.covariates:  # none, or the number of records alone
        return
    if not isinstance(model, GenerativeModel):
        raise ValueError(
            "The plan pays for histograms of covariates, which only the score posterior of a NumPyro or PyMC model "
            "without a guide reads. Make a plan without covariates=."
        )
    check_columns(model, plan.covariates)
