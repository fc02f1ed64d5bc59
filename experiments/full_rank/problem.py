"""Linear regression on correlated covariates: data, model, and the predictive score."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist

_STRENGTH = (8.0, 10.0)  # of the Beta law of factor entries
_MARGINAL_SPREAD = 0.2
_ASCENT_STEPS = 100


class Problem(NamedTuple):
    """Training and test part; the first column of the features is the intercept."""

    features: np.ndarray  # (n, 1 + d), float32
    response: np.ndarray  # (n,)
    test_features: np.ndarray
    test_response: np.ndarray

    @property
    def records(self) -> tuple[np.ndarray, np.ndarray]:
        return self.features, self.response

    @property
    def dimension(self) -> int:
        """Weights, intercept and noise."""
        return self.features.shape[1] + 1


def linear_regression(x: Any, y: Any = None) -> None:
    """Weights a priori N(0, I), the noise's standard deviation Gamma(0.1, 0.1)."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    sd = numpyro.sample("sd", dist.Gamma(0.1, 0.1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weights, sd), obs=y)


def covariance_factor(rng: np.random.Generator, dimension: int, density: float) -> np.ndarray:
    """F with x = F z, z ~ N(0, I), as in the published program.

    A unit lower triangle has a share ``density`` of its entries below the diagonal set to ±Beta(8, 10); rows are
    scaled by exp(N(0, 0.2²)), columns by one over the row norms (so that marginal variances are not exactly those of
    the row scales). The paper's Algorithm J.1 puts such entries into a symmetric matrix instead, which then has
    negative eigenvalues at these sizes and is no correlation matrix.
    """
    rows, columns = np.tril_indices(dimension, -1)
    chosen = rng.permutation(len(rows))[: round(density * len(rows))]
    factor = np.eye(dimension)
    entries = rng.choice([-1.0, 1.0], len(chosen)) * rng.beta(*_STRENGTH, len(chosen))
    factor[rows[chosen], columns[chosen]] = entries
    row_norms = np.linalg.norm(factor, axis=1)
    return np.exp(_MARGINAL_SPREAD * rng.normal(size=dimension))[:, None] * factor / row_norms


def make_problem(dimension: int, density: float, num_records: int, seed: int) -> Problem:
    """Two samples of equal size from one truth: weights N(0, 1), noise of standard deviation 1."""
    rng = np.random.default_rng([seed, dimension, round(100 * density)])
    factor = covariance_factor(rng, dimension, density)
    weights = rng.normal(size=1 + dimension)

    def draw() -> tuple[np.ndarray, np.ndarray]:
        covariates = rng.normal(size=(num_records, dimension)) @ factor.T
        features = np.column_stack([np.ones(num_records), covariates])
        response = features @ weights + rng.normal(size=num_records)
        return features.astype(np.float32), response.astype(np.float32)

    return Problem(*draw(), *draw())


def common_start(problem: Problem, seed: int) -> np.ndarray:
    """A location uniform over (−2, 2) in the unconstrained space, as NumPyro's guides start; one for all runs."""
    return np.random.default_rng([seed, 1]).uniform(-2, 2, problem.dimension)


def predictive_score(problem: Problem, mean: np.ndarray, covariance: np.ndarray, sd: float) -> float:
    """Mean over test records of log N(y; x·m, x·Sx + sd²), with m, S of the weights and a plugged-in noise."""
    x, y = problem.test_features.astype(np.float64), problem.test_response.astype(np.float64)
    variance = np.einsum("ni,ij,nj->n", x, covariance, x, optimize=True) + sd**2
    return float(np.mean(-0.5 * (np.log(2 * np.pi * variance) + (y - x @ mean) ** 2 / variance)))


def nonprivate_score(problem: Problem) -> float:
    """The score of the Gaussian approximation without privacy.

    q(w) q(u) with u = log sd, N(μ, τ²), by coordinate ascent. With R = E‖y − Xw‖², the slopes of the ELBO vanish where

        R e^{−2μ+2τ²} = N − 0.1 + 0.1 e^{μ+τ²/2},    1/τ² = 2R e^{−2μ+2τ²} + 0.1 e^{μ+τ²/2},

    and q(w) has precision I + XᵀX e^{−2μ+2τ²}. A full-rank q would add covariances of w and u, which at the optimum are
    proportional to Xᵀ(y − Xm), all but zero.
    """
    x, y = problem.features.astype(np.float64), problem.response.astype(np.float64)
    gram, moments, size = x.T @ x, x.T @ y, len(y)

    def of_weights(location: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
        precision = np.exp(-2 * location + 2 * variance)
        covariance = np.linalg.inv(np.eye(x.shape[1]) + precision * gram)
        return precision * covariance @ moments, covariance

    location, variance = float(np.log(np.std(y))), 1 / (2 * size)
    for _ in range(_ASCENT_STEPS):
        mean, covariance = of_weights(location, variance)
        residual = np.sum((y - x @ mean) ** 2) + np.sum(gram * covariance)
        prior = 0.1 * np.exp(location + variance / 2)
        location = 0.5 * float(np.log(residual / (size - 0.1 + prior))) + variance
        variance = 1 / (2 * (size - 0.1 + prior) + prior)
    return predictive_score(problem, *of_weights(location, variance), float(np.exp(location)))
