"""From what a measuring run released to a distribution of z whose width has two parts, privacy and sampling."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np

from dpvi.declared.plan import Plan
from dpvi.declared.validation import IntervalWarning
from dpvi.families.base import Family
from dpvi.population.covariate_law import CovariateLaw
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.metric.answer import Answer
from dpvi.posterior.metric.strategy import answer_of
from dpvi.posterior.score.model import ScoreModel
from dpvi.release.measurements import answered
from dpvi.release.trace import Trace

_LEVEL = 0.001
_BLURRED, _UNKNOWN = 0.6, 0.999  # relative errors of the curvature: what it was widened for, and nothing known of it
_DOUBTED = 0.15  # of a parameter's privacy variance
_DECIDED = 0.15  # of a parameter, by records far from all others
_HIDING = 4.0  # privacy's part beside sampling's, above which such records hardly matter
_COVERED = (
    "Intervals are about what this model and prior would say without privacy, and include what privacy added. Whether "
    "the model is right is another question."
)


class MetricGaussian(NamedTuple):
    """N(mean, privacy + sampling covariance) on z.

    The privacy part alone is about the answer that the same model and prior would give without privacy, and is meant
    to hold it whatever made the data; docs/explanation/when-it-fails.md has the cases where it was seen not to. The
    sampling part is the model's own uncertainty around that answer.
    """

    mean: np.ndarray
    privacy_covariance: np.ndarray
    sampling_covariance: np.ndarray
    answer: Answer
    findings: tuple[str, ...] = ()  # what speaks against the intervals, warned of
    notes: tuple[str, ...] = ()  # what they are wide enough for

    @property
    def caveat(self) -> str:
        """What a summary says of the intervals."""
        return " ".join((*(self.findings or (_COVERED,)), *self.notes))

    @property
    def covariance(self) -> np.ndarray:
        return self.privacy_covariance + self.sampling_covariance

    @property
    def gaussian(self) -> Gaussian:
        return Gaussian.from_covariance(self.mean, self.covariance)

    @property
    def privacy(self) -> Gaussian:
        """The privacy part alone."""
        return Gaussian.from_covariance(self.mean, self.privacy_covariance)

    @property
    def standard_deviations(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))

    def sample(self, key: jax.Array, num_samples: int) -> jax.Array:
        return self.gaussian.sample(key, num_samples)

    def log_prob(self, z: jax.Array) -> jax.Array:
        return self.gaussian.log_prob(z)


def metric_posterior(
    trace: Trace,
    family: Family,
    *,
    plan: Plan,
    model: Any,
    scores: ScoreModel | None = None,
    covariate_law: CovariateLaw | None = None,
) -> MetricGaussian:
    """The posterior of a measuring run, as ``Result.posterior("metric")`` computes it.

    Parameters
    ----------
    trace, family, plan, model
        From the result. The family is not used.
    scores
        The run's own, whose programs are compiled already.
    covariate_law
        As for :func:`dpvi.fit`, for a result that was loaded from a file.
    """
    if trace.measurements is None:
        raise ValueError(
            "The metric posterior needs a run that measured, dpvi.plan(epsilon, delta, covariates=...) without "
            "sampling_rate, num_steps and clip_norm; this run took steps. Use posterior()."
        )
    if scores is None:
        if model is None:
            raise ValueError("The metric posterior simulates records; load the result with its model.")
        scores = ScoreModel(model, plan, covariate_law=covariate_law)
    answer = answer_of(scores, trace.histograms, answered(trace.measurements))
    names = _names(scores.model.sites)
    findings = tuple(_findings(answer, names))
    if findings:
        warnings.warn(" ".join(findings), IntervalWarning, stacklevel=4)
    return MetricGaussian(
        answer.mean.astype(trace.final.dtype),
        answer.privacy,
        answer.sampling,
        answer,
        findings,
        tuple(_notes(answer, names)),
    )


def _findings(answer: Answer, names: list[str]) -> list[str]:
    """Sentences on what intervals were not widened for, with a remedy; none where nothing speaks against them."""
    found = []
    if answer.contradiction < _LEVEL:
        found.append(
            f"Sums of scores at different points contradict each other (p = {answer.contradiction:.1g}): what privacy "
            f"added to the intervals was widened by {np.sqrt(answer.inflation):.2g}. Measure with a larger epsilon, or "
            "fit fewer parameters."
        )
    if answer.curvature_error > _UNKNOWN:
        found.append(
            "This budget is too small to measure the curvature of the log likelihood: intervals rest on what the model "
            f"expects of it, most for {_listed(_widest(answer), names)}, and can be too narrow where columns depend on "
            "each other. Use a larger epsilon or fewer columns."
        )
    narrow = np.diag(answer.privacy) < _HIDING**2 * np.diag(answer.sampling)
    decided = np.zeros(len(names)) if answer.far_out is None else np.where(narrow, answer.far_out, 0.0)
    if np.any(decided > _DECIDED):
        worst = np.argsort(-decided)[: int(np.sum(decided > _DECIDED))]
        found.append(
            f"A few records whose covariates lie far from all others decide {_listed(worst, names)}. Where they do not "
            "fit the model, noise hides how much, and intervals are too narrow. Transform the column (log, ranks), or "
            "declare tighter bounds and clip it into them."
        )
    return found


def _notes(answer: Answer, names: list[str]) -> list[str]:
    """What the intervals are wide enough for already."""
    found, bent = [], np.nonzero(answer.doubted > _DOUBTED)[0]
    if _BLURRED < answer.curvature_error <= _UNKNOWN:
        found.append(
            "The curvature of the log likelihood was hardly measured; intervals were widened for that, most for "
            f"{_listed(_widest(answer), names)}. A larger epsilon or fewer columns make them narrower."
        )
    if answer.surprise > 1 - _LEVEL and len(bent):
        worst = bent[np.argsort(-answer.doubted[bent])]
        found.append(
            "Some records have longer scores than this model expects; intervals were widened for what clipping may "
            f"have taken from them, most for {_listed(worst, names)}. A response with heavier tails (StudentT, "
            "NegativeBinomial2) or a larger epsilon makes them narrower."
        )
    return found


def _widest(answer: Answer) -> np.ndarray:
    """Parameters by what privacy adds to their intervals, the most first."""
    return np.argsort(-np.diag(answer.privacy) / np.diag(answer.sampling))


def _listed(worst: np.ndarray, names: list[str]) -> str:
    return ", ".join(names[index] for index in worst[:3])


def _names(sites: Any) -> list[str]:
    """A name for every coordinate of z."""
    names = []
    for site in sites:
        size = int(np.prod(site.unconstrained_shape, dtype=np.int64))
        names += [site.name] if size == 1 else [f"{site.name}[{index}]" for index in range(size)]
    return names
