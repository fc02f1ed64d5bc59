"""From what a measuring run released to a distribution of z whose width has two parts, privacy and sampling."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from dpvi.core.measurements import answered
from dpvi.core.plan import Plan
from dpvi.core.trace import Trace
from dpvi.families.base import Family
from dpvi.models.covariate_law import CovariateLaw
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.metric.answer import Answer
from dpvi.posterior.metric.strategy import answer_of
from dpvi.posterior.score.model import ScoreModel


class MetricGaussian(NamedTuple):
    """N(mean, privacy + sampling covariance) on z.

    The privacy part alone is about the answer that the same model and prior would give without privacy: that answer
    lies in an interval of the privacy part with its probability, whatever made the data. The sampling part is the
    model's own uncertainty around that answer.
    """

    mean: np.ndarray
    privacy_covariance: np.ndarray
    sampling_covariance: np.ndarray
    answer: Answer

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
    dtype = trace.final.dtype
    return MetricGaussian(answer.mean.astype(dtype), answer.privacy, answer.sampling, answer)
