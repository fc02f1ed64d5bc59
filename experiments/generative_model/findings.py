"""The paper's findings, and where they are seen here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from experiments.common.statistics import standard_error
from experiments.generative_model.cells import Cell
from experiments.generative_model.downstream import LEVEL, METHODS

_ALLOWED = (0.90, 0.99)  # where coverage at 95 % counts as held


class Claim(NamedTuple):
    """``winner`` has the smaller ``quantity`` than ``loser``, in every setting where both were run."""

    text: str
    quantity: str
    winner: str
    loser: str


CLAIMS = (
    Claim("aligned beats vanilla in MPAE of scales (Figures 1, 2, 4)", "scale_mpae", "aligned", "vanilla"),
    Claim("aligned beats preconditioned in MPAE of scales (Figures 1, 4)", "scale_mpae", "aligned", "preconditioned"),
    Claim("(ours) aligned beats vanilla in mean absolute error of scales", "scale_error", "aligned", "vanilla"),
    Claim(
        "(ours) aligned beats preconditioned in mean absolute error of scales",
        "scale_error",
        "aligned",
        "preconditioned",
    ),
    Claim("aligned beats vanilla in MPAE of means (Figure H.1)", "location_mpae", "aligned", "vanilla"),
    Claim("aligned beats preconditioned in MPAE of means (Figure H.1)", "location_mpae", "aligned", "preconditioned"),
    Claim("aligned beats natural in MPAE of means (Figure H.3)", "location_mpae", "aligned", "natural"),
    Claim("aligned beats aligned natural in MPAE of means (Figure H.3)", "location_mpae", "aligned", "aligned_natural"),
    Claim("aligned natural beats natural in MPAE of means (Figure H.3)", "location_mpae", "aligned_natural", "natural"),
)


class Seen(NamedTuple):
    """One setting: how much better the winner is, and that in standard errors of the difference of paired runs."""

    setting: str
    gap: float
    standard_errors: float


def findings(content: dict[str, Any]) -> list[str]:
    """A Markdown table: each claim, the settings where it is seen and where it is not."""
    lines = ["| the paper | seen here | not seen here |", "| --- | --- | --- |"]
    for claim in CLAIMS:
        seen = list(settings_of(claim, content))
        if seen:
            lines.append(f"| {claim.text} | {_listed(seen, True)} | {_listed(seen, False)} |")
    return lines + _downstream_lines(content)


def settings_of(claim: Claim, content: dict[str, Any]) -> Iterator[Seen]:
    """Every pair of cells that differ in variant and C alone.

    A variant run at several C is compared at each.
    """
    rows = [row for row in content["cells"] if claim.quantity in row]
    for mine in (row for row in rows if row["variant"] == claim.winner):
        for other in (row for row in rows if row["variant"] == claim.loser and _same_setting(row, mine)):
            if claim.winner == "aligned_natural" and mine["clip_norm"] != other["clip_norm"]:
                continue
            gap, error = difference(mine, other, claim.quantity)
            yield Seen(_named(other), gap, abs(gap) / error if error > 0 else np.inf)


def difference(winner: dict[str, Any], loser: dict[str, Any], quantity: str) -> tuple[float, float]:
    """How much smaller ``quantity`` is for the winner, and its standard error.

    Run k has the same start, draws and batches whatever the variant, and MPAE depends on the start more than on
    anything else, so runs are compared in pairs; where one of them diverged, as independent means.
    """
    first, second = (np.asarray(row[quantity]) for row in (winner, loser))
    gap = float(np.mean(second) - np.mean(first))
    if all(row["num_finite"] == row["num_runs"] for row in (winner, loser)):
        return gap, standard_error((second - first).tolist())
    return gap, float(np.hypot(standard_error(first.tolist()), standard_error(second.tolist())))


def coverage(rows: list[dict[str, Any]], method: str) -> tuple[float, float]:
    """Share of covered coefficients, and its standard error over repeats; a failed repeat covers nothing."""
    number = len(next(row["original"]["covered"] for row in rows))
    shares = [np.mean(row[method].get("covered", [False] * number)) for row in rows]
    return float(np.mean(shares)), standard_error(shares)


def downstream_groups(content: dict[str, Any]) -> dict[tuple[float, float], list[dict[str, Any]]]:
    """Repeats by (ε, C)."""
    groups: dict[tuple[float, float], list[dict[str, Any]]] = {}
    for row in content["downstream"]:
        groups.setdefault((row["epsilon"], row["clip_norm"]), []).append(row)
    return dict(sorted(groups.items()))


def _downstream_lines(content: dict[str, Any]) -> list[str]:
    lines = []
    for (epsilon, clip_norm), rows in downstream_groups(content).items():
        shares = {method: coverage(rows, method) for method in METHODS}
        means = {method: _mean_distance(rows, method) for method in METHODS}
        where = f"ε = {epsilon:g}, C = {clip_norm:g}"
        closer = f"{where}: {means['average']:.2f} against {means['last']:.2f}"
        lines.append(
            _line("averaging reduces the downstream error (Figure 3)", closer, means["average"] < means["last"])
        )
        share, error = shares["stationary"]
        held = _ALLOWED[0] <= share <= _ALLOWED[1]
        text = f"{where}: {100 * share:.0f} ± {100 * error:.0f} % at {100 * LEVEL:.0f} %"
        lines.append(_line("(ours) pooled intervals with the stationary posterior cover", text, held))
        text = f"{where}: {100 * shares['last'][0]:.0f} %"
        lines.append(_line("(ours) those of the last iterate do not", text, shares["last"][0] < _ALLOWED[0]))
    return lines


def _mean_distance(rows: list[dict[str, Any]], method: str) -> float:
    """Over the repeats that have a pooled estimate; infinite where none has."""
    found = [row[method]["distance_to_original"] for row in rows if "covered" in row[method]]
    return float(np.mean(found)) if found else np.inf


def _line(claim: str, text: str, seen: bool) -> str:
    return f"| {claim} | {text if seen else '–'} | {'–' if seen else text} |"


def _listed(seen: list[Seen], wanted: bool) -> str:
    chosen = [each for each in seen if (each.gap > 0) == wanted]
    return "; ".join(f"{each.setting} ({each.standard_errors:.1f} s.e.)" for each in chosen) or "–"


def _same_setting(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] == other[name] for name in Cell._fields if name not in ("variant", "clip_norm"))


def _named(row: dict[str, Any]) -> str:
    return f"{row['data']}, σ_q = {row['initial_scale']:g}, {row['num_steps']:,} steps, its C = {row['clip_norm']:g}"
