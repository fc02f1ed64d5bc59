"""The study as a table beside the paper's findings, and as the two panels of Figure 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.adult_logistic.settings import AT_START, CLIPPINGS, VARIANTS, Settings
from experiments.common.statistics import standard_error

_NOISE = {
    "exact": "adding or removing a record (exact accounting)",
    "published": "replacing a record, as published: about twice the noise of adding or removing at the same ε",
}
_LEGEND = (
    "l2 distance of the last iterate to the variational optimum without privacy (by quadrature and Newton's method, "
    "where the paper has 10⁵ stochastic steps): mean ± standard error over runs. *Averaged*: the mean of each "
    "unconstrained parameter over its converged tail. *MPAE*: what is left of the way from the start."
)
_NOISE_LEGEND = (
    "Standard deviation of a converged trace (drift below {slope_threshold:g}, {num_candidates} starting points) "
    "against that of last iterates over runs, unconstrained, over all locations and scales that converged. *No "
    "noise*: the error of predicting none. *Perfect*: the error that the right deviation would show, because "
    "{num_seeds} runs know it only roughly. *Ratio*: trace over runs, 1 if right."
)
_LESS = 0.8  # a ratio of deviations below which a tail shows less noise than there is


def table(content: dict[str, Any]) -> str:
    """Markdown, from the JSON alone."""
    settings = content["settings"]
    lines = [
        f"# Logistic regression on {content['data']}, five gradient estimators (DPVIm, Figure 5)",
        "",
        f"Made by `{content['command']}` (size `{content['size']}`; the paper: 400,000 steps, 50 runs). "
        f"{settings['num_steps']:,} steps, {settings['num_seeds']} runs, κ = {settings['sampling_rate']:g}, Adam at "
        f"{settings['learning_rate']:g}, δ = 1/N. ε holds for {_NOISE[settings['noise']]}.",
        "",
        _LEGEND,
        "",
        *_distance_table(content),
        "",
        *_clip_table(content),
        "",
        "## Noise from the trace (Figure 5b)",
        "",
        _NOISE_LEGEND.format(**settings),
        "",
        *_noise_table(content),
        "",
        *relaxation(content),
        "## The paper's findings",
        "",
        *findings(content),
        "",
        *why_behind(content),
        _timing(content),
    ]
    return "\n".join(lines) + "\n"


def findings(content: dict[str, Any]) -> list[str]:
    """What the paper reports, and in how many settings it is seen here, by last iterates."""
    claims = (
        ("aligned natural is closest in locations", "location_distance", "aligned_natural", None),
        ("aligned natural is closest in scales", "scale_distance", "aligned_natural", None),
        ("aligned beats vanilla in scales", "scale_distance", "aligned", "vanilla"),
        ("aligned beats preconditioned in scales", "scale_distance", "aligned", "preconditioned"),
        ("aligned beats natural in locations", "location_distance", "aligned", "natural"),
        ("natural beats vanilla in scales", "scale_distance", "natural", "vanilla"),
        ("aligned beats vanilla in MPAE of scales", "scale_mpae", "aligned", "vanilla"),
        ("aligned beats preconditioned in MPAE of scales", "scale_mpae", "aligned", "preconditioned"),
        ("aligned beats natural in MPAE of locations", "location_mpae", "aligned", "natural"),
    )
    lines = ["| finding | seen in | not in |", "| --- | --- | --- |"]
    for text, quantity, winner, loser in claims:
        seen: dict[bool, list[str]] = {True: [], False: []}
        for clipping, epsilon in _settings_of(content):
            values = _values(content, clipping, epsilon, quantity)
            mine = values.pop(winner, None)
            others = [v for name, v in values.items() if loser in (None, name)]
            if mine is None or len(others) < (1 if loser else len(VARIANTS) - 1):
                continue
            gap, error = _difference(min(others, key=np.mean), mine, _whole(content, clipping, epsilon))
            doubt = " within 2 s.e." if abs(gap) < 2 * error else ""
            seen[bool(gap > 0)].append(f"ε = {epsilon:g}, {clipping} C{doubt}")
        lines.append(f"| {text} | {'; '.join(seen[True]) or '–'} | {'; '.join(seen[False]) or '–'} |")
    return lines


def relaxation(content: dict[str, Any]) -> list[str]:
    """How many steps a location needs to forget where it was: why tails show less noise than runs differ by.

    Adam divides a gradient by its root mean square, which is the noise σC/κ where that dominates; the ELBO's curvature
    in m_j is 1/σ*_j² at the optimum. The relaxation time is their ratio over Adam's rate: σ*_j² σC / (κ · rate).
    """
    rows = [row for row in _rows(content) if row["variant"] == "aligned" and row["noise"]["ratio"] is not None]
    rows = [row for row in rows if row["noise"]["ratio"] < _LESS]
    if "optimum_variances" not in content or not rows:
        return []
    settings = content["settings"]
    strongest = max(rows, key=lambda row: row["noise_multiplier"] * row["clip_norm"])
    noise = strongest["noise_multiplier"] * strongest["clip_norm"] / settings["sampling_rate"]
    steps = [variance * noise / settings["learning_rate"] for variance in content["optimum_variances"]]
    return [
        "The paper finds the two deviations close. Here tails of aligned show less than runs differ by, as runs too "
        "short to forget would: under Adam a location relaxes in about σ*² σC/(κ · rate) steps, for aligned at "
        f"ε = {strongest['epsilon']:g} {steps[0]:,.0f}, {steps[1]:,.0f} and {steps[2]:,.0f} (quartiles over weights) "
        f"of {settings['num_steps']:,}. A walk that has not met its boundary looks flat over a short tail and counts "
        "as converged.",
        "",
    ]


def why_behind(content: dict[str, Any]) -> list[str]:
    """Where aligned natural is not closest: how much of a record's release its C leaves at the start of a run."""
    starts, name = content["clip_norms"].get(AT_START), "aligned_natural"
    if starts is None:
        return []
    behind: dict[str, list[str]] = {}
    for clipping, epsilon in _settings_of(content):
        values = _values(content, clipping, epsilon, "location_distance")
        if name in values and len(values) > 1 and min(values, key=lambda each: np.mean(values[each])) != name:
            behind.setdefault(clipping, []).append(f"{epsilon:g}")
    lines = []
    for clipping, epsilons in behind.items():
        cut = {each: starts[each] / content["clip_norms"][clipping][each] for each in ("aligned", name)}
        lines += [
            f"With {clipping} C aligned natural is not closest in locations at ε = {', '.join(epsilons)}. It releases "
            "σ² times a score, and σ falls along a run: at the start a release is up to (97.5 %) "
            f"{cut[name]:.0f} times its C, against {cut['aligned']:.1f} times for aligned, so records are cut by that "
            "much while prior and entropy, which are not clipped, keep their weight.",
            "",
        ]
    return lines


def figures(content: dict[str, Any], folder: Path) -> None:
    """``distances_*.png`` (Figure 5a) and ``noise_*.png`` (Figure 5b) for every clipping rule that was run."""
    from dpvi.reporting.plots import new_figure

    for clipping in dict.fromkeys(row["clipping"] for row in _rows(content)):
        figure, axes = new_figure(1, 2, size=(9, 3.8))
        for axis, name in zip(np.ravel(axes), ("location", "scale"), strict=True):
            for variant in VARIANTS:
                _line(axis, _of(content, clipping, variant), f"{name}_distance", variant)
            axis.set(yscale="log", ylabel=f"distance of {name}s")
            _epsilon_axis(axis, content)
        np.ravel(axes)[0].legend(fontsize=8)
        figure.savefig(folder / f"distances_{clipping}.png", dpi=120)
        figure, axes = new_figure(1, 1, size=(6, 4))
        axis = np.ravel(axes)[0]
        for index, variant in enumerate(VARIANTS):
            rows = [row for row in _of(content, clipping, variant) if row["noise"]["mse"]]
            epsilons, noise = [row["epsilon"] for row in rows], [row["noise"] for row in rows]
            means, spreads = ([np.mean(n["mse"]) for n in noise], [np.std(n["mse"]) for n in noise])
            axis.errorbar(epsilons, means, spreads, color=f"C{index}", marker="o", label=variant)
            axis.plot(epsilons, [n["baseline"] for n in noise], color=f"C{index}", linestyle=":")
        axis.set(yscale="log", ylabel="squared error of the noise", title="dotted: predicting no noise")
        _epsilon_axis(axis, content)
        axis.legend(fontsize=8)
        figure.savefig(folder / f"noise_{clipping}.png", dpi=120)


def _epsilon_axis(axis: Any, content: dict[str, Any]) -> None:
    epsilons = sorted({row["epsilon"] for row in content["cells"]})
    axis.set(xscale="log", xlabel="ε")
    axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axis.set_xticks([], minor=True)


def _line(axis: Any, rows: list[dict[str, Any]], quantity: str, label: str) -> None:
    means = [np.mean(row[quantity]) for row in rows]
    axis.errorbar(
        [r["epsilon"] for r in rows], means, [standard_error(r[quantity]) for r in rows], marker="o", label=label
    )


def _distance_table(content: dict[str, Any]) -> list[str]:
    lines = [
        "| C by | ε | variant | C | σ | locations | scales | locations, averaged | scales, averaged | MPAE locations "
        "| MPAE scales | finite runs |",
        "| --- " * 12 + "|",
    ]
    names = ("location_distance", "scale_distance", "averaged_location_distance", "averaged_scale_distance")
    for row in _rows(content, finite=False):
        cells = [row["clipping"], f"{row['epsilon']:g}", row["variant"], f"{row['clip_norm']:.3g}"]
        cells.append(f"{row['noise_multiplier']:.2f}")
        quantities = (*names, "location_mpae", "scale_mpae")
        cells += [_plus_minus(row[name]) if name in row else "diverged" for name in quantities]
        lines.append(f"| {' | '.join(cells)} | {row['num_finite']} of {row['num_runs']} |")
    return lines


def _clip_table(content: dict[str, Any]) -> list[str]:
    rules = content["clip_norms"]
    lines = [
        "Clip norms: Table F.1; its rule (97.5 % quantile of release norms at the optimum) on records simulated from "
        "declared levels, bounds and the prior, which reads nothing; and the rule on the records themselves, as the "
        "paper did, which protects nobody and no run uses. Last, the same quantile where runs start, standard "
        "deviations of 1: what a C that fits the optimum cuts.",
        "",
        f"| variant | {' | '.join(rules)} |",
        "| --- " * (1 + len(rules)) + "|",
    ]
    return lines + [f"| {name} | {' | '.join(f'{rules[r][name]:.3g}' for r in rules)} |" for name in VARIANTS]


def _noise_table(content: dict[str, Any]) -> list[str]:
    lines = ["| C by | ε | variant | converged | squared error | no noise | perfect | ratio |", "| --- " * 8 + "|"]
    for row in _rows(content):
        noise = row["noise"]
        cells = [row["clipping"], f"{row['epsilon']:g}", row["variant"], f"{100 * noise['share_converged']:.0f} %"]
        if noise["mse"]:
            cells += [f"{np.mean(noise['mse']):.2e} ± {np.std(noise['mse']):.1e}", f"{noise['baseline']:.2e}"]
            cells += [f"{noise['floor']:.2e}", f"{noise['ratio']:.2f}"]
        else:
            cells += ["–"] * 4
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _timing(content: dict[str, Any]) -> str:
    settings, rows = content["settings"], content["cells"]
    total = sum(row["seconds"] for row in rows)
    per_step = total / (settings["num_steps"] * settings["num_seeds"] * len(rows))
    text = (
        f"{len(rows)} cells took {total:.0f} s, each on {content['machine']}, compiling included: {1e3 * per_step:.3f} "
        f"ms for a step of one run, {settings['num_seeds']} side by side."
    )
    if settings["num_steps"] == Settings().num_steps:
        text += (
            f" A run of {settings['num_steps']:,} steps thus took {per_step * settings['num_steps']:.0f} s; the "
            "paper's K.2: 10 to 30 minutes on one core."
        )
    return text + " One published run by itself is timed by `benchmarks/adult.py`."


def _rows(content: dict[str, Any], finite: bool = True) -> list[dict[str, Any]]:
    """In the order of rule, ε and variant, whatever the order of the runs."""
    order = [*CLIPPINGS], [*VARIANTS]
    rows = [row for row in content["cells"] if not finite or "noise" in row]
    return sorted(rows, key=lambda r: (order[0].index(r["clipping"]), r["epsilon"], order[1].index(r["variant"])))


def _of(content: dict[str, Any], clipping: str, variant: str) -> list[dict[str, Any]]:
    return [row for row in _rows(content) if (row["clipping"], row["variant"]) == (clipping, variant)]


def _settings_of(content: dict[str, Any]) -> list[tuple[str, float]]:
    return list(dict.fromkeys((row["clipping"], row["epsilon"]) for row in _rows(content)))


def _difference(larger: list[float], smaller: list[float], paired: bool) -> tuple[float, float]:
    """Of means, and its standard error; in pairs, run k has the same seed in all variants."""
    gap = float(np.mean(larger) - np.mean(smaller))
    if paired:
        return gap, standard_error([a - b for a, b in zip(larger, smaller, strict=True)])
    return gap, float(np.hypot(standard_error(larger), standard_error(smaller)))


def _whole(content: dict[str, Any], clipping: str, epsilon: float) -> bool:
    """Whether no run of a setting diverged."""
    rows = [row for row in content["cells"] if (row["clipping"], row["epsilon"]) == (clipping, epsilon)]
    return all(row["num_finite"] == row["num_runs"] for row in rows)


def _values(content: dict[str, Any], clipping: str, epsilon: float, quantity: str) -> dict[str, list[float]]:
    rows = [row for row in _rows(content) if (row["clipping"], row["epsilon"]) == (clipping, epsilon)]
    return {row["variant"]: row[quantity] for row in rows}


def _plus_minus(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {standard_error(values):.3f}"
