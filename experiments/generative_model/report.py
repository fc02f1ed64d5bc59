"""The study as Markdown, from the JSON alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.common.statistics import standard_error
from experiments.generative_model.along import along
from experiments.generative_model.coverage_report import coverage_section
from experiments.generative_model.downstream import METHODS
from experiments.generative_model.findings import coverage, downstream_groups, findings
from experiments.generative_model.near_starts import near_starts
from experiments.generative_model.settings import VARIANTS

_LEGEND = (
    "MPAE of the regression weights and the intercept: what is left of the way from each run's start to the optimum "
    "without privacy (exact, by Newton's method; the paper averages stochastic fits), mean ± standard error over runs. "
    "*Averaged*: the mean of each unconstrained parameter over its converged tail. *Settled*: share of the "
    "regression's parameters with such a tail."
)
_DOWNSTREAM_LEGEND = (
    "Each repeat is a cohort of its own. *Distance*: l2, pooled coefficients to those on the cohort itself, the "
    "paper's error. *Coverage*: of the coefficients that simulated the cohorts, by pooled 95 % intervals; the first "
    "row has the intervals of an analyst who holds the records. *Intercept*: its coverage alone. *Fell back*: share of "
    "coefficients whose combining rule gave no positive variance."
)
_FACTORISES = (
    "Equations 24 and 25 share no parameter. The regression is log-concave in its weights, so a noise-aware posterior "
    'of that block can be had from measured scores (`method="score"`, for a regression fitted by itself under a plan '
    "that measures: `TableModel.blocks`, part `coverage`). The mixture is multimodal and its Hessian indefinite at "
    'most iterates: what can be said of it is the noise its own trace shows, `method="stationary"`, which Figure 3 '
    "uses for both blocks. It does not see clipping: where a record's gradient is cut, the fit is off by an amount "
    "that no trace shows."
)

_PUBLISHED_STEPS = 100_000
_PUBLISHED_MINUTES = (20, 40)  # Table K.1, for that many


def table(content: dict[str, Any]) -> str:
    """Markdown of everything that was run."""
    s = content["settings"]
    lines = [
        "# A mixture with a Poisson regression, and synthetic data from it (DPVIm, Figures 1 to 4 and H.1 to H.4)",
        "",
        f"Made by `{content['command']}` (size `{content['size']}`; the paper: 58,261 UK Biobank records, K = 16, "
        f"100,000 steps, 10 runs, Adam at 0.001). {s['num_records']:,} simulated records, K = {s['num_components']}, "
        f"κ = {s['sampling_rate']:g}, Adam at {s['learning_rate']:g}, δ = 1/N, ε for adding or removing a record, "
        f"{s['num_starts'] * s['runs_per_start']} runs from {s['num_starts']} random starts of the locations.",
        "",
        "## The paper's findings",
        "",
        *findings(content),
        "",
        "## Distance to the optimum",
        "",
        _LEGEND,
        "",
        *_cell_table(content),
        "",
        *along(content),
        *near_starts(content),
        *_downstream_section(content),
        *coverage_section(content),
        "## Which posterior",
        "",
        _FACTORISES,
        "",
        _timing(content),
    ]
    return "\n".join(lines) + "\n"


def ordered(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells by data, length, initial scale and variant, whatever the order of the runs."""
    order = [*VARIANTS]
    return sorted(
        content["cells"],
        key=lambda r: (
            r["data"] != "cohort",
            r["num_steps"],
            r["initial_scale"],
            order.index(r["variant"]),
            r["clip_norm"],
        ),
    )


def plus_minus(values: list[float], digits: int = 3) -> str:
    return f"{np.mean(values):.{digits}f} ± {standard_error(values):.{digits}f}"


def _cell_table(content: dict[str, Any]) -> list[str]:
    names = ("location_mpae", "scale_mpae", "averaged_location_mpae", "averaged_scale_mpae")
    lines = [
        "| table | steps | σ_q | variant | C | noise σ | MPAE means | MPAE scales | means, averaged | scales, averaged "
        "| settled | finite runs |",
        "| --- " * 12 + "|",
    ]
    for row in ordered(content):
        cells = [row["table"], f"{row['num_steps']:,}", f"{row['initial_scale']:g}", row["variant"]]
        cells += [f"{row['clip_norm']:g}", f"{row['noise_multiplier']:.2f}"]
        cells += [plus_minus(row[name]) if name in row else "diverged" for name in names]
        cells += [f"{100 * row['share_converged']:.0f} %" if "share_converged" in row else "–"]
        lines.append(f"| {' | '.join(cells)} | {row['num_finite']} of {row['num_runs']} |")
    return lines


def _downstream_section(content: dict[str, Any]) -> list[str]:
    if not content["downstream"]:
        return []
    s = content["settings"]
    lines = [
        "## Downstream Poisson regression (Figure 3)",
        "",
        f"{s['num_datasets']} synthetic data sets of {s['dataset_records']:,} records from aligned runs of "
        f"{s['downstream_steps']:,} steps from σ_q = 1 (the paper: 100 sets of 58,261, 400,000 steps). "
        + _DOWNSTREAM_LEGEND,
        "",
        "| ε | C | posterior | distance | half width | coverage | intercept | fell back | repeats |",
        "| --- " * 9 + "|",
    ]
    for (epsilon, clip_norm), rows in downstream_groups(content).items():
        for method in ("original", *METHODS):
            lines.append(f"| {epsilon:g} | {clip_norm:g} | {' | '.join(_downstream_cells(rows, method))} |")
    return [*lines, ""]


def _downstream_cells(rows: list[dict[str, Any]], method: str) -> list[str]:
    done = [row[method] for row in rows if "covered" in row[method]]
    name = "the records themselves" if method == "original" else method
    if not done:
        return [name, *["–"] * 5, f"0 of {len(rows)}"]
    share, error = coverage(rows, method)
    distance = "0" if method == "original" else plus_minus([each["distance_to_original"] for each in done], 2)
    return [
        name,
        distance,
        f"{np.mean([each['mean_half_width'] for each in done]):.2f}",
        f"{100 * share:.1f} ± {100 * error:.1f} %",
        f"{100 * np.mean([each['covered'][0] for each in done]):.0f} %",
        "–" if method == "original" else f"{100 * np.mean([each['share_fell_back'] for each in done]):.0f} %",
        f"{len(done)} of {len(rows)}",
    ]


def _timing(content: dict[str, Any]) -> str:
    """Seconds of all, and for every length that the paper's Table K.1 has beside ours what a run takes there."""
    total = sum(row["seconds"] for row in (*content["cells"], *content["downstream"]))
    lines = [
        f"{len(content['cells'])} cells and {len(content['downstream'])} downstream repeats took {total:.0f} s on "
        f"{content['machine']}, compiling included. The paper's Table K.1 has 20 to 40 minutes for a run of 1,000 "
        "epochs (100,000 steps) on one core, in proportion for others, at K = 16 and 58,261 records.",
        "",
        "| steps | runs side by side | seconds for a run | minutes in Table K.1 |",
        "| --- | --- | --- | --- |",
    ]
    cohort = [row for row in content["cells"] if row["data"] == "cohort"]
    for steps in sorted({row["num_steps"] for row in cohort}):
        per_run = [row["seconds"] / row["num_runs"] for row in cohort if row["num_steps"] == steps]
        published = [minutes * steps / _PUBLISHED_STEPS for minutes in _PUBLISHED_MINUTES]
        lines.append(
            f"| {steps:,} | {content['settings']['runs_per_start']} | {np.median(per_run):.1f} (median of "
            f"{len(per_run)} cells, {min(per_run):.1f} to {max(per_run):.1f}) | {published[0]:g} to {published[1]:g} |"
        )
    return "\n".join(lines)
