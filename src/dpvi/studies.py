"""``fit_many``: repeated studies, many data sets side by side, group after group, kept on disk if wished."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from tqdm.auto import tqdm

from dpvi.core.plan import Plan
from dpvi.data.records import as_records, structure_of
from dpvi.families import Family, MeanField
from dpvi.fitting import histograms_of, make_result, run_within_memory, start
from dpvi.gradients import Aligned, Estimator
from dpvi.mechanism.rng import Streams, root_key, streams, study_secret
from dpvi.models.base import Model
from dpvi.models.covariate_law import CovariateLaw
from dpvi.posterior.result import Result
from dpvi.posterior.score import ScoreDriver, ScoreModel
from dpvi.preparation import prepare
from dpvi.study_folder import StudyFolder, fingerprint
from dpvi.train.hosts import several
from dpvi.train.loop import Run, progress_bar
from dpvi.train.placement import lane_mesh, spread_lanes
from dpvi.train.step import Algorithm, State

_KEPT_GROUP = 100  # data sets after which a study with a folder is kept, unless told


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
    group_size: int | None = None,
    directory: str | Path | None = None,
    devices: Sequence[Any] | None = None,
    progress: bool = True,
) -> list[Result]:
    """Fit many data sets of equal size side by side, for repeated studies.

    Parameters
    ----------
    data
        As for :func:`fit`, with one more leading axis: (data sets, records, …). The size of the data sets is shared
        and known to whoever runs the study.
    plan
        One plan for all, or one per data set: data sets with equal plans run side by side, one plan after the other.
    seeds
        One seed per data set, or ``None`` for keys from the operating system. A run with a seed equals :func:`fit`
        with that seed, up to rounding.
    group_size
        How many data sets run side by side; by default all, or, with a ``directory``, 100. Smaller groups take less
        memory; the last one is filled up with copies, which are dropped.
    directory
        A folder that keeps the results of every group as soon as it is done. The same call with the same folder, after
        the process was killed or the machine went down, goes on with the first group that is not there, and returns
        exactly what an uninterrupted call returns. Needs ``seeds``. A folder of another study (another plan, data,
        model, …) is refused. See docs/how-to/repeated-studies.md.
    devices
        Devices to spread the data sets over, such as ``jax.devices()``; by default all are fitted on the default one.
    progress
        Show one bar with the steps of all groups, of each plan.

    Other parameters are those of :func:`fit`. Each data set is protected by its own guarantee; a person in several of
    them is not protected by any one alone.

    Returns
    -------
    One :class:`~dpvi.posterior.Result` per data set.

    Guarantees
    ----------
    A folder holds results, which may be published as they are, and fingerprints of data and seeds under a key that is
    derived from all seeds and stored nowhere. To whoever does not know the seeds they say nothing; whoever does could
    remove the noise, with or without them.
    """
    if not isinstance(plan, Plan):
        return _one_plan_after_the_other(
            model,
            data,
            plan,
            family=family,
            estimator=estimator,
            optimizer=optimizer,
            guide=guide,
            initial_location=initial_location,
            covariate_law=covariate_law,
            seeds=seeds,
            group_size=group_size,
            directory=directory,
            devices=devices,
            progress=progress,
        )
    stacked, num_sets = _checked_data(data, seeds, directory)
    ready = prepare(
        model,
        jax.tree.map(lambda leaf: leaf[0], stacked),
        plan,
        guide=guide,
        family=family,
        estimator=estimator,
        optimizer=optimizer,
        covariate_law=covariate_law,
    )
    algorithm, scores = ready.algorithm, ready.scores
    size = _checked_size(group_size, num_sets, directory is not None)
    mesh, lanes = lane_mesh(devices, size)
    run = Run(algorithm, lanes=len(lanes), mesh=mesh, driven=scores is not None)
    keys = [root_key(None if seeds is None else seeds[i]) for i in range(num_sets)]
    study = _Study(algorithm, scores, run, len(lanes), mesh, stacked, keys, seeds, initial_location, covariate_law)
    return study.all_results(size, None if directory is None else study.folder(Path(directory)), progress)


def _one_plan_after_the_other(
    model: Any,
    data: Any,
    plans: Sequence[Plan],
    *,
    seeds: Sequence[int] | None,
    directory: str | Path | None,
    **options: Any,
) -> list[Result]:
    """``fit_many`` for the data sets of each plan, in a folder of its own; results in the order of the data sets."""
    stacked, num_sets = _checked_data(data, seeds, directory)
    if len(plans) != num_sets or not all(isinstance(plan, Plan) for plan in plans):
        raise ValueError(f"plan must be a dpvi.Plan, or a list of one per data set: expected {num_sets}.")
    distinct = [plan for index, plan in enumerate(plans) if plan not in plans[:index]]
    results: dict[int, Result] = {}
    for number, plan in enumerate(distinct):
        members = [index for index in range(num_sets) if plans[index] == plan]
        fitted = fit_many(
            model,
            jax.tree.map(lambda leaf, chosen=np.array(members): leaf[chosen], stacked),
            plan,
            seeds=None if seeds is None else [seeds[index] for index in members],
            directory=None if directory is None else Path(directory) / f"plan-{number}",
            **options,
        )
        results |= dict(zip(members, fitted, strict=True))
    return [results[index] for index in range(num_sets)]


class _Study(NamedTuple):
    """Everything that fits a group of data sets."""

    algorithm: Algorithm
    scores: ScoreModel | None
    run: Run
    num_lanes: int  # of every group
    mesh: Mesh | None
    stacked: Any
    keys: list[jax.Array]
    seeds: Sequence[int] | None
    initial_location: Any
    covariate_law: CovariateLaw | None

    @property
    def programs(self) -> dict[str, Any]:
        """What a file does not hold of a result."""
        return {"family": self.algorithm.family, "model": self.algorithm.model, "scores": self.scores}

    def arguments(self, lanes: Sequence[int]) -> tuple[Any, Streams, State]:
        """Records, streams and first states of some data sets, where they run."""
        by_lane = [streams(self.keys[i]) for i in lanes]
        locations = [start(self.algorithm, self.initial_location, of_lane) for of_lane in by_lane]
        state = jax.vmap(self.algorithm.initial)(jnp.asarray(np.stack(locations)))
        whole = list(lanes) == list(range(len(self.keys)))
        records = self.stacked if whole else jax.tree.map(lambda leaf: leaf[np.array(lanes)], self.stacked)
        return spread_lanes(self.mesh, (records, Streams(*map(_stacked_keys, zip(*by_lane, strict=True))), state))

    def fit(self, members: Sequence[int], bar: tqdm) -> list[Result]:
        """Results of the data sets ``members``; copies of the last one fill up the lanes."""
        lanes, counts = self._filled(members), dict.fromkeys(members)
        if self.algorithm.plan.covariates is not None:
            counts = {i: histograms_of(self.algorithm, [self._records(i)], self.keys[i]) for i in members}
        driver = None
        if self.scores is not None:
            driver = ScoreDriver(self.scores, populations=[self.scores.population(counts[i]) for i in lanes])
        remedy, structure = "give fit_many a smaller group_size", structure_of(self._records(0))
        traces = run_within_memory(remedy, self.run, *self.arguments(lanes), driver=driver, progress=bar)
        return [
            make_result(
                self.algorithm,
                trace._replace(histograms=counts[i]),
                structure,
                None if self.seeds is None else self.seeds[i],
                self.scores,
            )
            for i, trace in zip(members, traces, strict=False)
        ]

    def all_results(self, group_size: int, folder: StudyFolder | None, progress: bool) -> list[Result]:
        """Results of all data sets, group after group; those that ``folder`` keeps are read."""
        plan, num_sets = self.algorithm.plan, len(self.keys)
        groups = [range(begin, min(begin + group_size, num_sets)) for begin in range(0, num_sets, group_size)]
        results: list[Result] = []
        with progress_bar(plan, progress, len(groups)) as bar:
            for number, members in enumerate(groups):
                kept = None if folder is None else folder.group(number, len(members))
                if kept is not None:
                    bar.update(plan.num_steps)
                    results += [Result(**{**each, **self.programs}) for each in kept]
                    continue
                fitted = self.fit(members, bar)
                if folder is not None:
                    folder.keep(number, fitted)
                results += fitted
        return results

    def folder(self, path: Path) -> StudyFolder:
        """Where groups are kept, once what is there is known to be of this study."""
        algorithm, secret = self.algorithm, study_secret(self.keys)
        records, of_lanes, state = self.arguments(self._filled([0]))
        settings = {
            "plan": algorithm.plan.to_dict(),
            "number of data sets": len(self.keys),
            "group_size": self.num_lanes,
            "devices": 1 if self.mesh is None else self.mesh.size,
            "precision": jnp.zeros(()).dtype.name,
            "version of jax": jax.__version__,
        }
        law = [] if self.covariate_law is None else jax.tree.leaves(self.covariate_law(jax.random.key(0), 16))
        contents = {
            "seeds": [],
            "data": jax.tree.leaves(self.stacked),
            "initial_location": [state.xi],
            "covariate_law": law,
            "model, estimator, family or optimizer": [self.run.program(records, of_lanes, state)],
        }
        return StudyFolder(path, settings, {name: fingerprint(secret, name, part) for name, part in contents.items()})

    def _records(self, number: int) -> Any:
        return jax.tree.map(lambda leaf: leaf[number], self.stacked)

    def _filled(self, members: Sequence[int]) -> list[int]:
        return [*members, *[members[-1]] * (self.num_lanes - len(members))]


def _stacked_keys(keys: Sequence[jax.Array]) -> jax.Array:
    """One array of keys, put together on the host: a program with a thousand arguments takes seconds to compile."""
    words = np.stack([np.asarray(jax.random.key_data(key)) for key in keys])
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(keys[0]))


def _checked_data(data: Any, seeds: Sequence[int] | None, directory: str | Path | None) -> tuple[Any, int]:
    if several():
        raise ValueError(
            "fit_many fits independent data sets, which need no connection: start processes without jax.distributed, "
            "each with its own share of the data sets."
        )
    stacked, num_sets = as_records(data)
    if any(leaf.ndim < 2 for leaf in jax.tree.leaves(stacked)):
        raise ValueError("fit_many needs arrays with two leading axes, (data sets, records, …); a leaf has only one.")
    if seeds is not None and (not hasattr(seeds, "__len__") or len(seeds) != num_sets):
        raise ValueError(f"seeds must hold one number per data set: expected {num_sets}.")
    if seeds is None and directory is not None:
        raise ValueError(
            "A study that can be taken up again needs seeds: without them its keys would have to be stored, and "
            "whoever reads them can remove the noise. Pass seeds=, one number per data set, or leave out directory=."
        )
    return stacked, num_sets


def _checked_size(group_size: Any, num_sets: int, kept: bool) -> int:
    if group_size is None:
        return min(num_sets, _KEPT_GROUP) if kept else num_sets
    if isinstance(group_size, bool) or not isinstance(group_size, (int, np.integer)):
        raise TypeError(f"group_size must be a whole number or None, got {group_size!r}.")
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, got {group_size!r}.")
    return min(int(group_size), num_sets)
