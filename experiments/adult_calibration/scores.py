"""What is measured of an answer: calibration of its predictions, log loss, and its intervals."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.evaluate import (
    CalibrationCurve,
    binned_calibration_rmse,
    calibration_curve,
    calibration_rmse,
    interval_coverage,
    interval_width,
)
from experiments.adult_calibration.methods import Answer
from experiments.adult_calibration.problem import Problem

_CHUNK = 500


class Scores(NamedTuple):
    """One repeat of one method."""

    calibration_rmse: float  # as published; NaN where a run's bins all have one fraction of positives
    binned_calibration_rmse: float
    log_loss: float  # mean −log p of the test labels
    containment: float  # share of weights whose 95 % interval holds the mode without privacy
    interval_width: float  # mean over weights
    mean_score: tuple[float, ...]  # the calibration curve
    fraction_positive: tuple[float, ...]
    num_records: tuple[int, ...]

    @property
    def curve(self) -> CalibrationCurve:
        return CalibrationCurve(*map(np.array, (self.mean_score, self.fraction_positive, self.num_records)))


class NoiseFloor(NamedTuple):
    """Calibration RMSE of true probabilities, over draws of the test labels."""

    mean: float
    std: float
    upper: float  # 95 % of draws are below


def predict(answer: Answer, features: np.ndarray) -> np.ndarray:
    """p(y = 1 | x) for every row: the mean of σ(xᵀθ) over draws, or at the plugged-in weights, (n,)."""
    weights = answer.draws if answer.plug_in is None else answer.plug_in[None]
    rows, weights = jnp.asarray(features), weights.astype(np.float32)
    total = np.zeros(len(features))
    for start in range(0, len(weights), _CHUNK):
        total += np.asarray(_sum_of_probabilities(rows, jnp.asarray(weights[start : start + _CHUNK])), np.float64)
    return np.clip(total / len(weights), 0, 1)


def score(problem: Problem, answer: Answer) -> Scores:
    """All scores of one answer; NaN throughout where the run diverged."""
    if not np.all(np.isfinite(answer.draws)):
        return Scores(math.nan, math.nan, math.nan, math.nan, math.nan, (), (), ())
    probabilities, labels = predict(answer, problem.test_features), problem.test_labels
    curve = calibration_curve(probabilities, labels)
    draws, mode = answer.draws[None], problem.nonprivate.mean[None]
    # where all bins are alike there is no curve to read sideways: the published program skips the run, here it counts
    has_line = len(set(curve.fraction_positive.tolist())) > 1
    return Scores(
        calibration_rmse(probabilities, labels) if has_line else math.nan,
        binned_calibration_rmse(probabilities, labels),
        log_loss(probabilities, labels),
        float(interval_coverage(draws, mode).mean()),
        float(interval_width(draws).mean()),
        tuple(curve.mean_score.tolist()),
        tuple(curve.fraction_positive.tolist()),
        tuple(curve.num_records.tolist()),
    )


def log_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean −log p(label), with probabilities kept 1e-7 (float32's resolution) away from 0 and 1."""
    p = np.clip(probabilities, 1e-7, 1 - 1e-7)
    return float(-np.mean(np.where(labels == 1, np.log(p), np.log1p(-p))))


def noise_floor(problem: Problem, answer: Answer, num_draws: int, seed: int = 0) -> NoiseFloor:
    """What chance alone does to the published RMSE: labels drawn from the predictions of ``answer`` itself."""
    rng = np.random.default_rng(seed)
    probabilities = predict(answer, problem.test_features)
    errors = [
        calibration_rmse(probabilities, (rng.random(len(probabilities)) < probabilities).astype(np.int32))
        for _ in range(num_draws)
    ]
    return NoiseFloor(float(np.mean(errors)), float(np.std(errors)), float(np.quantile(errors, 0.95)))


@jax.jit
def _sum_of_probabilities(features: jax.Array, weights: jax.Array) -> jax.Array:
    logits = jnp.matmul(features, weights.T, precision="highest")  # accelerators would take fewer digits
    return jnp.sum(jax.nn.sigmoid(logits), axis=1)
