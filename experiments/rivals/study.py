"""The runs: one cell for some data sets of a setting and a method."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.common.missing_cells import run_missing, timed
from experiments.rivals.augmentation import release, sample_posterior
from experiments.rivals.moments import adassp, noisy_moments
from experiments.rivals.newton import noisy_newton
from experiments.rivals.others import binagg_charge, has_diffprivlib, load_binagg, run_binagg, run_diffprivlib
from experiments.rivals.problems import PROBLEMS, QUANTILE, DataSet, Interval, Problem, data_set, nonprivate
from experiments.rivals.settings import OURS, REFERENCE, SETTINGS, Setting, Settings

_AT_ONCE = 100  # chains of data augmentation
_DIGITS = 5


class Cell(NamedTuple):
    """Which runs: data sets ``first`` to ``last`` - 1."""

    setting: str
    method: str
    first: int
    last: int


@dataclass(frozen=True)
class Options:
    """What a call may choose without making it another study."""

    num_ours: int = 40
    plan: str = "default"
    who: str = "all"  # or "rivals", "ours"
    binagg: Path | None = None
    diffprivlib: Path | None = None


def own_name(plan: str) -> str:
    return OURS if plan == "default" else f"{OURS}, {plan} plan"


def cells_of(settings: Settings, options: Options) -> list[Cell]:
    """Fast methods first, ours last."""
    rivals, ours = [], []
    for name in settings.settings:
        if options.who != "ours":
            for method in (REFERENCE, *SETTINGS[name].methods):
                size = _AT_ONCE if method == "data augmentation" else settings.part
                rivals += [Cell(name, method, *ends) for ends in _parts(settings.num_data_sets, size)]
        if options.who != "rivals":
            method = own_name(options.plan)
            ours += [Cell(name, method, *ends) for ends in _parts(options.num_ours, settings.own_part)]
    return rivals + ours


def _parts(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Whole parts only, so that a call for more goes on with those of one for fewer.

    Examples
    --------
    >>> list(_parts(5, 2))
    [(0, 2), (2, 4), (4, 6)]
    """
    return ((first, first + size) for first in range(0, count, size))


def run_study(
    settings: Settings, content: dict[str, Any], keep: Callable[[dict[str, Any]], None], options: Options
) -> None:
    """Run what is missing in ``content`` and hand it to ``keep`` after each cell."""
    binagg = load_binagg(options.binagg)
    diffprivlib = options.diffprivlib if has_diffprivlib(options.diffprivlib) else None
    cells = cells_of(settings, options)
    missing = {"BinAgg": binagg is None, "diffprivlib": diffprivlib is None}
    runnable = [cell for cell in cells if not missing.get(cell.method.split(",")[0], False)]

    def row_of(cell: Cell) -> dict[str, Any]:
        setting = SETTINGS[cell.setting]
        problem = PROBLEMS[setting.problem]
        data = [data_set(setting.problem, seed, settings.num_records) for seed in range(cell.first, cell.last)]
        if cell.method == "diffprivlib":
            found, seconds = run_diffprivlib(diffprivlib, problem, data, setting.epsilon, cell.first)
        elif cell.method == "data augmentation":
            found, seconds = _augmented(cell, problem, data, setting, settings)
        elif cell.method == own_name(options.plan):
            found, seconds = _ours(cell, problem, data, setting, options)
        else:
            one = _method(cell.method, problem, setting, settings, binagg)
            runs = [timed(one, each, cell.first + number) for number, each in enumerate(data)]
            found, seconds = [run[0] for run in runs], [run[1] for run in runs]
        references = [nonprivate(problem, each) for each in data]
        return judged(problem, data, references, found) | {"seconds": _short(seconds)}

    run_missing(runnable, content, keep, row_of)


def judged(
    problem: Problem, data: Sequence[DataSet], references: Sequence[Interval], found: Sequence[Interval]
) -> dict[str, Any]:
    """Of each data set: shares of coefficients inside, mean widths and mean squared errors; and the shares by one."""
    at = list(problem.judged)
    truth = np.stack([each.truth[at] for each in data])
    answer = np.stack([each.estimate[at] for each in references])
    estimate, lower, upper = (np.stack([each[part][at] for each in found]) for part in range(3))
    row: dict[str, Any] = {
        "squared_error": _short(np.mean((estimate - truth) ** 2, axis=1)),
        "squared_distance": _short(np.mean((estimate - answer) ** 2, axis=1)),
    }
    if np.isnan(lower).all():
        return row
    for name, target in (("truth", truth), ("answer", answer)):
        inside = (lower <= target) & (target <= upper)
        row |= {f"{name}_inside": _short(inside.mean(axis=1)), f"{name}_by_coefficient": _short(inside.mean(axis=0))}
    row["width"] = _short(np.mean(upper - lower, axis=1))
    if all(each.privacy_scale is not None for each in found):
        half = QUANTILE * np.stack([each.privacy_scale[at] for each in found])
        row["answer_inside_privacy"] = _short((np.abs(estimate - answer) <= half).mean(axis=1))
    return row


def _method(
    name: str, problem: Problem, setting: Setting, settings: Settings, binagg: Any
) -> Callable[[DataSet, int], Interval]:
    """(data set, seed) to what the method says."""
    signal, bound = setting.signal, problem.response_bound

    def scaled(method: Callable[..., Interval], *arguments: Any) -> Callable[[DataSet, int], Interval]:
        return lambda data, seed: problem.raw(method(problem.scaled(data), *arguments, rng=_generator(name, seed)))

    if name == REFERENCE:
        return lambda data, seed: nonprivate(problem, data)
    if name.startswith("noisy Newton"):
        num_steps = int(re.findall(r"\d+", name)[0])  # raw columns: weights bound them
        return lambda data, seed: noisy_newton(data, signal, num_steps, _generator(name, seed))
    if name == "noisy moments":
        return scaled(noisy_moments, bound, signal)
    if name == "AdaSSP, bootstrap":
        return scaled(adassp, bound, signal, setting.delta, settings.num_bootstraps)
    if name.startswith("BinAgg"):
        asked = signal / binagg_charge(len(problem.bounds)) if name.endswith("charged") else signal
        return lambda data, seed: run_binagg(binagg, problem, data, asked, seed)
    raise ValueError(f"There is no method {name!r}.")


def _ours(
    cell: Cell, problem: Problem, data: Sequence[DataSet], setting: Setting, options: Options
) -> tuple[list[Interval], list[float]]:
    """Programs are compiled once for all data sets: their seconds are a share of what all took."""
    from experiments.rivals.ours import make_plan, model_of, run_many

    plan, seeds = make_plan(problem, setting, options.plan), range(cell.first, cell.last)
    found, seconds = timed(run_many, problem, data, plan, model_of(problem), seeds)
    return found, [seconds / len(data)] * len(data)


def _augmented(
    cell: Cell, problem: Problem, data: Sequence[DataSet], setting: Setting, settings: Settings
) -> tuple[list[Interval], list[float]]:
    """All data sets side by side: their seconds are a share of what all took."""
    rng, bound = _generator(cell.method, cell.first), problem.response_bound
    x, y = np.stack([each.x for each in data]), np.stack([each.y for each in data])
    given = release(x, y, bound, setting.signal, rng)
    posterior, seconds = timed(
        lambda: sample_posterior(
            given,
            y.shape[1],
            bound,
            setting.signal,
            problem.prior_scale,
            problem.variance_prior,
            settings.num_sweeps,
            rng,
        )
    )
    return posterior.intervals(), [seconds / len(data)] * len(data)


def _generator(method: str, seed: int) -> np.random.Generator:
    """Another stream for each method: noise of one tells nothing of the noise of another."""
    return np.random.default_rng([seed, *method.encode()])


def _short(values: Any) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in np.asarray(values, np.float64)]
