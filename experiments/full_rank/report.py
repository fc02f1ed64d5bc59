"""The study as a table beside the paper's finding, and as the panels of Figure 6."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.statistics import standard_error
from experiments.full_rank.settings import METHODS

_NOISE = {
    "exact": "adding or removing a record (exact accounting)",
    "published": "replacing a record, as published: about twice the noise of adding or removing at the same ε",
}
_PUBLISHED_STEPS = 100_000
_PUBLISHED_MINUTES = {100: "6 to 8", 200: "8 to 10"}


def table(content: dict[str, Any]) -> str:
    """Markdown, from the JSON alone."""
    settings, labels = content["settings"], " | ".join(method.label for method in METHODS.values())
    lines = [
        "# Full-rank covariance on linear regression (DPVIm, Figure 6)",
        "",
        f"Made by `{content['command']}` (size `{content['size']}`; the paper: 100,000 steps at 0.001, 50 runs, d = "
        f"100 and 200). {settings['num_steps']:,} steps of Adam at {settings['learning_rate']:g}, "
        f"{settings['num_seeds']} runs, N = {settings['num_records']:,}, κ = {settings['sampling_rate']:g}, "
        f"ε = {settings['epsilon']:g} for {_NOISE[settings['noise']]}, noise multiplier "
        f"{content['noise_multiplier']:.3f}.",
        "",
        "Mean predictive log-likelihood on test data ± standard error over runs. C = 0.2 stands in the paper, 2 in its "
        "program. *Difference*: aligned minus vanilla, both full rank; the paper finds it positive in every setting.",
        "",
        f"| d | density | C | {labels} | without privacy | difference |",
        "| --- " * (5 + len(METHODS)) + "|",
        *(_row(content, key) for key in _keys(content)),
        "",
        _verdict(content),
        "",
        _timing(content),
    ]
    return "\n".join(lines) + "\n"


def difference(content: dict[str, Any], key: tuple[Any, ...]) -> tuple[float, float] | None:
    """Aligned minus vanilla and its standard error; ``None`` where one has fewer than two finite runs."""
    rows = _of(content, key)
    if not {"vanilla", "aligned"} <= set(rows):
        return None
    scores = [np.array(rows[name]["scores"]) for name in ("aligned", "vanilla")]
    if any(len(values) < 2 for values in scores):
        return None
    error = np.sqrt(sum(values.var(ddof=1) / len(values) for values in scores))
    return float(scores[0].mean() - scores[1].mean()), float(error)


def figure(content: dict[str, Any], path: Path) -> None:
    """A panel for each dimension and density, a point with its error for each method and C."""
    from dpvi.reporting.plots import new_figure

    panels = sorted({key[:2] for key in _keys(content)})
    picture, axes = new_figure(1, len(panels), size=(4.2 * len(panels), 4.0))
    for axis, panel in zip(np.ravel(axes), panels, strict=True):
        keys = [key for key in _keys(content) if key[:2] == panel]
        for index, (name, method) in enumerate(METHODS.items()):
            rows = [_of(content, key)[name] for key in keys if name in _of(content, key)]
            rows = [row for row in rows if len(row["scores"]) > 1]
            clip_norms, means = [row["clip_norm"] for row in rows], [np.mean(row["scores"]) for row in rows]
            axis.errorbar(
                clip_norms,
                means,
                [standard_error(row["scores"]) for row in rows],
                marker="o",
                color=f"C{index}",
                label=method.label,
            )
        ceilings = [row["nonprivate_score"] for key in keys for row in _of(content, key).values()]
        axis.axhline(ceilings[0], color="0.5", linestyle=":", label="without privacy")
        axis.set(title=f"d = {panel[0]}, density {panel[1]:g}", xscale="log", xlabel="C")
        axis.set_xticks([key[2] for key in keys], [f"{key[2]:g}" for key in keys])
        axis.set_xticks([], minor=True)
    np.ravel(axes)[0].set_ylabel("predictive log-likelihood")
    picture.legend(*np.ravel(axes)[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    picture.savefig(path, dpi=120)


def _row(content: dict[str, Any], key: tuple[Any, ...]) -> str:
    rows = _of(content, key)
    cells = [f"{key[0]}", f"{key[1]:g}", f"{key[2]:g}"]
    cells += [_summary(rows[name]) if name in rows else "–" for name in METHODS]
    cells.append(f"{next(iter(rows.values()))['nonprivate_score']:.3f}")
    found = difference(content, key)
    cells.append("–" if found is None else f"{found[0]:+.3f} ± {found[1]:.3f}")
    return f"| {' | '.join(cells)} |"


def _verdict(content: dict[str, Any]) -> str:
    found = [value for key in _keys(content) if (value := difference(content, key)) is not None]
    better = sum(gap > error for gap, error in found)
    worse = sum(gap < -error for gap, error in found)
    return (
        f"The paper's finding, aligned above vanilla, is seen by more than its standard error in {better} of "
        f"{len(found)} settings; in {worse} it is the other way round."
    )


def _timing(content: dict[str, Any]) -> str:
    """Seconds for a step of a run, and what the paper's K.3 calls a run: vanilla and aligned, one after the other."""
    steps = content["settings"]["num_steps"] * content["settings"]["num_seeds"]
    per_step = {
        (name, dimension): float(np.mean(seconds)) / steps
        for name in METHODS
        for dimension in sorted({row["dimension"] for row in content["cells"]})
        if (seconds := [r["seconds"] for r in content["cells"] if (r["method"], r["dimension"]) == (name, dimension)])
    }
    parts = [f"{METHODS[name].label}, d = {d}: {1e3 * spent:.3f} ms" for (name, d), spent in per_step.items()]
    lines = [
        f"A step of one run, {content['settings']['num_seeds']} side by side and compiling included, on "
        f"{content['machine']}: {'; '.join(parts)}."
    ]
    for dimension, published in _PUBLISHED_MINUTES.items():
        both = [per_step.get((name, dimension)) for name in ("vanilla", "aligned")]
        if None not in both and content["settings"]["num_steps"] == _PUBLISHED_STEPS:
            minutes = sum(both) * steps / 60
            lines.append(
                f"For d = {dimension} all {content['settings']['num_seeds']} runs of vanilla and aligned together took "
                f"{minutes:.1f} minutes; the paper's K.3: {published} minutes for one, on a GPU (K80 to A100)."
            )
    return " ".join(lines)


def _summary(row: dict[str, Any]) -> str:
    scores, lost = row["scores"], row["num_runs"] - len(row["scores"])
    note = f" ({lost} diverged)" if lost else ""
    return f"{np.mean(scores):.3f} ± {standard_error(scores):.3f}{note}" if len(scores) > 1 else f"diverged{note}"


def _keys(content: dict[str, Any]) -> list[tuple[Any, ...]]:
    return sorted({(row["dimension"], row["density"], row["clip_norm"]) for row in content["cells"]})


def _of(content: dict[str, Any], key: tuple[Any, ...]) -> dict[str, dict[str, Any]]:
    rows = (row for row in content["cells"] if (row["dimension"], row["density"], row["clip_norm"]) == key)
    return {row["method"]: row for row in rows}
