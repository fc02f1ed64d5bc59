"""The study itself: every run once, every method on it, and scores kept as soon as a run is done."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.adult_calibration.methods import METHODS, RUNS
from experiments.adult_calibration.plans import Plans
from experiments.adult_calibration.problem import Problem
from experiments.adult_calibration.scores import Scores, noise_floor, score
from experiments.adult_calibration.settings import Settings
from experiments.common.missing_cells import timed

_FLOOR_DRAWS = 200
NO_PRIVACY = math.inf


@dataclass
class Results:
    """Scores of every (method, ε), one per repeat; the seconds of each; and what chance does to the RMSE."""

    settings: dict[str, Any]
    cells: dict[tuple[str, float], list[Scores]]
    seconds: dict[str, list[float]]
    floor: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is ``None``, and no privacy is ``"inf"``."""
        cells = [
            {"method": method, "epsilon": _plain(epsilon), "repeats": [_finite(s._asdict()) for s in repeats]}
            for (method, epsilon), repeats in self.cells.items()
        ]
        return {"settings": self.settings, "noise_floor": self.floor, "seconds": self.seconds, "cells": cells}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Results:
        cells = {
            (cell["method"], float(cell["epsilon"])): [_scores(repeat) for repeat in cell["repeats"]]
            for cell in content["cells"]
        }
        return cls(content["settings"], cells, content["seconds"], content["noise_floor"])

    def save(self, path: Path) -> None:
        """Write JSON in one move, so that an interrupted study keeps what it had."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)


def open_results(path: Path, settings: Settings) -> Results:
    """The results of an earlier call with the same settings, to go on with, or empty ones."""
    fresh = Results(settings.to_dict(), {}, {}, {})
    if not path.exists():
        return fresh
    found = Results.from_dict(json.loads(path.read_text(encoding="utf-8")))
    if found.settings != fresh.settings:
        different = [name for name in fresh.settings if found.settings.get(name) != fresh.settings[name]]
        raise ValueError(
            f"{path} holds results for other settings ({', '.join(different)}); choose another --output or remove it."
        )
    return found


def run_study(
    settings: Settings,
    problem: Problem,
    plans: Plans,
    methods: Sequence[str],
    epsilons: Sequence[float],
    num_repeats: int,
    results: Results,
    *,
    lanes: int = 1,
    keep: Callable[[Results], None] = lambda results: None,
) -> Results:
    """Fill in every cell of ``methods`` × ``epsilons`` that has fewer than ``num_repeats`` repeats.

    Repeats are taken ``lanes`` at a time, and only scores stay in memory. ``keep`` is called after each such group.
    """
    if not results.floor:
        answer = METHODS["nonprivate"].answer(settings, problem.nonprivate, _key(settings.first_seed, "nonprivate"))
        results.floor = noise_floor(problem, answer, _FLOOR_DRAWS)._asdict()
    for name in dict.fromkeys(METHODS[method].run for method in methods):
        readers = [method for method in methods if METHODS[method].run == name]
        private = RUNS[name].plan is not None
        for epsilon in epsilons if private else (NO_PRIVACY,):
            plan = plans[name][epsilon] if private else None
            total = num_repeats if private else 1
            for repeats in _missing(results, readers, epsilon, total, lanes):
                _run_group(settings, problem, name, plan, readers, epsilon, repeats, results)
                keep(results)
    return results


def _run_group(
    settings: Settings,
    problem: Problem,
    run: str,
    plan: Any,
    readers: Sequence[str],
    epsilon: float,
    repeats: Sequence[int],
    results: Results,
) -> None:
    """Fit once per repeat, then score every reader that lacks it."""
    seeds = [settings.first_seed + repeat for repeat in repeats]
    fitted, took = timed(RUNS[run].fit, settings, problem, plan, seeds)
    results.seconds.setdefault(f"run {run}", []).extend([took / len(seeds)] * len(seeds))
    for method in readers:
        cell = results.cells.setdefault((method, epsilon), [])
        for repeat, result in zip(repeats, fitted, strict=True):
            if len(cell) != repeat:
                continue  # scored by an earlier call
            key = _key(settings.first_seed + repeat, method)
            answer, took = timed(METHODS[method].answer, settings, result, key)
            results.seconds.setdefault(method, []).append(took)
            cell.append(score(problem, answer))


def _missing(
    results: Results, readers: Sequence[str], epsilon: float, total: int, lanes: int
) -> Iterable[Sequence[int]]:
    """The repeats that some reader lacks, ``lanes`` at a time."""
    have = min(len(results.cells.get((method, epsilon), [])) for method in readers)
    return [range(first, min(first + lanes, total)) for first in range(have, total, lanes)]


def _key(seed: int, method: str) -> jax.Array:
    """Randomness of the draws of one answer, the same for every ε; unrelated to that of the mechanism."""
    return jax.random.fold_in(jax.random.key(seed), sum(method.encode()))


def _plain(epsilon: float) -> float | str:
    return "inf" if math.isinf(epsilon) else epsilon


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(v, float) and not np.isfinite(v) else v for name, v in values.items()}


def _scores(values: dict[str, Any]) -> Scores:
    read: dict[str, Any] = {name: math.nan if value is None else value for name, value in values.items()}
    for name, value in read.items():
        read[name] = tuple(value) if isinstance(value, list) else value
    return Scores(**read)
