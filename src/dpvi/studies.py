"""``fit_many``: repeated studies, many fits side by side, group after group, kept on disk if wished."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from tqdm.auto import tqdm

from dpvi.core import validation
from dpvi.core.guarantee import Together, kind_of_seed
from dpvi.core.plan import Plan
from dpvi.core.trace import Trace
from dpvi.core.untold import run_within_memory
from dpvi.data.records import as_records, filled_up, structure_of
from dpvi.data.sampling import whole_tiles
from dpvi.data.sharding import Records
from dpvi.families import Family, MeanField
from dpvi.fitting import histograms_of, make_result, start
from dpvi.gradients import Aligned, Estimator
from dpvi.mechanism.rng import Streams, root_key, streams
from dpvi.models.base import Model
from dpvi.models.covariate_law import CovariateLaw
from dpvi.posterior.result import Result
from dpvi.posterior.score import ScoreDriver
from dpvi.preparation import Prepared, prepare
from dpvi.privacy.together import joint_guarantee
from dpvi.study_folder import StudyFolder, fingerprint, study_key
from dpvi.train.hosts import several
from dpvi.train.loop import Run, progress_bar
from dpvi.train.mesh import share
from dpvi.train.placement import lane_mesh, spread_lanes
from dpvi.train.step import Algorithm, State

_VERSION = importlib.import_module("dpvi").__version__  # the package's own, without all that it exports
_FEWER = "give fit_many a smaller group_size or fewer data sets"
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
    initial_location: Any = None,
    covariate_law: CovariateLaw | None = None,
    seeds: Sequence[int] | None = None,
    same_data: bool = False,
    group_size: int | None = None,
    directory: str | Path | None = None,
    devices: Sequence[Any] | None = None,
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
    progress
        Show one bar with the steps of all groups, of each plan.

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
    fits = _checked_fits(data, plan, seeds, same_data, directory)
    plans = [plan] * len(fits.keys) if isinstance(plan, Plan) else list(plan)
    together = _spent_together(plans, fits.seeds) if same_data else None
    results: dict[int, Result] = {}
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
            origin=data,
        )
        size = _checked_size(group_size, len(members), directory is not None)
        mesh, lanes = lane_mesh(devices, size)
        shared = None
        if same_data:  # once, and not for every group
            shared = chosen.filled_up(ready.algorithm.sampler.num_records)
            shared = shared if mesh is None else share(mesh, shared)
        driven = ready.scores is not None
        run = Run(ready.algorithm, lanes=len(lanes), mesh=mesh, driven=driven, same_records=same_data)
        study = _Study(ready, run, len(lanes), mesh, chosen, shared, initial_location, covariate_law, together)
        folder = None
        if directory is not None:
            path = Path(directory)
            key = study_key(path)
            folder = study.folder(path if isinstance(plan, Plan) else path / f"plan-{number}", size, key)
        results |= dict(zip(members, study.all_results(size, folder, progress), strict=True))
    return [results[index] for index in range(len(plans))]


class _Fits(NamedTuple):
    """The records, keys and seeds of some fits."""

    records: Any  # (fits, records, …), or (records, …) that all fits read
    same_data: bool
    keys: list[jax.Array]
    seeds: list[int] | None

    def records_of(self, number: int) -> Any:
        return self.records if self.same_data else jax.tree.map(lambda leaf: leaf[number], self.records)

    def filled_up(self, num_records: int) -> Records:
        """As a program reads them."""
        axis, size = int(not self.same_data), whole_tiles(num_records)
        rows = jax.tree.map(lambda leaf: filled_up(leaf, size, axis), self.records)
        return Records(rows, jnp.asarray((0, num_records), jnp.int32))

    @property
    def structure(self) -> Any:
        """Of one record."""
        one = structure_of(self.records)
        return one if self.same_data else structure_of(one)

    def chosen(self, numbers: Sequence[int]) -> _Fits:
        """Those with these numbers, in this order."""
        if list(numbers) == list(range(len(self.keys))):
            return self  # and no copy of the records
        records = self.records
        if not self.same_data:
            records = jax.tree.map(lambda leaf: leaf[np.array(numbers)], records)
        seeds = None if self.seeds is None else [self.seeds[k] for k in numbers]
        return _Fits(records, self.same_data, [self.keys[k] for k in numbers], seeds)


class _Study(NamedTuple):
    """Everything that fits a group of data sets under one plan."""

    ready: Prepared
    run: Run
    num_lanes: int  # of every group
    mesh: Mesh | None
    fits: _Fits
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
        arguments = run_within_memory(_FEWER, self.arguments, lanes)
        traces = run_within_memory(_FEWER, self.run, *arguments, driver=driver, progress=bar)
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
        with progress_bar(plan, progress, len(groups), not _any_guessable(self.fits.seeds)) as bar:
            for number, members in enumerate(groups):
                kept = None if folder is None else folder.group(number, len(members), plan)
                if kept is not None:
                    bar.update(plan.num_steps)
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
        records, of_lanes, state = self.arguments(self._filled([0]))
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
            "initial_location": [state.xi],
            "covariate_law": law,
            "model, estimator, family or optimizer": [self.run.lowered(records, of_lanes, state).as_text()],
        }
        return StudyFolder(path, settings, {name: fingerprint(key, name, part) for name, part in contents.items()})

    def _filled(self, members: Sequence[int]) -> list[int]:
        return [*members, *[members[-1]] * (self.num_lanes - len(members))]


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
    if len({(plan.adjacency, plan.unit) for plan in plans}) > 1:
        return Together(len(plans), all_private=True)
    joint = joint_guarantee(plans, [plan.guarantee for plan in plans])
    return Together(len(plans), True, joint.epsilon, joint.delta)


def _any_guessable(seeds: Sequence[int] | None) -> bool:
    return any(kind_of_seed(seed) == "guessable" for seed in seeds or ())


def _checked_fits(
    data: Any, plan: Any, seeds: Sequence[int] | None, same_data: bool, directory: str | Path | None
) -> _Fits:
    """Records, keys and seeds of all fits, once their numbers are known to agree."""
    if several():
        raise ValueError(
            "fit_many makes independent fits, which need no connection: start processes without jax.distributed, "
            "each with its own share of the fits."
        )
    _check_plans(plan)
    records, length = run_within_memory(_FEWER, as_records, data)
    if same_data:
        num_fits, each = _asked_for(plan, seeds), "fit"
    else:
        num_fits, each = length, "data set"
        if any(leaf.ndim < 2 for leaf in jax.tree.leaves(records)):
            raise ValueError(
                "fit_many needs arrays with two leading axes, (data sets, records, …); a leaf has only one. To fit one "
                "data set many times, pass same_data=True."
            )
    # how many data sets were found is not said: of one data set, given without same_data=True, it is how many records
    hint = "" if same_data else " The first axis of data is that of data sets; for one alone, pass same_data=True."
    if not isinstance(plan, Plan) and len(plan) != num_fits:
        raise ValueError(f"plan must be one plan, or a list of one per {each}; got {len(plan)}.{hint}")
    if seeds is not None and (not hasattr(seeds, "__len__") or len(seeds) != num_fits):
        given = f"{len(seeds)} numbers" if hasattr(seeds, "__len__") else type(seeds).__name__
        raise ValueError(f"seeds must hold one number per {each}; got {given}.{hint}")
    if seeds is None and directory is not None:
        raise ValueError(
            "A study that can be taken up again needs seeds: without them its keys would have to be stored, and "
            "whoever reads them can remove the noise. Pass seeds=, one number per fit, or leave out directory=."
        )
    keys = [root_key(seed) for seed in ([None] * num_fits if seeds is None else seeds)]
    if seeds is None:
        return _Fits(records, same_data, keys, None)
    _check_different(seeds)
    return _Fits(records, same_data, keys, list(seeds))


def _check_plans(plan: Any) -> None:
    if isinstance(plan, Plan):
        return
    if not isinstance(plan, Sequence) or not all(isinstance(one, Plan) for one in plan):
        raise TypeError(
            "plan must come from dpvi.plan(...) or dpvi.plan_nonprivate(...), or be a list of such plans, one per data "
            f"set; got {type(plan).__name__}."
        )


def _asked_for(plan: Plan | Sequence[Plan], seeds: Any) -> int:
    """How many fits of one data set."""
    counted = seeds if isinstance(plan, Plan) else plan
    if not hasattr(counted, "__len__") or len(counted) == 0:
        raise ValueError(
            "same_data=True fits one data set once for every seed or for every plan, and there is none: pass seeds=, "
            "or a list of plans such as [plan] * 10, for keys from the operating system."
        )
    return len(counted)


def _check_different(seeds: Sequence[int]) -> None:
    """Refuse a seed that stands there twice; a message with its value would give noise away."""
    first: dict[int, int] = {}
    for position, seed in enumerate(seeds):
        if first.setdefault(int(seed), position) != position:
            raise ValueError(
                f"seeds must all differ, but numbers {first[int(seed)]} and {position} (from 0) are the same. Two runs "
                "with one seed draw the same records and add the same noise, so that the difference of what they "
                "release has no noise left and no guarantee holds. Pass a seed of its own for every run."
            )


def _checked_size(group_size: Any, num_fits: int, kept: bool) -> int:
    if group_size is None:
        return min(num_fits, _KEPT_GROUP) if kept else num_fits
    return min(validation.whole_number("group_size", group_size), num_fits)
