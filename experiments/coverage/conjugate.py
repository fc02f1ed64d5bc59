"""Exact posteriors of conjugate models on the unconstrained scales of the noise-aware DPVI paper (appendix H.5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.special
import scipy.stats


def softplus(z: np.ndarray) -> np.ndarray:
    """log(1 + eᶻ)."""
    return np.logaddexp(0.0, z)


def inverse_softplus(value: np.ndarray) -> np.ndarray:
    """z with softplus(z) = value."""
    return value + np.log(-np.expm1(-value))


class GammaRate(NamedTuple):
    """θ ~ Gamma(shape, rate), z = softplus⁻¹(θ)."""

    shape: float
    rate: float

    def sample(self, rng: np.random.Generator, num_draws: int) -> np.ndarray:
        return inverse_softplus(rng.gamma(self.shape, 1 / self.rate, (num_draws, 1)))

    def marginal_log_density(self, z: np.ndarray) -> np.ndarray:
        return scipy.stats.gamma.logpdf(softplus(z), self.shape, scale=1 / self.rate) - softplus(-z)


class LogisticDirichlet(NamedTuple):
    """θ ~ Dirichlet(concentration), z_i = log(θ_i / θ_last); with two classes, the logit of a Beta.

    θ_i / (θ_i + θ_last) is Beta(α_i, α_last), so z_i alone is the logit of that.
    """

    concentration: np.ndarray

    def sample(self, rng: np.random.Generator, num_draws: int) -> np.ndarray:
        parts = np.log(rng.gamma(self.concentration, size=(num_draws, len(self.concentration))))
        return parts[:, :-1] - parts[:, -1:]

    def marginal_log_density(self, z: np.ndarray) -> np.ndarray:
        first, last = self.concentration[:-1], self.concentration[-1]
        return -first * softplus(-z) - last * softplus(z) - scipy.special.betaln(first, last)


class NormalInverseGamma(NamedTuple):
    """σ² ~ InverseGamma(shape, scale), w | σ² ~ N(mean, σ² precision⁻¹); z = (softplus⁻¹(σ²), w)."""

    mean: np.ndarray  # (p,)
    precision: np.ndarray  # (p, p)
    shape: float
    scale: float

    def updated(self, x: np.ndarray, y: np.ndarray) -> NormalInverseGamma:
        """Given y = x w + N(0, σ²)."""
        precision = self.precision + x.T @ x
        mean = np.linalg.solve(precision, self.precision @ self.mean + x.T @ y)
        # the residual form: differences of large quadratic forms would cancel
        residual, shift = y - x @ mean, mean - self.mean
        scale = self.scale + 0.5 * (residual @ residual + shift @ self.precision @ shift)
        return NormalInverseGamma(mean, precision, self.shape + 0.5 * len(y), float(scale))

    def sample(self, rng: np.random.Generator, num_draws: int) -> np.ndarray:
        variance = self.scale / rng.gamma(self.shape, size=(num_draws, 1))
        factor = np.linalg.cholesky(np.linalg.inv(self.precision))
        weights = self.mean + np.sqrt(variance) * (rng.normal(size=(num_draws, len(self.mean))) @ factor.T)
        return np.concatenate([inverse_softplus(variance), weights], axis=1)

    def marginal_log_density(self, z: np.ndarray) -> np.ndarray:
        variance = softplus(z[:1])
        of_variance = scipy.stats.invgamma.logpdf(variance, self.shape, scale=self.scale) - softplus(-z[:1])
        spread = np.sqrt(self.scale / self.shape * np.diag(np.linalg.inv(self.precision)))
        of_weights = scipy.stats.t.logpdf(z[1:], 2 * self.shape, self.mean, spread)
        return np.concatenate([of_variance, of_weights])
