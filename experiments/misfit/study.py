"""The study itself: every cell of problems × ε × methods, a group of seeds after the other, each run kept at once.

Runs of a cell are lines of a file below ``runs/``; a study that was killed goes on behind the last line. Rows of
``results.json`` are made from these files, so that several processes can share a folder as long as no two of them run
the same problem.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpvi.privacy.gaussian import gaussian_signal
from experiments.common import sized_command as shared
from experiments.misfit.methods import METHODS
from experiments.misfit.problems import Problem, kinds, make_problem
from experiments.misfit.reference import Oracle, Reference, mean_shift, oracles, reference
from experiments.misfit.scores import facts_of, row_of, run_of
from experiments.misfit.settings import GROUP, Settings

Content = dict[str, Any]


class Cell(NamedTuple):
    """One row."""

    problem: str
    epsilon: float
    method: str


class Prepared(NamedTuple):
    """A data set and what it is held against, for all ε."""

    problem: Problem
    found: Reference
    oracles: dict[float, Oracle]
    shift: np.ndarray  # from mode to mean


def run_study(
    settings: Settings,
    problems: Sequence[str],
    epsilons: Sequence[float],
    methods: Sequence[str],
    num_seeds: int,
    folder: Path,
    say: Callable[[str], None] = print,
) -> None:
    """Run what is missing below ``folder``; tables that are not on this machine are skipped, with a reason.

    Groups of seeds are the outer loop within a problem, so that a data set is drawn and solved once for all methods and
    ε, and a study that was killed has about as many runs of every cell.
    """
    last = settings.first_seed + num_seeds
    for name in problems:
        wanted = [Cell(name, epsilon, method) for epsilon in epsilons for method in methods]
        try:
            for begin in range(settings.first_seed, last, GROUP):
                group = range(begin, min(begin + GROUP, last))
                for cell in wanted:
                    _run_cell(settings, cell, tuple(epsilons), group, folder)
        except FileNotFoundError as error:
            say(f"{name} is skipped: {error}")
            continue
        for cell in wanted:
            say(f"{name}, ε = {cell.epsilon:g}, {cell.method}: {len(_seeds(folder, cell))} runs")
        _write(collect(settings, folder), folder)


def _run_cell(settings: Settings, cell: Cell, epsilons: tuple[float, ...], group: Sequence[int], folder: Path) -> None:
    """The runs of one cell with those seeds of a group that it does not have yet."""
    done = _seeds(folder, cell)
    seeds = [seed for seed in group if seed not in done]
    if not seeds:
        return
    # a table is the same for every seed, and so is its answer
    table = kinds()[cell.problem].table
    data_seeds = [settings.first_seed if table else seed for seed in seeds]
    prepared = [_prepared(cell.problem, seed, settings.num_records, epsilons) for seed in data_seeds]
    path = _path(folder, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    outcomes = METHODS[cell.method](settings, [each.problem for each in prepared], cell.epsilon, seeds)
    for each, seed, outcome in zip(prepared, seeds, outcomes, strict=True):
        problem = each.problem
        run = run_of(problem, each.found, each.oracles[cell.epsilon], each.shift, seed, outcome)
        facts = facts_of(problem, cell.epsilon, gaussian_signal(cell.epsilon, problem.delta))
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"cell": cell, "facts": facts, "run": run}, allow_nan=False) + "\n")


@lru_cache(maxsize=GROUP)
def _prepared(name: str, seed: int, num_records: int | None, epsilons: tuple[float, ...]) -> Prepared:
    problem = make_problem(name, seed, num_records)
    found = reference(problem)
    return Prepared(problem, found, oracles(problem, found, epsilons), mean_shift(problem, found))


def collect(settings: Settings, folder: Path) -> Content:
    """``results.json`` as it was, with the rows of all runs below ``folder`` in place of older ones."""
    content = open_results(settings, folder)
    rows = {Cell(*(row[name] for name in Cell._fields)): row for row in content["cells"]}
    for path in sorted((folder / "runs").glob("*/*.jsonl")):
        lines = _lines(path)
        if lines:
            cell = Cell(*lines[0]["cell"])
            runs = list({line["run"]["seed"]: line["run"] for line in lines}.values())
            if cell not in rows or rows[cell]["runs"] <= len(runs):
                rows[cell] = cell._asdict() | row_of(lines[0]["facts"], runs)
    order = {name: at for at, name in enumerate(kinds())}
    methods = {name: at for at, name in enumerate(METHODS)}
    key = lambda cell: (order.get(cell.problem, 99), cell.epsilon, methods.get(cell.method, 99))  # noqa: E731
    return content | {"cells": [rows[cell] for cell in sorted(rows, key=key)]}


def open_results(settings: Settings, folder: Path) -> Content:
    """The committed rows, or none; refused where they were made with other settings."""
    size = "quick" if settings.num_records else "full"
    return shared.open_results(folder / "results.json", "experiments.misfit", settings, size, {})


def _write(content: Content, folder: Path) -> None:
    """In one move: other processes may read the file."""
    partial = folder / f".partial-{os.getpid()}"
    shared.write_json(content, partial)
    (partial / "results.json").replace(folder / "results.json")
    partial.rmdir()


def _path(folder: Path, cell: Cell) -> Path:
    return folder / "runs" / cell.method / f"{cell.problem}_{cell.epsilon:g}.jsonl"


def _lines(path: Path) -> list[dict[str, Any]]:
    """The runs of a file; a last line that was cut short is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def _seeds(folder: Path, cell: Cell) -> set[int]:
    return {line["run"]["seed"] for line in _lines(_path(folder, cell))}
