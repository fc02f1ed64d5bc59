"""Previewed widths beside those of private fits: one cell per table and ε, each the mean of several runs."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

import dpvi
from dpvi.table import Leveled
from experiments.preview.cases import CASES, Case, Table

EPSILONS = (0.3, 1.0, 3.0)
QUANTILES = 21
LAWS = ("declarations", "marginals", "marginals and effects")


def known(case: Case, table: Table, effects: dict[str, float] | None) -> dict[str, Any]:
    """What someone who knows such tables well would declare: marginals, correlations and, if given, effects.

    They are computed from the table itself, so this is the best that declaring can do.
    """
    marginals, scores = {}, {}
    for name, values in table.items():
        column = case.schema[name]
        if isinstance(column, Leveled):
            marginals[name] = {level: float(np.mean(values == level)) for level in column.levels}
            codes = np.array([column.levels.index(value) for value in values.tolist()], float)
        elif column.kind == "boolean":
            marginals[name] = float(np.mean(np.asarray(values, float)))
            codes = np.asarray(values, float)
        else:
            codes = np.asarray(values, float)
            marginals[name] = np.quantile(codes, np.linspace(0, 1, QUANTILES)).tolist()
        scores[name] = scipy.stats.norm.ppf((scipy.stats.rankdata(codes) - 0.5) / len(codes))
    response = case.formula.split("~")[0].strip()
    names = [name for name in table if name != response]
    correlation = {
        (left, right): float(np.corrcoef(scores[left], scores[right])[0, 1])
        for place, left in enumerate(names)
        for right in names[:place]
    }
    return {"marginals": marginals, "correlation": correlation, "effects": effects}


def assumed(law: str, case: Case, table: Table, estimates: dict[str, float]) -> dict[str, Any]:
    """What a preview is told under each law."""
    if law == LAWS[0]:
        return {}
    return known(case, table, estimates if law == LAWS[2] else None)


def run_study(path: Path, names: tuple[str, ...], epsilons: tuple[float, ...], repeats: int) -> None:
    """Fill ``path`` cell by cell; those that are there already are kept."""
    found = json.loads(path.read_text()) if path.exists() else {"cells": []}
    done = {(cell["table"], cell["epsilon"]) for cell in found["cells"]}
    for name in names:
        case = CASES[name]
        table = case.load()
        for epsilon in sorted(epsilons, reverse=True):
            if (name, epsilon) in done:
                continue
            found["cells"].append(cell(name, case, table, epsilon, repeats))
            path.write_text(json.dumps(found, indent=1) + "\n")


def cell(name: str, case: Case, table: Table, epsilon: float, repeats: int) -> dict[str, Any]:
    """Widths of ``repeats`` fits of the table, and of as many previews under each law."""
    start = time.perf_counter()
    tables = [_fit(case, table, epsilon, seed).to_dict() for seed in range(repeats)]
    coefficients = list(tables[0])
    widths = np.array([[each[row]["upper"] - each[row]["lower"] for row in coefficients] for each in tables])
    estimates = {row: float(np.mean([each[row]["estimate"] for each in tables])) for row in coefficients}
    previewed = {}
    for law in LAWS:
        seen = dpvi.preview(
            case.formula,
            case.schema,
            family=case.family,
            num_records=len(next(iter(table.values()))),
            epsilon=epsilon,
            delta=case.delta,
            repeats=repeats,
            seed=100,
            **assumed(law, case, table, estimates),
        )
        previewed[law] = {"width": seen.width[0, 0].tolist(), "nonprivate": seen.nonprivate[0].tolist()}
    return {
        "table": name,
        "epsilon": epsilon,
        "repeats": repeats,
        "coefficients": coefficients,
        "fitted": widths.mean(axis=0).tolist(),
        "between_fits": (widths.std(axis=0, ddof=1) / widths.mean(axis=0)).tolist() if repeats > 1 else None,
        "previewed": previewed,
        "seconds": round(time.perf_counter() - start, 1),
    }


def _fit(case: Case, table: Table, epsilon: float, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = dpvi.glm(
            case.formula,
            table,
            case.schema,
            family=case.family,
            epsilon=epsilon,
            delta=case.delta,
            seed=seed,
            progress=False,
        )
        return fitted.summary()
