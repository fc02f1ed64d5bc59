"""The regression of the study: records, model, and the answer without privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import expit

from dpvi.posterior import Gaussian
from experiments.adult_calibration.settings import Settings
from studies.datasets import Block, Split, Table, adult, adult_labels, encode_adult_noise_aware
from studies.datasets.adult import LABEL, POSITIVE
from studies.datasets.adult_encoding import NOISE_AWARE_COLUMNS
from studies.datasets.encoding import CategoricalColumn

_SIMULATION_SEED = 20
_NEWTON_STEPS = 50


class Problem(NamedTuple):
    """Encoded records, what their columns mean, and the posterior without privacy."""

    features: np.ndarray  # (n, d), float32
    labels: np.ndarray  # (n,), int32
    test_features: np.ndarray
    test_labels: np.ndarray
    blocks: tuple[Block, ...]
    raw: Table  # the training part before encoding
    nonprivate: Gaussian  # the Laplace approximation at the mode

    @property
    def dimension(self) -> int:
        return self.features.shape[1]


def make_problem(settings: Settings, path: Path | None = None, download: bool = False) -> Problem:
    """Adult, or the simulated table of a quick study, encoded in 57 columns."""
    sizes = settings.simulated_records
    raw = adult(path, download=download) if sizes is None else simulated_adult(*sizes)
    train, test = (encode_adult_noise_aware(part, settings.scaling) for part in raw)
    labels, test_labels = map(adult_labels, raw)
    nonprivate = laplace_posterior(train.features, labels)
    return Problem(train.features, labels, test.features, test_labels, train.blocks, raw.train, nonprivate)


def logistic_regression(x: Any, y: Any = None) -> None:
    """Weights a priori N(0, I), one Bernoulli label per record."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def laplace_posterior(features: np.ndarray, labels: np.ndarray) -> Gaussian:
    """Mode and inverse negative Hessian of the log posterior under a standard normal prior, by Newton's method.

    The log posterior is strictly concave; a step is halved until it climbs, so the method cannot leave.
    """
    x, y = features.astype(np.float64), labels.astype(np.float64)
    weights = np.zeros(x.shape[1])
    for _ in range(_NEWTON_STEPS):
        probability = expit(x @ weights)
        gradient = x.T @ (y - probability) - weights
        precision = (x.T * (probability * (1 - probability))) @ x + np.eye(len(weights))
        step = np.linalg.solve(precision, gradient)
        if gradient @ step < 1e-12:
            return Gaussian.from_covariance(weights, np.linalg.inv(precision))
        while _log_posterior(x, y, weights + step) < _log_posterior(x, y, weights):
            step = step / 2
        weights = weights + step
    raise RuntimeError(f"Newton's method did not reach the mode within {_NEWTON_STEPS} steps; are features finite?")


def simulated_adult(num_train: int, num_test: int) -> Split:
    """Tables with Adult's columns: numbers within their bounds, levels with unequal shares, labels of a regression."""
    rng = np.random.default_rng(_SIMULATION_SEED)
    categories = [column for column in NOISE_AWARE_COLUMNS if isinstance(column, CategoricalColumn)]
    shares = {column.name: rng.dirichlet(np.full(len(column.levels), 2.0)) for column in categories}
    weights = rng.normal(scale=0.7, size=57)

    def draw(size: int) -> Table:
        table: Table = {}
        for column in NOISE_AWARE_COLUMNS:
            if isinstance(column, CategoricalColumn):
                table[column.name] = rng.choice(column.levels, size, p=shares[column.name])
            else:
                h = np.exp if column.logarithm else np.asarray
                values = h(column.centre + column.scale * rng.normal(size=size))
                table[column.name] = np.clip(values, column.lower, column.upper)
        probability = expit(encode_adult_noise_aware(table).features.astype(np.float64) @ weights)
        return table | {LABEL: np.where(rng.random(size) < probability, POSITIVE, "<=50K")}

    return Split(draw(num_train), draw(num_test))


def _log_posterior(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    logits = x @ weights
    return float(y @ logits - np.logaddexp(0, logits).sum() - 0.5 * weights @ weights)
