"""What a run's own answers say against its model: a posterior predictive check that costs nothing further.

Histograms of the columns are met by construction, and of the response none is paid for. What a run does pay for are
counts of records by the length of their score, in the model's metric. A model that is right says how many there should
be of each length; too many long ones are responses that it does not expect.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import scipy.stats

from dpvi.posterior import Result
from dpvi.posterior.metric.belief import first_belief, learned
from dpvi.posterior.score import ScoreModel
from dpvi.release.measurements import answered
from dpvi.release.requests import NORM_EDGES, ScoreNorms

_RECONSTRUCTED = 0.15  # relative: expected counts rest on covariates that only have the released histograms and moments


class PredictiveCheck(NamedTuple):
    """Counts of records by length of their score beside what the model expects; prints as a table.

    Attributes
    ----------
    edges
        Upper ends of the bins, in units of which the middle score has about a half; the last bin has none.
    released, expected, deviation
        Noisy counts, what they would be on average were the model right, and the standard deviation around that: noise,
        chance, and 15 % for covariates that are known from histograms and moments alone.
    p_value
        How often a right model has counts as far off as these.
    contradiction
        The p-value of the two last measurements of the answer against each other.
    """

    edges: np.ndarray
    released: np.ndarray
    expected: np.ndarray
    deviation: np.ndarray
    p_value: float
    contradiction: float
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = ["Records by length of their score: released with noise, and expected by the model"]
        lines.append(f"{'length':>16}  {'released':>10}  {'expected':>10}  {'sd':>8}")
        starts = [0.0, *self.edges.tolist()]
        for index, start in enumerate(starts):
            end = f"{starts[index + 1]:.3g}" if index + 1 < len(starts) else "…"
            row = (self.released[index], self.expected[index], self.deviation[index])
            lines.append(f"{f'{start:.3g} to {end}':>16}  {row[0]:>10.0f}  {row[1]:>10.0f}  {row[2]:>8.0f}")
        lines.append(f"p-value of these counts under the model: {self.p_value:.3g}")
        lines.append(f"p-value of the answer's last two measurements against each other: {self.contradiction:.3g}")
        return "\n".join([*lines, *self.notes])


def predictive_check(result: Result, distribution: object, notes: tuple[str, ...]) -> PredictiveCheck:
    """The check of a run that measured."""
    if result.trace.measurements is None:
        raise ValueError("Only a run that measures counts scores; this one took steps. Fit with epsilon and delta.")
    belief = first_belief(result.scores or ScoreModel(cast(Any, result.model), result.plan), result.trace.histograms)
    for each in answered(result.trace.measurements):
        if isinstance(each.request, ScoreNorms):
            scores, weights = belief.simulator.scores(each.request.query)
            lengths = np.linalg.norm(scores @ each.request.metric.T, axis=1)
            bins = np.searchsorted(NORM_EDGES, lengths, "right")
            expected = belief.num_records * np.bincount(bins, weights, len(NORM_EDGES) + 1)
            noise = belief.noise(each.request.units)
            return _compared(each.released, expected, noise, getattr(distribution, "answer"), notes)  # noqa: B009
        belief = learned(belief, each.request, each.released)
    raise ValueError("This run counted no scores, so there is nothing to compare with.")


def _compared(
    released: np.ndarray, expected: np.ndarray, noise: float, answer: object, notes: tuple[str, ...]
) -> PredictiveCheck:
    deviation = np.sqrt(noise**2 + expected + (_RECONSTRUCTED * expected) ** 2)
    statistic = float(np.sum(((released - expected) / deviation) ** 2))
    p_value = float(scipy.stats.chi2.sf(statistic, len(released)))
    contradiction = float(getattr(answer, "contradiction"))  # noqa: B009
    return PredictiveCheck(np.asarray(NORM_EDGES), released, expected, deviation, p_value, contradiction, notes)
