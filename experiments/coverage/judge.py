"""From posteriors to a row of the table: coverage jointly, one-sided and by parameter, scores and sharpness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dpvi.evaluate import Estimate, PerfectRmse, TarpCoverage, crps, perfect_rmse, tarp
from experiments.coverage.case import PaperNumber
from experiments.coverage.methods import Method, Posteriors
from experiments.coverage.runs import Study
from studies.coverage_tables import CoverageRow, coverage_row

_SPAN = 4.0


class Row(NamedTuple):
    """One method on one case.

    Attributes
    ----------
    coverage
        Coverage RMSE with reference points drawn as published, 95 % intervals, widths and log score.
    tarp
        The coverage curve behind it.
    one_sided_rmse
        RMSE with every reference point at mean + 4 sd, which shows biases that points on both sides hide.
    mean_rank
        Mean of the ranks under those points: ½ is right; below it, truths lie above the posteriors' means.
    marginal_rmse
        RMSE of single parameters, with reference points as published: their mean.
    crps
        Mean continuous ranked probability score on the unconstrained scale.
    perfect, perfect_repeated
        What a perfect posterior shows at this number of posteriors, for one draw of reference points and for the mean
        over as many as were taken.
    """

    coverage: CoverageRow
    tarp: TarpCoverage
    one_sided_rmse: float
    mean_rank: float
    marginal_rmse: float
    crps: float
    num_drifting: int
    paper: PaperNumber | None
    perfect: PerfectRmse
    perfect_repeated: PerfectRmse

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        coverage = self.coverage._asdict()
        rmse = coverage.pop("rmse")
        numbers = {
            **coverage,
            "rmse": rmse.mean,
            "rmse_std": rmse.std,
            "one_sided_rmse": self.one_sided_rmse,
            "mean_rank": self.mean_rank,
            "marginal_rmse": self.marginal_rmse,
            "crps": self.crps,
            "num_drifting": self.num_drifting,
            "paper": None if self.paper is None else self.paper._asdict(),
            "perfect": self.perfect._asdict(),
            "perfect_repeated": self.perfect_repeated._asdict(),
            "levels": self.tarp.levels.tolist(),
            "coverage_by_repeat": self.tarp.coverage.tolist(),
        }
        return {key: None if isinstance(v, float) and not np.isfinite(v) else v for key, v in numbers.items()}


def row_from_dict(numbers: Mapping[str, Any]) -> Row:
    """The row behind the numbers of ``Row.to_dict``; ranks of single posteriors are not stored."""
    read = {key: np.nan if value is None else value for key, value in numbers.items()}
    curves = np.asarray(read["coverage_by_repeat"])
    shape = (len(curves), read["num_posteriors"])
    fields = {name: read[name] for name in CoverageRow._fields if name != "rmse"}
    return Row(
        coverage=CoverageRow(rmse=Estimate(read["rmse"], read["rmse_std"]), **fields),
        tarp=TarpCoverage(np.asarray(read["levels"]), curves, np.broadcast_to(np.nan, shape), numbers["num_dropped"]),
        one_sided_rmse=read["one_sided_rmse"],
        mean_rank=read["mean_rank"],
        marginal_rmse=read["marginal_rmse"],
        crps=read["crps"],
        num_drifting=read["num_drifting"],
        paper=None if numbers["paper"] is None else PaperNumber(**numbers["paper"]),
        perfect=PerfectRmse(**read["perfect"]),
        perfect_repeated=PerfectRmse(**read["perfect_repeated"]),
    )


def judge(method: Method, posteriors: Posteriors, truths: np.ndarray, paper: PaperNumber | None, study: Study) -> Row:
    """Everything the table says about one method; posteriors that are not finite are left out and counted."""
    draws = posteriors.draws

    def drawn(marginal: bool, stream: int) -> TarpCoverage:
        rng = np.random.default_rng([study.seed, stream])
        return tarp(
            draws,
            truths,
            rng=rng,
            marginal=marginal,
            centre=posteriors.centres,
            span=_SPAN,
            num_repeats=study.num_repeats,
            nonfinite="drop",
        )

    joint = drawn(marginal=False, stream=1)
    finite = np.all(np.isfinite(draws), axis=(1, 2))
    sharp = draws[finite].astype(np.float64)
    beside = np.zeros(truths.shape)
    beside[finite] = sharp.mean(axis=1) + _SPAN * sharp.std(axis=1)
    one_sided = tarp(draws, truths, beside, nonfinite="drop")
    size = joint.num_posteriors
    return Row(
        coverage=coverage_row(method.title, joint, draws, truths, posteriors.log_scores),
        tarp=joint,
        one_sided_rmse=one_sided.rmse.mean,
        mean_rank=float(one_sided.ranks.mean()),
        marginal_rmse=float(np.mean(drawn(marginal=True, stream=2).rmse.mean)) if truths.shape[1] > 1 else np.nan,
        crps=float(crps(sharp, truths[finite]).mean()),
        num_drifting=posteriors.num_drifting,
        paper=paper,
        perfect=perfect_rmse(size),
        perfect_repeated=perfect_rmse(size, num_repeats=study.num_repeats),
    )
