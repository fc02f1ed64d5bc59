"""What a fit says of a regression: a Gaussian of its coefficients, in scaled coordinates and on the user's own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dpvi.estimators.bounds import Bounds


class Belief(NamedTuple):
    """N(mean, covariance) of z = (intercept, coef, log_sigma), of which the first and the last may be missing."""

    mean: np.ndarray
    covariance: np.ndarray
    privacy: np.ndarray  # the part of the covariance that privacy added
    places: dict[str, slice]  # where each site lies in z

    def predictor(self, scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of η at rows of scaled features."""
        rows = self.rows(scaled)
        return rows @ self.mean, np.einsum("ij,jk,ik->i", rows, self.covariance, rows)

    def rows(self, scaled: np.ndarray) -> np.ndarray:
        """Rows r with η = r·z."""
        rows = np.zeros((len(scaled), len(self.mean)))
        rows[:, self.places["coef"]] = scaled
        if "intercept" in self.places:
            rows[:, self.places["intercept"]] = 1.0
        return rows

    def on_own_scales(self, features: Bounds, response: Bounds | None) -> Belief:
        """The same of intercept and coefficients as they apply to features and response as they were given."""
        columns = len(features.half)
        factor, shift = (1.0, 0.0) if response is None else (response.half.item(), response.centre.item())
        change = np.zeros((1 + columns, len(self.mean)))
        change[1:, self.places["coef"]] = np.diag(factor / features.half)
        change[0] = -features.centre @ change[1:]
        if "intercept" in self.places:
            change[0, self.places["intercept"]] = factor
        mean = change @ self.mean
        mean[0] += shift
        covariance, privacy = (change @ part @ change.T for part in (self.covariance, self.privacy))
        return Belief(mean, covariance, privacy, {"intercept": slice(0, 1), "coef": slice(1, 1 + columns)})

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the central interval of every entry of z."""
        reach = special.ndtri((1 + level) / 2) * np.sqrt(np.diag(self.covariance))
        return self.mean - reach, self.mean + reach


def belief_of(posterior: Any) -> Belief:
    """The Gaussian of a run's posterior; all sites of these regressions are unconstrained already."""
    places, first = {}, 0
    for site in posterior.bijections.sites:
        size = int(np.prod(site.unconstrained_shape, dtype=np.int64))
        places[site.name] = slice(first, first + size)
        first += size
    found = posterior.distribution
    mean, covariance = np.asarray(found.mean, np.float64), np.asarray(found.covariance, np.float64)
    return Belief(mean, covariance, np.asarray(found.privacy_covariance, np.float64), places)
