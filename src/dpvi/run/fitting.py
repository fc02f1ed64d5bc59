"""``fit``: from a model, records and a plan to a result. It stands on both sides of the boundary."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tqdm.auto import tqdm

from dpvi.declared.guarantee import Captured, Circumstances, Together, kind_of_seed
from dpvi.declared.plan import HISTOGRAMS, Plan
from dpvi.declared.validation import ConvergenceWarning
from dpvi.families import Family, MeanField
from dpvi.gradients import Aligned, Estimator
from dpvi.gradients.base import describe
from dpvi.ledger import Ledger
from dpvi.mechanism.histogram import noisy_histograms
from dpvi.mechanism.rng import histogram_stream, streams
from dpvi.models.base import GenerativeModel, Model
from dpvi.models.constants import bound
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.models.recipes import recipe_of
from dpvi.population.covariate_law import CovariateLaw
from dpvi.population.generative import covariates_of
from dpvi.posterior.metric import make_strategy
from dpvi.posterior.result import Result
from dpvi.posterior.score import ScoreDriver, ScoreModel
from dpvi.records.arrays import structure_of, with_dtypes
from dpvi.records.frames import arguments_of, is_table
from dpvi.records.sources.base import RowSource
from dpvi.release.driver import Driver
from dpvi.release.trace import Trace
from dpvi.run.checkpoint import Checkpoint, opened, settings_of
from dpvi.run.measuring import Answers, Contributions, measure, measured_trace
from dpvi.run.placement.feed import reading
from dpvi.run.placement.hosts import from_all, from_first, losses_explained, ready_together, require_same
from dpvi.run.preparation import Prepared, prepare
from dpvi.run.program.loop import Run, progress_bar
from dpvi.run.program.step import Algorithm
from dpvi.run.untold import run_within_memory

_INITIAL_SPREAD = 0.1
_SMALLER = "keep the records on disk (dpvi.open_npy), or fit a model with fewer parameters"
_START = 20_260_101  # any number would do: a public constant, so that where a run starts tells nothing of its seed


def fit(
    model: Model | Any,
    data: Any,
    plan: Plan,
    *,
    family: Family = MeanField(),
    estimator: Estimator = Aligned(),
    optimizer: optax.GradientTransformation | None = None,
    guide: Any = None,
    static: Mapping[str, Any] | None = None,
    initial_location: Any = None,
    driver: Driver | None = None,
    covariate_law: CovariateLaw | None = None,
    microbatch_size: int | None = None,
    devices: Sequence[Any] | None = None,
    seed: int | None = None,
    ledger: Ledger | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool = True,
) -> Result:
    """Fit a variational posterior under the privacy guarantee of ``plan``.

    Parameters
    ----------
    model
        A NumPyro model whose records are independent, or a :mod:`dpvi.models` object. The plate over the records may be
        left out where observed sites show it, see :mod:`dpvi.models.numpyro.implied`.
    data
        A pytree of arrays with a common leading axis: a tuple becomes the model's positional arguments, a dict its
        keyword arguments. Or a table of pandas, polars or Arrow: columns that are named as the model's arguments become
        these arguments, and the others are left out. Or records that stay on disk until they are drawn: arrays from
        ``numpy.memmap`` among the leaves, or what :func:`dpvi.open_npy`, ``open_parquet`` and ``open_arrow`` return.
    plan
        From :func:`dpvi.plan`. It alone decides sampling rate, steps, clip norm and noise. A plan without steps
        measures: the run asks a handful of questions of all records, for the score posterior.
    family
        The variational family: :class:`~dpvi.families.MeanField`, ``FullRank`` or ``LowRank``.
    estimator
        The gradient estimator: :class:`~dpvi.gradients.Aligned`, ``Vanilla``, ``Preconditioned``, ``Natural`` or
        ``AlignedNatural``; with a guide :class:`~dpvi.gradients.Guided`, to change the number of draws of a step or to
        take all of its terms at the draw, ``Guided(closed_form=False)``.
    optimizer
        Any optax optimiser of the negative ELBO (summed over records, not averaged). By default Adam, its rate falling
        from 0.03 to 0.003 along a cosine: fast enough to narrow the scales of a short run, slow enough to settle.
    guide
        A NumPyro guide in place of a family: a function with the model's arguments or an autoguide,
        with local latents computed from their record (amortised) and networks from ``numpyro.contrib.module`` if it
        likes. Then ``param`` sites and latents under the record plate are allowed in the model too; see
        :mod:`dpvi.models.numpyro.guides`.
    static
        ``{argument: constant}`` for model and guide: sizes, tables, flags, kernels. They are public, no noise covers
        them, and the guarantee lists their arrays. Numbers, text and functions among ``data`` go there by themselves,
        and so does an array that is far shorter than all others; see :mod:`dpvi.models.constants`.
    initial_location
        Where the location starts: a vector of unconstrained values, or ``{site: value}`` on the sites' own supports.
        It is part of what is released, so it must not come from the records. By default the same numbers for all runs,
        whatever their seed: drawn once, normal with standard deviation 0.1, so that exchangeable components can part.
        With a guide, ``{parameter: value}`` for the parameters that are not to start where guide and model say; random
        starts of these are the same for all runs, too.
    driver
        Chooses between optimising and measuring at a fixed point, from released quantities; see
        :mod:`dpvi.release.driver`. By default the plan's schedule decides: where it measures and the model can draw
        records, a :class:`~dpvi.posterior.score.ScoreDriver`.
    covariate_law
        ``covariate_law(key, n)`` draws n rows of what the model conditions on, from a law known without the records.
        Only for plans that measure, in place of the histograms they would pay for.
    microbatch_size
        How many records are worked on at a time, rounded up to a multiple of 64. It changes time and memory, never the
        mechanism.
    devices
        Devices to spread the records over, such as ``jax.devices()``. By default all records are on the default device;
        or, in a program of several processes (``jax.distributed``), where ``data`` is this process's part of the
        records (the same arrays or files in two of them are refused), on all devices of all of them. It changes time
        and memory, never the mechanism. A run that measures is spread over processes alone. See
        docs/how-to/many-devices.md.
    seed
        ``None`` takes 256 bits from the operating system. A number makes the run repeatable, for research. With one
        below 2^128 the run is NOT PRIVATE, and all it gives says so: such numbers can be found by trying. One from
        ``secrets.randbits(256)`` must be kept secret, as the guarantee says. Two runs with one seed add the same noise,
        which their difference does not have: a seed must never be used twice on real records.
    ledger
        A :class:`dpvi.Ledger` that the run is charged to. What it does not hold is refused before anything is computed
        from a record. A run that is killed stays reserved there.
    checkpoint
        A file from which the run goes on where it is there, and that is written while the run goes on: a killed run is
        resumed by the same call and charged once. It holds what was released and no key; steps that are left draw a
        fresh one. Once the run is done the same call returns its result again. See docs/how-to/resume-a-run.md.
    checkpoint_seconds
        How often it is written.
    progress
        Show a bar with steps and ε. It shows nothing that saw records.

    Returns
    -------
    A :class:`~dpvi.posterior.Result`.

    Guarantees
    ----------
    Everything in the result is a function of the noisy sums the plan accounts for. The number of records, batch
    sizes and un-noised quantities are in no part of it.
    """
    refuse_start(plan, initial_location)
    table = data if is_table(data) else None
    with opened(checkpoint, checkpoint_seconds) as kept:
        refuse_uncovered(ledger, [plan], [seed], kept)
        with ready_together():
            data, (model, guide) = bound(arguments_of(model, data, static or ()), (model, guide), static)
        prepared = prepare(
            model,
            data,
            plan,
            guide=guide,
            family=family,
            estimator=estimator,
            optimizer=optimizer,
            seed=seed,
            driver=driver,
            covariate_law=covariate_law,
            microbatch_size=microbatch_size,
            devices=devices,
            initial_location=initial_location,
            origin=table,
        )
        structure = structure_of(prepared.placed.shapes)
        if kept is not None:
            steering = None if driver is None else type(driver).__qualname__
            kept.require(settings_of(prepared.algorithm, structure, seed, steering), plan)
        released = _measured if plan.measuring is not None else _stepped
        bar = progress_bar(plan, progress, secret=kind_of_seed(seed) != "guessable")
        with losses_explained(), charged(ledger, [plan], [seed], kept), bar:
            trace = released(prepared, driver, initial_location, bar, kept)
    return make_result(prepared.algorithm, trace, structure, seed, prepared.scores, captured=prepared.captured)


def _stepped(prepared: Prepared, driver: Driver | None, initial: Any, bar: tqdm, kept: Checkpoint | None) -> Trace:
    """One run that takes steps: histograms, then step after step, or what is left of them."""
    algorithm, placed, key, scores, _ = prepared
    run_streams = streams(key)
    with reading(algorithm.feed):
        with ready_together():
            location = start(algorithm, initial)
        state = algorithm.initial(jnp.asarray(from_first(location)))
        histograms = _counted(prepared, kept)
        if scores is not None:
            driver = ScoreDriver(scores, populations=[scores.population(histograms)])
        compiled = Run(algorithm, mesh=placed.mesh, driven=driver is not None)
        require_same({"steps of a chunk": compiled.layout})
        begun = None if kept is None else kept.settled(state, compiled.layout)
        options = {} if kept is None else {"begun": begun, "keep": kept.keep}
        run = partial(compiled, placed.records, run_streams, state, driver=driver, progress=bar, **options)
        remedy = "pass a microbatch_size to fit, for example 256, and halve it until the run fits"
        with nullcontext() if kept is None else kept.stoppable():
            trace = run_within_memory(remedy, run)[0]
    return trace._replace(histograms=histograms)


def _measured(prepared: Prepared, _: Driver | None, __: Any, bar: tqdm, kept: Checkpoint | None) -> Trace:
    assert prepared.scores is not None
    with ready_together():
        contributions = tried_contributions(prepared.scores)
    with nullcontext() if kept is None else kept.stoppable():
        return fit_measuring(prepared, contributions, bar, kept)


def _counted(prepared: Prepared, kept: Checkpoint | None) -> np.ndarray | None:
    """The run's histograms: what was released of them before, or counted now."""
    algorithm, placed, key, *_ = prepared
    if kept is not None and kept.histograms is not None:
        return kept.histograms
    # where the number of records alone is counted, shapes tell it and no row is read
    histograms = histograms_of(algorithm, placed.blocks() if algorithm.plan.covariates else [placed.shapes], key)
    if kept is not None:
        kept.keep_histograms(histograms)
    return histograms


def fit_measuring(
    prepared: Prepared, contributions: Contributions, bar: tqdm | None = None, kept: Checkpoint | None = None
) -> Trace:
    """One measuring run: histograms, then whatever its strategy asks for."""
    algorithm, placed, key, scores, _ = prepared
    assert scores is not None
    plan, model, structure = algorithm.plan, algorithm.model, structure_of(placed.shapes)

    def blocks() -> Iterable[Any]:
        for block in placed.blocks():
            yield with_dtypes(block, structure)
        if isinstance(placed.own, RowSource):
            placed.own.check_unchanged()

    answers = Answers(
        contributions, plan, blocks, key, _over_all_processes
    )  # refuses a plan before anything is counted
    histograms = _counted(prepared, kept)
    options: dict[str, Any] = {}
    if kept is not None:
        begun = kept.answers(model.dimension, plan.num_steps)
        options = {"begun": begun, "keep": partial(kept.keep_answers, dimension=model.dimension)}
    done = run_within_memory(_SMALLER, measure, answers, make_strategy(scores, histograms), bar, **options)
    if kept is not None and not kept.finished:
        kept.keep_answers(done, model.dimension, finished=True)
    trace = measured_trace(done, algorithm.family, _location(model, None), model.dimension)
    return trace._replace(histograms=histograms)


def tried_contributions(scores: ScoreModel) -> Contributions:
    """Compiled programs that have read no record yet, and serve any number of runs."""
    contributions = Contributions(scores.model)
    contributions.try_scores()
    return contributions


def refuse_start(plan: Any, initial_location: Any) -> None:
    """Refuse a starting point that no run of ``plan`` would read."""
    if getattr(plan, "measuring", None) is not None and initial_location is not None:
        raise ValueError("A run that measures starts at the centre of the prior; leave initial_location out.")


def refuse_uncovered(
    ledger: Ledger | None, plans: Sequence[Plan], seeds: Sequence[int | None], kept: Checkpoint | None = None
) -> None:
    """Refuse, before the work of a run's checks, what its ledger does not hold."""
    with ready_together():
        if ledger is not None and not isinstance(ledger, Ledger):
            raise TypeError(f"ledger must be a dpvi.Ledger(path), got {type(ledger).__name__}.")
        begun = ledger is not None and kept is not None and kept.holds(ledger, plans[0])
        if ledger is not None and jax.process_index() == 0 and not begun:
            ledger.check(plans, seeds)


def charged(
    ledger: Ledger | None, plans: Sequence[Plan], seeds: Sequence[int | None], kept: Checkpoint | None = None
) -> ExitStack:
    """What is run inside is charged to the ledger, once for all processes: the first one keeps it."""
    charging = ExitStack()
    with ready_together():
        name = None if kept is None else kept.claim(ledger, plans[0])
        if ledger is not None and jax.process_index() == 0:
            charging.enter_context(ledger.charging(plans, seeds, name=name))
    return charging


def histograms_of(algorithm: Algorithm, blocks: Iterable[Any], key: jax.Array) -> np.ndarray | None:
    """The noisy histograms that the plan pays for, over blocks that hold every record of this process once."""
    plan, model = algorithm.plan, algorithm.model
    if plan.covariates is None:
        return None

    def counted(records: Any) -> list[Any]:
        leaves = covariates_of(model, records) if plan.covariates and isinstance(model, GenerativeModel) else []
        return leaves or jax.tree.leaves(records)  # any leaf has one row per record

    release, stream = plan.release(HISTOGRAMS), histogram_stream(key)
    return noisy_histograms(plan.covariates, map(counted, blocks), release, stream, _over_all_processes)


def _over_all_processes(count: Callable[[], np.ndarray]) -> np.ndarray:
    with ready_together():
        counts = count()
    return from_all(counts).sum(axis=0)


def start(algorithm: Algorithm, initial: Any) -> jax.Array:
    """Where a run starts: the location of a family, or all parameters of a guide and its model.

    It is released and depends on nothing secret. A start that followed from a seed would show which seed it was.
    """
    model: Any = algorithm.model
    if not isinstance(model, GuidedModel):
        return _location(model, initial)
    if initial is not None and not isinstance(initial, dict):
        raise ValueError(f"With a guide, initial_location must be a dict of parameters, got {type(initial).__name__}.")
    return model.initial(jax.random.key(_START), initial)


def _location(model: Model, initial: Any) -> jax.Array:
    dtype = jnp.zeros(()).dtype
    if initial is None:
        rng = np.random.default_rng(_START)  # on the host, where nothing need be compiled
        return jnp.asarray(_INITIAL_SPREAD * rng.normal(size=model.dimension), dtype)
    try:
        location = model.unconstrain(initial) if isinstance(initial, dict) else jnp.asarray(initial, dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"initial_location must be a vector of numbers or a dict of sites: {error}") from None
    if location.shape != (model.dimension,) or not bool(jnp.all(jnp.isfinite(location))):
        raise ValueError(
            f"initial_location must be {model.dimension} finite numbers or a dict of sites, got shape {location.shape}."
        )
    return location.astype(dtype)


def make_result(
    algorithm: Algorithm,
    trace: Any,
    structure: Any,
    seed: int | None,
    scores: ScoreModel | None = None,
    *,
    captured: tuple[Captured, ...] = (),
    together: Together | None = None,
) -> Result:
    """A trace with what its guarantee rests on and what is needed to read it."""
    if not np.all(np.isfinite(trace.final)):
        warnings.warn(
            "The run diverged: its last iterate is not finite. Use a smaller learning rate or a larger clip norm.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Result(
        plan=algorithm.plan,
        circumstances=Circumstances(kind_of_seed(seed), captured, together),
        trace=trace,
        family=algorithm.family,
        estimator=describe(algorithm.estimator),
        sites=getattr(algorithm.model, "sites", ()),
        structure=structure,
        model=algorithm.model,
        scores=scores,
        recipe=recipe_of(algorithm.model),
    )
