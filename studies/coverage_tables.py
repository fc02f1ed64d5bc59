"""The table that shows methods side by side: coverage RMSE, sharpness and score, and what a perfect posterior has.

Coverage alone is won by any posterior that is wide enough in the right way, the prior above all. So every table also
shows how sharp the posteriors are and a proper score, which a posterior wins only by being right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpvi.evaluate.scores import interval_coverage, interval_width
from dpvi.evaluate.tarp import Estimate, PerfectRmse, TarpCoverage, perfect_rmse


class CoverageRow(NamedTuple):
    """One method: coverage RMSE over repeats, share of 95 % intervals that hold, sharpness, mean log score."""

    method: str
    rmse: Estimate
    coverage: float
    width: float
    sd: float
    log_score: float | None
    num_posteriors: int
    num_repeats: int
    num_dropped: int


def coverage_row(method: str, result: TarpCoverage, samples: Any, truths: Any, log_scores: Any = None) -> CoverageRow:
    """The row of one method, means over posteriors and parameters; of a marginal result, the mean RMSE.

    Posteriors that are not finite must have been dropped in ``result``; they are left out here too, and counted.
    """
    draws, truth = np.asarray(samples), np.asarray(truths, np.float64)
    finite = np.all(np.isfinite(draws), axis=(1, 2))
    if int(finite.sum()) != result.num_posteriors:
        raise ValueError(
            f"The coverage is of {result.num_posteriors} posteriors, but samples has {int(finite.sum())} finite ones."
        )
    draws, truth = draws[finite], truth[finite]
    errors = result.rmse
    return CoverageRow(
        method,
        Estimate(float(np.mean(errors.mean)), float(np.mean(errors.std))),
        float(interval_coverage(draws, truth).mean()),
        float(interval_width(draws).mean()),
        float(draws.std(axis=1, dtype=np.float64).mean()),
        None if log_scores is None else float(np.mean(np.asarray(log_scores)[finite])),
        result.num_posteriors,
        len(result.ranks),
        result.num_dropped,
    )


class CoverageTable(NamedTuple):
    """Rows of methods, and what a perfect posterior would show; made by :func:`coverage_table`.

    Attributes
    ----------
    rows
        One for each method.
    perfect
        RMSE of a perfect posterior for one draw of reference points, the published band.
    perfect_repeated
        The same for the mean over as many redraws as the rows took, the stricter band.
    """

    rows: tuple[CoverageRow, ...]
    perfect: PerfectRmse
    perfect_repeated: PerfectRmse

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON, ``{"rows": […], "perfect": …, "perfect_repeated": …}``; not finite is ``None``."""
        rows = []
        for row in self.rows:
            rmse, std = (float(value) for value in row.rmse)
            bands = {
                "within_band": rmse <= self.perfect.upper,
                "within_repeated_band": rmse <= self.perfect_repeated.upper,
            }
            entry = {**row._asdict(), "rmse": rmse, "rmse_std": std, **bands}
            rows.append({k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in entry.items()})
        perfect = {"perfect": self.perfect._asdict(), "perfect_repeated": self.perfect_repeated._asdict()}
        return {"rows": rows, **perfect}

    def to_markdown(self) -> str:
        """A Markdown table whose last row is the perfect posterior."""
        lines = [
            "| method | coverage RMSE | 95 % coverage | mean width | mean sd | mean log score | posteriors |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in self.rows:
            score = "–" if row.log_score is None else f"{row.log_score:.3f}"
            dropped = f" ({row.num_dropped} dropped)" if row.num_dropped else ""
            lines.append(
                f"| {row.method} | {row.rmse} | {row.coverage:.3f} | {row.width:.4g} | {row.sd:.4g} | {score} "
                f"| {row.num_posteriors}{dropped} |"
            )
        once, repeated = self.perfect, self.perfect_repeated
        band = f"{Estimate(once.mean, once.std)}, 95 % below {once.upper:.4f}"
        band += f" (mean of {repeated.num_repeats}: below {repeated.upper:.4f})"
        spread = 1.96 * math.sqrt(0.95 * 0.05 / once.num_posteriors)
        perfect = f"| perfect posterior | {band} | 0.950 ± {spread:.3f} | – | – | – | {once.num_posteriors} |"
        return "\n".join([*lines, perfect])


def coverage_table(rows: Sequence[CoverageRow], levels: Any = None) -> CoverageTable:
    """Methods side by side, with the perfect posterior at the smallest K among them.

    The ± of the methods is over draws of reference points, that of the perfect posterior over sets of K posteriors, and
    the one beside its 95 % coverage is 1.96 standard errors for one parameter. Rows of marginal results are means over
    parameters, which spread less than the band says.

    Parameters
    ----------
    rows
        Made by :func:`coverage_row`.
    levels
        As given to :func:`~dpvi.evaluate.tarp.tarp`.

    Examples
    --------
    >>> row = CoverageRow("naive", Estimate(0.232, 0.01), 0.41, 0.2, 0.05, -12.3, 500, 20, 0)
    >>> table = coverage_table([row])
    >>> table.to_dict()["rows"][0]["within_band"]
    False
    >>> print(table.to_markdown().splitlines()[2])
    | naive | 0.2320 ± 0.0100 | 0.410 | 0.2 | 0.05 | -12.300 | 500 |
    """
    if not rows:
        raise ValueError("coverage_table needs at least one row.")
    size, repeats = (min(getattr(row, name) for row in rows) for name in ("num_posteriors", "num_repeats"))
    once, repeated = (perfect_rmse(size, levels, num_repeats=count) for count in (1, repeats))
    return CoverageTable(tuple(rows), once, repeated)
