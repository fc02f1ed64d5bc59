"""The study as a table and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_HEADER = (
    "| λ_c | finite runs | φ*, location | φ*, scale | parameter | parameter, last iterate | sd of φ*, location | "
    "sd[â]/a, location | rms (â−a)/sd, location, scale | r* sd / bound | (A9) violated: sd | sd, other units | "
    "Var | Var, other units |"
)


def table(content: dict[str, Any]) -> str:
    """Markdown, from the JSON alone."""
    error = content["rows"][0]["coverage_location"]["standard_error"]
    lines = [
        "# NA-DPVI against the learning rate",
        "",
        f"Made by `{content['command']}` in {content['seconds']:.0f} s; Beta-Bernoulli, {content['num_sets']} data "
        f"sets of {content['num_records']:,} records, {content['num_steps']:,} steps, ε = {content['epsilon']:.2f}, "
        f"δ = {content['delta']:g}. Coverage of {100 * content['level']:.0f} % intervals (standard error {error:.3f}).",
        "",
        _HEADER,
        "|" + " --- |" * 14,
    ]
    for row in content["rows"]:
        theorem, scores = row["theorem"], row["curvature_score_rms"]
        shares = [
            row[f"coverage_{name}"]["share"] for name in ("location", "scale", "parameter", "parameter_last_iterate")
        ]
        cells = [
            f"{row['lambda_c']:g}",
            str(row["num_finite"]),
            *(f"{share:.3f}" for share in shares),
            f"{row['location_deviation']:.3f}",
            f"{row['curvature_relative_deviation']:.2f}",
            f"{scores[0]:.2f}, {scores[1]:.2f}",
            f"{theorem['median_ratio']:.1f}",
            *(
                f"{100 * theorem[f'violated_{name}']:.0f} %"
                for name in ("deviation", "deviation_other_unit", "variance", "variance_other_unit")
            ),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "Theorem 2, r* max sd[â] ≥ bound (A9), with φ* known and in coordinates βφ. The last columns are the share of "
        "runs that violate it: read with a standard deviation, read with a variance as printed, and the latter with φ "
        f"measured in units of 1/{content['other_unit']:g}. A theorem is violated nowhere, in no units. (â−a)/sd has "
        "root mean square 1 where gradients are straight lines over the iterates and sd is what (A16) says.",
    ]
    return "\n".join(lines) + "\n"


def figure(content: dict[str, Any], path: Path) -> None:
    """Coverage, and the two sides of the trade-off, against λ_c."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("The figure needs matplotlib; install dpvi[plot].") from None
    rows = content["rows"]
    factors = [row["lambda_c"] for row in rows]
    panels, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, label in (
        ("location", "φ*, location"),
        ("scale", "φ*, scale"),
        ("parameter", "parameter"),
        ("parameter_last_iterate", "parameter, last iterate"),
    ):
        left.plot(factors, [row[f"coverage_{name}"]["share"] for row in rows], marker="o", label=label)
    error = rows[0]["coverage_location"]["standard_error"]
    left.axhspan(content["level"] - 2 * error, content["level"] + 2 * error, color="0.9", zorder=0)
    left.axhline(content["level"], color="0.5", linewidth=1)
    left.set(xscale="log", xlabel="λ_c", ylabel=f"coverage of {100 * content['level']:.0f} % intervals", ylim=(0, 1))
    left.legend()
    right.plot(factors, [row["curvature_relative_deviation"] for row in rows], marker="o", label="sd[â]/a, location")
    right.plot(factors, [row["curvature_score_rms"][1] for row in rows], marker="o", label="rms (â−a)/sd, scale")
    right.plot(factors, [row["curvature_score_rms"][0] for row in rows], marker="o", label="rms (â−a)/sd, location")
    right.set(xscale="log", yscale="log", xlabel="λ_c")
    right.legend()
    panels.savefig(path, dpi=120)
    plt.close(panels)
