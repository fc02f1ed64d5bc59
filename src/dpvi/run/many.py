"""``fit_many``: repeated studies, many fits side by side, group after group, kept on disk if wished."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from tqdm.auto import tqdm

from dpvi.declared import validation
from dpvi.declared.guarantee import Together, kind_of_seed
from dpvi.declared.plan import Plan
from dpvi.families import Family, MeanField
from dpvi.gradients import Aligned, Estimator
from dpvi.ledger import Ledger
from dpvi.mechanism.rng import Streams, streams
from dpvi.models.base import Model
from dpvi.models.constants import bound
from dpvi.population.covariate_law import CovariateLaw
from dpvi.posterior.result import Result
from dpvi.posterior.score import ScoreDriver
from dpvi.privacy.together import joint_guarantee
from dpvi.records.sharding import Records
from dpvi.release.trace import Trace
from dpvi.run.fitting import (
    charged,
    fit_measuring,
    histograms_of,
    make_result,
    refuse_start,
    refuse_uncovered,
    start,
    tried_contributions,
)
from dpvi.run.measuring import Contributions
from dpvi.run.placement.mesh import share
from dpvi.run.placement.placement import lane_mesh, spread_lanes
from dpvi.run.preparation import Prepared, prepare
from dpvi.run.program.loop import Run, progress_bar
from dpvi.run.program.step import Algorithm, State
from dpvi.run.study_arguments import FEWER, Fits, checked_fits
from dpvi.run.study_folder import StudyFolder, fingerprint, study_key
from dpvi.run.untold import run_within_memory

_VERSION = importlib.import_module("dpvi").__version__  # the package's own, without all that it exports
_KEPT_GROUP = 100  # fits after which a study with a folder is kept, unless told


def fit_many(
    model: Model | Any,
    data: Any,
    plan: Plan | Sequence[Plan],
    *,
    family: Family = MeanField(),
    estimator: Estimator = Aligned(),
    optimizer: optax.GradientTransformation | None = None,
    guide: Any = None,
    static: Mapping[str, Any] | None = None,
    initial_location: Any = None,
    covariate_law: CovariateLaw | None = None,
    seeds: Sequence[int] | None = None,
    same_data: bool = False,
    group_size: int | None = None,
    directory: str | Path | None = None,
    devices: Sequence[Any] | None = None,
    ledger: Ledger | None = None,
    progress: bool = True,
) -> list[Result]:
    """Fit many data sets of equal size, or one data set many times, side by side, for repeated studies.

    Parameters
    ----------
    data
        As for :func:`fit`, with one more leading axis: (data sets, records, …). The size of the data sets is shared
        and known to whoever runs the study. With ``same_data``, exactly as for :func:`fit`.
    plan
        One plan for all, or one per fit: fits with equal plans run side by side, one plan after the other.
    seeds
        One seed per fit, no two alike, or ``None`` for keys from the operating system. A run with a seed equals
        :func:`fit` with that seed, up to rounding: below 2^128, as in ``range(100)``, it is NOT PRIVATE and its result
        says so. A seed must never be used for two runs on real records, in one call or in several: both add the same
        noise, and their difference has none.
    same_data
        Fit one data set once for every seed, or for every plan of a list. All fits read one copy of the records.
    group_size
        How many fits run side by side; by default all, or, with a ``directory``, 100. Smaller groups take less
        memory; the last one is filled up with copies, which are dropped.
    directory
        A folder that keeps the results of every group as soon as it is done. The same call with the same folder, after
        the process was killed or the machine went down, goes on with the first group that is not there, and returns
        exactly what an uninterrupted call returns. Needs ``seeds``. A folder of another study (another plan, data,
        model, …) is refused. See docs/how-to/repeated-studies.md.
    devices
        Devices to spread the fits over, such as ``jax.devices()``; by default all run on the default one.
    ledger
        A :class:`dpvi.Ledger` that all fits are charged to, as one entry; only with ``same_data``, because a ledger is
        of one data set. A call that goes on with a folder is charged again.
    progress
        Show one bar with the steps of all groups, of each plan.
    ...
        Other parameters are those of :func:`fit`.

    Returns
    -------
    One :class:`~dpvi.posterior.Result` per fit.

    Guarantees
    ----------
    Each result's (ε, δ) is that of its own fit alone. Several data sets are each protected by their own; a person in
    several of them is not protected by any one. Fits of one data set compose: k of them, published together, spend up
    to (Σ ε, Σ δ), or the ε of one plan where all plans come from one :func:`dpvi.plan_together`
    (:func:`dpvi.privacy.joint_guarantee`). With ``same_data`` the guarantee of every result says what all spend.

    A folder holds results and fingerprints of data and seeds, under a random key that is kept beside the folder, in
    ``directory.key``. To whoever does not have that file they say nothing, however small the seeds are; do not publish
    it.
    """
    data, (model, guide) = bound(data, (model, guide), static)
    fits = checked_fits(data, plan, seeds, same_data, directory)
    plans = [plan] * len(fits.keys) if isinstance(plan, Plan) else list(plan)
    for one in plans:
        refuse_start(one, initial_location)
    together = _spent_together(plans, fits.seeds) if same_data else None
    _check_ledger(ledger, same_data)
    refuse_uncovered(ledger, plans, fits.seeds or ())
    results: dict[int, Result] = {}
    with ExitStack() as charging:
        for number, (one, members) in enumerate(_by_plan(plans).items()):
            chosen = fits.chosen(members)
            ready = prepare(
                model,
                chosen.records_of(0),
                one,
                guide=guide,
                family=family,
                estimator=estimator,
                optimizer=optimizer,
                covariate_law=covariate_law,
                initial_location=initial_location,
                origin=data,
            )
            if number == 0:  # once the first of them may begin
                charging.enter_context(charged(ledger, plans, fits.seeds or ()))
            size = _checked_size(group_size, len(members), directory is not None)
            if one.measuring is None:
                study = _study(ready, size, devices, chosen, initial_location, covariate_law, together)
            else:
                assert ready.scores is not None
                programs = tried_contributions(ready.scores)
                study = _Measured(ready, programs, 1, None, chosen, None, None, covariate_law, together)
            folder = None
            if directory is not None:
                path = Path(directory)
                key = study_key(path)
                folder = study.folder(path if isinstance(plan, Plan) else path / f"plan-{number}", size, key)
            results |= dict(zip(members, study.all_results(size, folder, progress), strict=True))
    return [results[index] for index in range(len(plans))]


class _Study(NamedTuple):
    """Everything that fits a group of data sets under one plan."""

    ready: Prepared
    run: Run | Contributions  # the latter where fits measure
    num_lanes: int  # of every group
    mesh: Mesh | None
    fits: Fits
    shared: Records | None  # of all fits, where they read the same
    initial_location: Any
    covariate_law: CovariateLaw | None
    together: Together | None  # what all fits of the same records spend

    @property
    def algorithm(self) -> Algorithm:
        return self.ready.algorithm

    @property
    def programs(self) -> dict[str, Any]:
        """What a file does not hold of a result."""
        return {"family": self.algorithm.family, "model": self.algorithm.model, "scores": self.ready.scores}

    def arguments(self, lanes: Sequence[int]) -> tuple[Records, Streams, State]:
        """Records, streams and first states of some fits, where they run."""
        chosen, mesh = self.fits.chosen(lanes), self.mesh
        by_lane = [streams(key) for key in chosen.keys]
        locations = [start(self.algorithm, self.initial_location)] * len(by_lane)
        state = jax.vmap(self.algorithm.initial)(jnp.asarray(np.stack(locations)))
        of_lanes = Streams(*map(_stacked_keys, zip(*by_lane, strict=True)))
        if self.shared is not None:
            return self.shared, *spread_lanes(mesh, (of_lanes, state))
        rows, bounds = chosen.filled_up(self.algorithm.sampler.num_records)
        bounds = bounds if mesh is None else share(mesh, bounds)
        rows, of_lanes, state = spread_lanes(mesh, (rows, of_lanes, state))
        return Records(rows, bounds), of_lanes, state

    def fit(self, members: Sequence[int], bar: tqdm) -> list[Result]:
        """Results of the fits ``members``; copies of the last one fill up the lanes."""
        fits, scores = self.fits, self.ready.scores
        lanes, counts = self._filled(members), dict.fromkeys(members)
        if self.algorithm.plan.covariates is not None:
            counts = {i: histograms_of(self.algorithm, [fits.records_of(i)], fits.keys[i]) for i in members}
        driver = None
        if scores is not None:
            driver = ScoreDriver(scores, populations=[scores.population(counts[i]) for i in lanes])
        arguments = run_within_memory(FEWER, self.arguments, lanes)
        assert isinstance(self.run, Run)
        traces = run_within_memory(FEWER, self.run, *arguments, driver=driver, progress=bar)
        return [
            self._result(i, trace._replace(histograms=counts[i])) for i, trace in zip(members, traces, strict=False)
        ]

    def _result(self, number: int, trace: Trace) -> Result:
        seed = None if self.fits.seeds is None else self.fits.seeds[number]
        facts = {"captured": self.ready.captured, "together": self.together}
        return make_result(self.algorithm, trace, self.fits.structure, seed, self.ready.scores, **facts)

    def all_results(self, group_size: int, folder: StudyFolder | None, progress: bool) -> list[Result]:
        """Results of all fits, group after group; those that ``folder`` keeps are read."""
        plan, num_fits = self.algorithm.plan, len(self.fits.keys)
        groups = [range(begin, min(begin + group_size, num_fits)) for begin in range(0, num_fits, group_size)]
        results: list[Result] = []
        with progress_bar(plan, progress, self.runs(groups), not _any_guessable(self.fits.seeds)) as bar:
            for number, members in enumerate(groups):
                kept = None if folder is None else folder.group(number, len(members), plan)
                if kept is not None:
                    bar.update(plan.num_steps * self.runs([members]))
                    results += [Result(**{**each, **self.programs}) for each in kept]
                    continue
                fitted = self.fit(members, bar)
                if folder is not None:
                    folder.keep(number, fitted)
                results += fitted
        return results

    def folder(self, path: Path, group_size: int, key: bytes) -> StudyFolder:
        """Where groups are kept, once what is there is known to be of this study."""
        algorithm = self.algorithm
        start_location, program = self.program()
        settings = {
            "plan": algorithm.plan.to_dict(),
            "number of data sets": len(self.fits.keys),
            "same_data": self.fits.same_data,
            "all fits of the same records": self.together and str(self.together),
            "group_size": group_size,
            "devices": 1 if self.mesh is None else self.mesh.size,
            "precision": jnp.zeros(()).dtype.name,
            "version of jax": jax.__version__,
            "version of dpvi": _VERSION,
        }
        law = [] if self.covariate_law is None else jax.tree.leaves(self.covariate_law(jax.random.key(0), 16))
        contents = {
            "seeds": [jax.random.key_data(root) for root in self.fits.keys],
            "data": jax.tree.leaves(self.fits.records),
            "initial_location": start_location,
            "covariate_law": law,
            "model, estimator, family or optimizer": [program],
        }
        return StudyFolder(path, settings, {name: fingerprint(key, name, part) for name, part in contents.items()})

    def program(self) -> tuple[list[Any], str]:
        """Where fits start, and what they compute, as text."""
        assert isinstance(self.run, Run)
        records, of_lanes, state = self.arguments(self._filled([0]))
        return [state.xi], self.run.lowered(records, of_lanes, state).as_text()

    def runs(self, groups: Sequence[Sequence[int]]) -> int:
        """How many runs after each other fit ``groups``."""
        return len(groups)

    def _filled(self, members: Sequence[int]) -> list[int]:
        return [*members, *[members[-1]] * (self.num_lanes - len(members))]


class _Measured(_Study):
    """Fits that measure, one after the other: a few sums over all records each."""

    def fit(self, members: Sequence[int], bar: tqdm) -> list[Result]:
        """Results of the fits ``members``."""
        assert self.ready.scores is not None
        assert isinstance(self.run, Contributions)
        results = []
        for i in members:
            placed, key = self.ready.placed._replace(own=self.fits.records_of(i)), self.fits.keys[i]
            ready = self.ready._replace(algorithm=self.algorithm, placed=placed, key=key)
            trace = fit_measuring(ready, self.run, bar)
            results.append(self._result(i, trace))
        return results

    def program(self) -> tuple[list[Any], str]:
        """Nothing is started, and what a record adds, as text."""
        assert isinstance(self.run, Contributions)
        return [], self.run.lowered()

    def runs(self, groups: Sequence[Sequence[int]]) -> int:
        return sum(map(len, groups))


def _study(
    ready: Prepared,
    size: int,
    devices: Sequence[Any] | None,
    chosen: Fits,
    initial_location: Any,
    covariate_law: CovariateLaw | None,
    together: Together | None,
) -> _Study:
    """Fits that take steps, side by side."""
    mesh, lanes = lane_mesh(devices, size)
    shared = None
    if chosen.same_data:  # once, and not for every group
        shared = chosen.filled_up(ready.algorithm.sampler.num_records)
        shared = shared if mesh is None else share(mesh, shared)
    driven = ready.scores is not None
    run = Run(ready.algorithm, lanes=len(lanes), mesh=mesh, driven=driven, same_records=chosen.same_data)
    return _Study(ready, run, len(lanes), mesh, chosen, shared, initial_location, covariate_law, together)


def _stacked_keys(keys: Sequence[jax.Array]) -> jax.Array:
    """One array of keys, put together on the host: a program with a thousand arguments takes seconds to compile."""
    words = np.stack([np.asarray(jax.random.key_data(key)) for key in keys])
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(keys[0]))


def _by_plan(plans: Sequence[Plan]) -> dict[Plan, list[int]]:
    """Which fits follow each plan."""
    members: dict[Plan, list[int]] = {}
    for number, plan in enumerate(plans):
        members.setdefault(plan, []).append(number)
    return members


def _spent_together(plans: Sequence[Plan], seeds: Sequence[int] | None) -> Together | None:
    """What the guarantee of one of several fits of the same records has to say of the others."""
    if len(plans) < 2:
        return None
    # where all seeds can be guessed, each result says so itself, and what was planned for all is worth knowing
    all_secret = len({kind_of_seed(seed) for seed in seeds or ()}) < 2
    if not all_secret or not all(plan.private for plan in plans):
        return Together(len(plans), all_private=False)
    if len({(plan.adjacency, plan.unit, plan.rows_per_unit) for plan in plans}) > 1:
        return Together(len(plans), all_private=True)
    joint = joint_guarantee(plans, [plan.guarantee for plan in plans])
    return Together(len(plans), True, joint.epsilon, joint.delta)


def _check_ledger(ledger: Ledger | None, same_data: bool) -> None:
    if ledger is not None and not same_data:
        raise ValueError(
            "A ledger is of one data set, and these are several. Pass same_data=True for fits of one data set, or call "
            "dpvi.fit(..., ledger=) with the ledger of each."
        )


def _any_guessable(seeds: Sequence[int] | None) -> bool:
    return any(kind_of_seed(seed) == "guessable" for seed in seeds or ())


def _checked_size(group_size: Any, num_fits: int, kept: bool) -> int:
    if group_size is None:
        return min(num_fits, _KEPT_GROUP) if kept else num_fits
    return min(validation.whole_number("group_size", group_size), num_fits)
