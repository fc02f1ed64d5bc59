"""The coverage study as Markdown and a figure, from the JSON alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpvi.table import Design
from experiments.common.statistics import standard_error
from experiments.generative_model import cohort
from experiments.generative_model.coverage import LEVEL, METHODS, RECORDS

ALLOWED = (0.90, 0.99)  # where coverage at 95 % counts as held
TITLES = {
    RECORDS: "the records themselves, no privacy",
    "score": "noise-aware: score posterior of the regression, stationary noise of the mixture",
    "stationary": "stationary noise of both",
    "last": "last iterates, not noise-aware",
}
_LEGEND = (
    "Every cohort is simulated anew from one known law; one budget pays for a run on the mixture and one on the "
    "regression (`dpvi.plan_together`), synthetic data sets are drawn from the joint posterior, a Poisson regression "
    "is fitted to each and pooled by T = (1 + 1/M) B − U. *Coverage*: share of the true coefficients inside their "
    f"{100 * LEVEL:.0f} % intervals, ± its standard error over cohorts; a cohort without an answer covers nothing. "
    "*Error*: root mean square of estimate minus truth; *bias*: of its mean over cohorts; *spread*: its standard "
    "deviation over cohorts. *Fell back*: coefficients whose T was not positive."
)


class Outcome(NamedTuple):
    """Estimates minus truth and half widths, (cohorts, coefficients); infinite errors where there is no answer."""

    error: np.ndarray
    half_width: np.ndarray
    num_failed: int
    fell_back: float

    @property
    def covered(self) -> np.ndarray:
        return np.abs(self.error) <= self.half_width


def outcome(rows: list[dict[str, Any]], method: str) -> Outcome:
    """One method over all cohorts."""
    truth = cohort.true_coefficients()
    errors, widths = np.full((2, len(rows), len(truth)), np.inf)
    widths[:] = 0.0
    for index, row in enumerate(rows):
        if "estimate" in row[method]:
            errors[index] = np.asarray(row[method]["estimate"]) - truth
            widths[index] = row[method]["half_width"]
    answered = [row[method] for row in rows if "estimate" in row[method]]
    fell_back = float(np.mean([each.get("fell_back", 0) / len(truth) for each in answered])) if answered else 0.0
    return Outcome(errors, widths, len(rows) - len(answered), fell_back)


def coverage_section(content: dict[str, Any]) -> list[str]:
    """Markdown, empty where the study was not run."""
    stored = content.get("coverage")
    if not stored or len(stored["cohorts"]) < 2:
        return []
    rows = stored["cohorts"]
    found = {method: outcome(rows, method) for method in (RECORDS, *METHODS)}
    lines = ["## Coverage of intervals from synthetic data", "", _LEGEND, "", _settings(stored), ""]
    lines += [
        "| posterior | coverage | half width | error | bias | spread | fell back | no answer |",
        "| --- " * 8 + "|",
    ]
    lines += [f"| {TITLES[method]} | {' | '.join(_cells(each))} |" for method, each in found.items()]
    lines += ["", _verdict(found), "", "| coefficient | truth | " + " | ".join(found) + " | half width, score |"]
    lines += ["| --- " * (len(found) + 3) + "|"]
    names = ("intercept", *Design(cohort.SCHEMA, tuple(cohort.FEATURES)).names)
    for index, (name, truth) in enumerate(zip(names, cohort.true_coefficients(), strict=True)):
        shares = [f"{100 * each.covered[:, index].mean():.0f} %" for each in found.values()]
        width = _answered(found["score"].half_width)[:, index].mean()
        lines.append(f"| {name} | {truth:.2f} | {' | '.join(shares)} | {width:.2f} |")
    error = 100 * np.sqrt(LEVEL * (1 - LEVEL) / len(rows))
    seconds = sum(row["seconds"] for row in rows)
    return [
        *lines,
        "",
        f"One coefficient's share has a standard error of {error:.1f} points at {100 * LEVEL:.0f} %. "
        f"{len(rows)} cohorts took {seconds:.0f} s, compiling included, on whatever machines they were run.",
        "",
    ]


def coverage_figure(content: dict[str, Any], path: Path) -> None:
    """Coverage of every coefficient, one row of points for each posterior."""
    from dpvi.reporting.plots import new_figure

    stored = content.get("coverage")
    if not stored or len(stored["cohorts"]) < 2:
        return
    figure, panels = new_figure(size=(8.0, 3.6))
    axes = panels[0, 0]
    axes.axhspan(*ALLOWED, color="0.92", label="90 % to 99 %")
    axes.axhline(LEVEL, color="0.5", linewidth=0.8)
    for method in (RECORDS, *METHODS):
        shares = outcome(stored["cohorts"], method).covered.mean(axis=0)
        axes.plot(np.arange(len(shares)), shares, "o-", markersize=3, linewidth=0.8, label=method)
    axes.set_xlabel("coefficient, intercept first")
    axes.set_ylabel(f"coverage of {100 * LEVEL:.0f} % intervals")
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)


def _cells(each: Outcome) -> list[str]:
    shares = each.covered.mean(axis=1)
    answered = np.isfinite(each.error).all(axis=1)
    errors = each.error[answered] if answered.any() else np.full((1, each.error.shape[1]), np.nan)
    return [
        f"{100 * shares.mean():.1f} ± {100 * standard_error(shares.tolist()):.1f} %",
        f"{_answered(each.half_width).mean():.3f}",
        f"{np.sqrt(np.mean(errors**2)):.3f}",
        f"{np.sqrt(np.mean(errors.mean(axis=0) ** 2)):.3f}",
        f"{errors.std(axis=0).mean():.3f}",
        f"{100 * each.fell_back:.0f} %",
        f"{each.num_failed} of {len(shares)}",
    ]


def _answered(half_width: np.ndarray) -> np.ndarray:
    """Rows of the cohorts that have an answer; all of them where none has."""
    answered = (half_width > 0).any(axis=1)
    return half_width[answered] if answered.any() else half_width


def _verdict(found: dict[str, Outcome]) -> str:
    share, last = (found[method].covered.mean() for method in ("score", "last"))
    held = ALLOWED[0] <= share <= ALLOWED[1]
    return (
        f"Asked for: noise-aware intervals cover between 90 and 99 %: {'reached' if held else 'NOT reached'} "
        f"({100 * share:.1f} %). The last iterates do not cover: {'seen' if last < ALLOWED[0] else 'NOT seen'} "
        f"({100 * last:.1f} %)."
    )


def _settings(stored: dict[str, Any]) -> str:
    s = stored["settings"]
    return (
        f"{len(stored['cohorts'])} of {s['num_cohorts']} cohorts of {s['num_records']:,}, K = {s['num_components']}, "
        f"ε = {s['epsilon']:g} for both runs together at δ = 1/N, {100 * s['mixture_share']:.0f} % of it for the "
        f"mixture; κ = {s['sampling_rate']:g}, {s['mixture_steps']:,} and {s['regression_steps']:,} steps, C = "
        f"{s['mixture_clip_norm']:g} and {s['regression_clip_norm']:g}; M = {s['num_datasets']} data sets of "
        f"{s['dataset_records']:,} records."
    )
