"""Results as files: ``results.json`` with everything, ``table.md`` to read, a coverage plot for each case."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.evaluate import PerfectRmse
from dpvi.reporting import plot_coverage
from experiments.coverage.case import DELTA, NUM_GRADIENT_DRAWS, SAMPLING_RATE, Case, PaperNumber
from experiments.coverage.judge import Row, row_from_dict
from experiments.coverage.methods import METHODS
from experiments.coverage.runs import Study
from experiments.coverage.study import CaseOutcome

_SHARED = ("num_records", "num_steps", "num_draws", "num_repeats", "seed", "num_data_sets")  # what a study is
_PACKAGES = ("dpvi", "jax", "numpyro", "numpy", "scipy", "optax")
_LEGEND = (
    "Coverage RMSE: TARP in the unconstrained space, mean ± sd over redraws of the reference points, which are drawn "
    "within ±4 posterior sd of the mean iterate (of the posterior's own mean where there are no iterates). One-sided: "
    "all reference points at mean + 4 sd, where biases cannot cancel; mean rank: of the truths under those points, ½ "
    "if right. Marginal: single parameters, mean over them. What a perfect posterior shows is below each table; "
    "differences smaller than that are noise. Log score (higher is better), CRPS and width are means over data sets "
    "and unconstrained parameters."
)


def with_earlier(
    outcomes: Sequence[CaseOutcome], cases: Sequence[Case], study: Study, folder: Path
) -> list[CaseOutcome]:
    """``outcomes`` together with the rows that ``folder`` holds of earlier calls of the same study.

    So a table can be made method by method, on several machines; rows made again replace the old ones.
    """
    path = folder / "results.json"
    if not path.exists():
        return list(outcomes)
    content = json.loads(path.read_text(encoding="utf-8"))
    different = [name for name in _SHARED if content["settings"].get(name) != getattr(study, name)]
    if different:
        raise ValueError(
            f"{path} holds another study ({', '.join(different)} differ); choose another --output or remove it."
        )
    now = {outcome.case.name: outcome for outcome in outcomes}
    joined = []
    for case in cases:
        stored = content["cases"].get(case.name, {"methods": {}, "seconds": {}})
        fresh = now.get(case.name, CaseOutcome(case, {}, {}))
        old = {name: None if row is None else row_from_dict(row) for name, row in stored["methods"].items()}
        rows, seconds = {**old, **fresh.rows}, {**stored["seconds"], **fresh.seconds}
        if rows:
            joined.append(CaseOutcome(case, {name: rows[name] for name in METHODS if name in rows}, seconds))
    return joined


def earlier_commands(folder: Path) -> list[str]:
    """The calls that made what ``folder`` holds."""
    path = folder / "results.json"
    return json.loads(path.read_text(encoding="utf-8"))["commands"] if path.exists() else []


def write_results(outcomes: Sequence[CaseOutcome], study: Study, title: str, command: str, folder: Path) -> None:
    """Write all files; everything is made before the first is written."""
    for outcome in outcomes:
        if not _judged(outcome):
            raise ValueError(f"Every method failed on {outcome.case.title}, so there is nothing to write.")
    commands = list(dict.fromkeys([*earlier_commands(folder), command]))
    content = json.dumps(_content(outcomes, study, commands), indent=2, allow_nan=False) + "\n"
    text = markdown(outcomes, study, title, commands)
    figures = {outcome.case.name: _figure(outcome) for outcome in outcomes}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(content, encoding="utf-8")
    (folder / "table.md").write_text(text, encoding="utf-8")
    for name, figure in figures.items():
        figure.savefig(folder / f"coverage_{name}.png", dpi=150)


def markdown(outcomes: Sequence[CaseOutcome], study: Study, title: str, commands: Sequence[str]) -> str:
    """The paper's table with our numbers beside its own, then one table with all figures for each case."""
    made_by = ", ".join(f"`{command}`" for command in commands)
    parts = [f"# {title}", f"Made by {made_by}.", _LEGEND, _overview(outcomes)]
    for outcome in outcomes:
        parts += [f"## {outcome.case.title}", _settings(outcome.case, study), _details(outcome), _perfect(outcome)]
    return "\n\n".join(parts) + "\n"


def _overview(outcomes: Sequence[CaseOutcome]) -> str:
    """Coverage RMSE of all methods and cases, ours and the paper's."""
    header = " | ".join(f"{outcome.case.title} | paper" for outcome in outcomes)
    lines = [f"| coverage RMSE | {header} |", "| --- " * (1 + 2 * len(outcomes)) + "|"]
    for name in (name for name in METHODS if any(name in outcome.rows for outcome in outcomes)):
        cells = " | ".join(f"{_cell(outcome, name)} | {_paper(_number(outcome, name))}" for outcome in outcomes)
        count = max((row.coverage.num_posteriors for o in outcomes if (row := o.rows.get(name)) is not None), default=0)
        lines.append(f"| {METHODS[name].title} (K = {count}) | {cells} |")
    perfect = [_largest(outcome) for outcome in outcomes]
    cells = " | ".join(f"{once.mean:.3f}, 95 % below {mean.upper:.3f} | –" for once, mean in perfect)
    return "\n".join([*lines, f"| perfect posterior | {cells} |"])


def _details(outcome: CaseOutcome) -> str:
    lines = [
        "| method | coverage RMSE | paper | one-sided RMSE | mean rank | marginal RMSE | 95 % coverage | log score "
        "| CRPS | width | posteriors | seconds |",
        "| --- " * 12 + "|",
    ]
    for name, row in outcome.rows.items():
        if row is None:
            first = f"| {METHODS[name].title} | all runs diverged | {_paper(_number(outcome, name))} |"
            lines.append(f"{first}{' – |' * 8} {outcome.seconds[name]:.0f} |")
            continue
        coverage = row.coverage
        marginal = "–" if np.isnan(row.marginal_rmse) else f"{row.marginal_rmse:.3f}"
        notes = [str(coverage.num_posteriors)]
        notes += [f"{coverage.num_dropped} failed"] if coverage.num_dropped else []
        notes += [f"{row.num_drifting} drifting"] if row.num_drifting else []
        cells = [
            coverage.method,
            _rmse(row),
            _paper(row.paper),
            f"{row.one_sided_rmse:.3f}",
            f"{row.mean_rank:.3f}",
            marginal,
            f"{coverage.coverage:.3f}",
            "–" if coverage.log_score is None or np.isnan(coverage.log_score) else f"{coverage.log_score:.3f}",
            f"{row.crps:.4g}",
            f"{coverage.width:.4g}",
            ", ".join(notes),
            f"{outcome.seconds[name]:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    runs = ", ".join(
        f"{name.removeprefix('run ')} {spent:.0f} s" for name, spent in outcome.seconds.items() if "run " in name
    )
    return "\n".join(lines) + (
        f"\n\nSeconds are of the posteriors alone; the runs they read took: {runs}." if runs else ""
    )


def _perfect(outcome: CaseOutcome) -> str:
    lines = []
    for row in {row.perfect.num_posteriors: row for row in _judged(outcome).values()}.values():
        once, repeated = row.perfect, row.perfect_repeated
        error = 1.96 * np.sqrt(0.95 * 0.05 / once.num_posteriors)
        lines.append(
            f"A perfect posterior at K = {once.num_posteriors}: RMSE {once.mean:.4f} ± {once.std:.4f}, 95 % below "
            f"{once.upper:.4f} (one-sided column); mean over {repeated.num_repeats} redraws 95 % below "
            f"{repeated.upper:.4f}; 95 % coverage 0.950 ± {error:.3f} for one parameter."
        )
    return "\n\n".join(lines)


def _settings(case: Case, study: Study) -> str:
    published, tight = case.plan(study.num_steps), case.plan(study.num_steps, tight=True)
    return (
        f"N = {study.num_records}, T = {study.num_steps}, κ = {SAMPLING_RATE}, C = {case.problem.clip_norm:.4g}, "
        f"δ = {DELTA:g}. Published noise multiplier {published.noise_multiplier:g}, which spends ε = "
        f"{published.epsilon:.4f}; ε = {case.epsilon:g} needs {tight.noise_multiplier:.4g}."
    )


def _content(outcomes: Sequence[CaseOutcome], study: Study, commands: Sequence[str]) -> dict[str, Any]:
    cases = {}
    for outcome in outcomes:
        case, problem = outcome.case, outcome.case.problem
        plans = {name: case.plan(study.num_steps, tight=name == "tight") for name in ("published", "tight")}
        cases[case.name] = {
            "epsilon_stated": case.epsilon,
            "plans": {name: plan.to_dict() for name, plan in plans.items()},
            "clip_norm": problem.clip_norm,
            "beta": list(problem.beta),
            "lambda_c": list(problem.lambda_c),
            "initial_location": list(problem.initial_location),
            "initial_scale_parameter": problem.initial_scale_parameter,
            "seconds": {name: round(spent, 2) for name, spent in outcome.seconds.items()},
            "methods": {name: None if row is None else row.to_dict() for name, row in outcome.rows.items()},
        }
    return {
        "commands": list(commands),
        "settings": {**study._asdict(), "delta": DELTA, "sampling_rate": SAMPLING_RATE, "draws": NUM_GRADIENT_DRAWS},
        "versions": {name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "machine": {"cores": os.cpu_count(), "architecture": platform.machine(), "system": platform.system()},
        "cases": cases,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


def _figure(outcome: CaseOutcome) -> Any:
    curves = {
        f"{row.coverage.method} (K = {row.coverage.num_posteriors})": row.tarp for row in _judged(outcome).values()
    }
    return plot_coverage(curves, title=outcome.case.title)


def _judged(outcome: CaseOutcome) -> dict[str, Row]:
    """The methods that did not fail everywhere."""
    return {name: row for name, row in outcome.rows.items() if row is not None}


def _number(outcome: CaseOutcome, name: str) -> PaperNumber | None:
    return outcome.case.paper.get(METHODS[name].paper or "")


def _largest(outcome: CaseOutcome) -> tuple[PerfectRmse, PerfectRmse]:
    row = max(_judged(outcome).values(), key=lambda row: row.perfect.num_posteriors)
    return row.perfect, row.perfect_repeated


def _cell(outcome: CaseOutcome, name: str) -> str:
    return _rmse(outcome.rows[name]) if name in outcome.rows else "–"


def _rmse(row: Row | None) -> str:
    return "diverged" if row is None else f"{row.coverage.rmse.mean:.3f} ± {row.coverage.rmse.std:.3f}"


def _paper(number: PaperNumber | None) -> str:
    return "–" if number is None else f"{number.mean:.3f} ± {number.std:.3f}"
