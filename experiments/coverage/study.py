"""Running a study: groups of data sets one after the other or on several processes, keeping posteriors only.

Results hold traces of ten thousand steps; they live as long as the methods that read them need and are dropped with
their group.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from dpvi.declared.validation import ConvergenceWarning
from experiments.coverage.case import Case
from experiments.coverage.judge import Row, judge
from experiments.coverage.methods import METHODS, Posteriors
from experiments.coverage.runs import RUNS, Study, simulate_group


class Task(NamedTuple):
    """A group of data sets for some methods."""

    case: Case
    study: Study
    methods: tuple[str, ...]
    indices: tuple[int, ...]


class GroupOutcome(NamedTuple):
    """Posteriors of a group and the seconds each method and run took."""

    truths: np.ndarray
    posteriors: dict[str, Posteriors]
    seconds: dict[str, float]


class CaseOutcome(NamedTuple):
    """The rows of a case and where its time went; runs are shared by the methods that read them.

    A method that failed on every data set has ``None`` for a row.
    """

    case: Case
    rows: dict[str, Row | None]
    seconds: dict[str, float]


def run_case(case: Case, study: Study, methods: Sequence[str], workers: int = 1) -> CaseOutcome:
    """Every method on every data set of a case, then the rows of the table."""
    methods = [name for name in methods if METHODS[name].applies(case.problem)]
    tasks = list(tasks_of(case, study, methods))
    outcomes: list[GroupOutcome] = []
    for number, outcome in enumerate(_mapped(tasks, workers), start=1):
        outcomes.append(outcome)
        total = sum(outcome.seconds.values())
        print(f"{case.title}: group {number} of {len(tasks)}, {total:.0f} s of work", file=sys.stderr, flush=True)
    seconds: dict[str, float] = defaultdict(float)
    for outcome in outcomes:
        for name, spent in outcome.seconds.items():
            seconds[name] += spent
    rows: dict[str, Row | None] = {}
    for name in methods:
        parts = [(outcome.truths, outcome.posteriors[name]) for outcome in outcomes if name in outcome.posteriors]
        posteriors = Posteriors.join([part for _, part in parts])
        truths = np.concatenate([truth[: len(part.draws)] for truth, part in parts])
        paper = case.paper.get(METHODS[name].paper or "")
        finite = np.all(np.isfinite(posteriors.draws), axis=(1, 2))
        rows[name] = judge(METHODS[name], posteriors, truths, paper, study) if finite.any() else None
    return CaseOutcome(case, rows, dict(seconds))


def tasks_of(case: Case, study: Study, methods: Sequence[str]) -> Iterator[Task]:
    """Groups of data sets, with the methods that want them.

    A slow method takes its data sets from the first groups; a group that it needs in part is run as a whole.
    """
    size = study.group_size or case.problem.group_size
    for start in range(0, study.num_data_sets, size):
        indices = tuple(range(start, min(start + size, study.num_data_sets)))
        wanted = tuple(name for name in methods if start < METHODS[name].num_data_sets(study))
        if wanted:
            yield Task(case, study, wanted, indices)


def run_group(task: Task) -> GroupOutcome:
    """Simulate, run what the methods read, compute their posteriors."""
    case, study, names, indices = task
    group = simulate_group(case, study, indices)
    posteriors, seconds = {}, {}
    for run in dict.fromkeys(METHODS[name].run for name in names):
        results = []
        if run is not None:
            start = time.perf_counter()
            with warnings.catch_warnings():  # runs that diverged are counted in the table
                warnings.filterwarnings("ignore", "The run diverged", ConvergenceWarning)
                results = RUNS[run](group)
            seconds[f"run {run}"] = time.perf_counter() - start
        for name in (name for name in names if METHODS[name].run == run):
            count = sum(index < METHODS[name].num_data_sets(study) for index in indices)
            start = time.perf_counter()
            posteriors[name] = METHODS[name].posteriors(group.first(count), results[:count])
            seconds[name] = time.perf_counter() - start
    return GroupOutcome(group.truths, posteriors, seconds)


def _mapped(tasks: Sequence[Task], workers: int) -> Iterable[GroupOutcome]:
    """Outcomes in the order of the tasks. A run keeps one core busy, so a process for each core is a speed-up."""
    if workers == 1 or len(tasks) == 1:
        yield from map(run_group, tasks)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run_group, tasks)
