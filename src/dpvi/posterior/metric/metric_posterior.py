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
_UNKNOWN = 0.6  # a relative error of the curvature
_DOUBTED = 0.15  # of a parameter's privacy variance
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
    findings: tuple[str, ...] = ()  # what speaks against the intervals

    @property
    def caveat(self) -> str:
        """What a summary says of the intervals."""
        return " ".join(self.findings) or _COVERED

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
    findings = tuple(_findings(answer, _names(scores.model.sites)))
    if findings:
        warnings.warn(" ".join(findings), IntervalWarning, stacklevel=4)
    return MetricGaussian(answer.mean.astype(trace.final.dtype), answer.privacy, answer.sampling, answer, findings)


def _findings(answer: Answer, names: list[str]) -> list[str]:
    """Sentences on what speaks against the intervals, with a remedy; none where nothing does."""
    found = []
    if answer.contradiction < _LEVEL:
        found.append(
            f"Sums of scores at different points contradict each other (p = {answer.contradiction:.1g}): what privacy "
            f"added to the intervals was widened by {np.sqrt(answer.inflation):.2g}. Measure with a larger epsilon, or "
            "fit fewer parameters."
        )
    if answer.curvature_error > _UNKNOWN:
        found.append(
            "This budget is too small to measure the curvature of the log likelihood; intervals rest on what the model "
            "expects of it, and can be too narrow where columns depend on each other or levels are rare. Use a larger "
            "epsilon or fewer columns."
        )
    bent = np.nonzero(answer.doubted > _DOUBTED)[0]
    if answer.surprise > 1 - _LEVEL and len(bent):
        worst = bent[np.argsort(-answer.doubted[bent])][:3]
        found.append(
            "Some records have longer scores than this model expects, and clipping took a part of them away that was "
            f"not measured. Doubt it most for {', '.join(names[index] for index in worst)}. Use a response with "
            "heavier tails (StudentT, NegativeBinomial2), or a larger epsilon."
        )
    return found


def _names(sites: Any) -> list[str]:
    """A name for every coordinate of z."""
    names = []
    for site in sites:
        size = int(np.prod(site.unconstrained_shape, dtype=np.int64))
        names += [site.name] if size == 1 else [f"{site.name}[{index}]" for index in range(size)]
    return names
