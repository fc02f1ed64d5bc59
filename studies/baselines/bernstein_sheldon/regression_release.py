"""Noisy sums of products for linear regression: the side that sees records."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpvi.declared import validation
from studies.baselines.bernstein_sheldon.mechanism import Mechanism, Sensitivity, add_noise
from studies.baselines.bernstein_sheldon.moments import pair_indices, quadruple_indices
from studies.baselines.bernstein_sheldon.noise import NoisyRegression


def release_regression(
    covariates: Any,
    responses: Any,
    covariate_bounds: Any,
    response_bound: float,
    mechanism: Mechanism,
    *,
    fourth_moments: bool = False,
    seed: int | None = None,
) -> NoisyRegression:
    """Noisy Σxx, Σxy and Σy² of bounded records, each product once, with a constant appended to the covariates.

    Parameters
    ----------
    covariates, responses
        (N, d − 1) and (N,). Values beyond their bounds are moved to them, and missing ones count as zero. The samplers
        do not know of clamping, so choose bounds that records rarely reach.
    covariate_bounds, response_bound
        B_i and B_y with |x_i| ≤ B_i and |y| ≤ B_y, declared without looking at the records: one number for all
        covariates or one for each.
    mechanism
        :class:`LaplaceMechanism` or :class:`GaussianMechanism`.
    fourth_moments
        Also release means of all products of four regressors, as Gibbs-SS-Noisy needs; both releases then share the
        budget equally.
    seed
        None for fresh randomness; a whole number for studies.

    Guarantees
    ----------
    All sums together meet the mechanism's budget under add/remove adjacency; N is public and not protected. The
    sensitivities are attained by a record at its bounds, so they cannot be smaller.
    """
    rows, values = _checked(covariates, responses)
    bounds, limit = _bounds(covariate_bounds, rows.shape[1]), validation.positive("response_bound", response_bound)
    x = np.column_stack([_clamped(rows, bounds), np.ones(len(rows))])
    y = _clamped(values, limit)
    sums = [regression_sums(x, y)]
    sensitivities = [regression_sensitivity(bounds, limit)]
    if fourth_moments:
        sums.append(fourth_sums(x))
        sensitivities.append(fourth_sensitivity(bounds))
    (noisy, noise), *others = add_noise(sums, sensitivities, mechanism, seed)
    return NoisyRegression(noisy, noise, len(x), others[0][0] / len(x) if others else None)


def regression_sums(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Σxx over the upper triangle without the constant's own entry, Σxy and Σy²; the constant is the last column."""
    first, second, _ = pair_indices(x.shape[1])
    return np.concatenate([(x.T @ x)[first, second], x.T @ y, [y @ y]])


def regression_sensitivity(covariate_bounds: Any, response_bound: float) -> Sensitivity:
    """Of :func:`regression_sums`: norms of the largest record, (B_i B_j for i ≤ j, B_i, B_i B_y, B_y, B_y²).

    Examples
    --------
    >>> regression_sensitivity([1.0], 1.0).l1  # x², x, xy, y, y²
    5.0
    """
    corner = np.append(np.asarray(covariate_bounds, np.float64), 1.0)[None]
    return _norms(regression_sums(corner, np.array([response_bound])))


def fourth_sums(x: np.ndarray) -> np.ndarray:
    """Sums of the products of four regressors, each combination once, without the constant's own."""
    size = x.shape[1]
    place = np.zeros((size, size), np.int64)
    first, second = np.triu_indices(size)
    place[first, second] = place[second, first] = np.arange(len(first))
    products = x[:, first] * x[:, second]
    i, j, k, m = quadruple_indices(size).T
    return (products.T @ products)[place[i, j], place[k, m]]


def fourth_sensitivity(covariate_bounds: Any) -> Sensitivity:
    """Of :func:`fourth_sums`: norms of the largest record's products of four."""
    return _norms(fourth_sums(np.append(np.asarray(covariate_bounds, np.float64), 1.0)[None]))


def _norms(largest: np.ndarray) -> Sensitivity:
    return Sensitivity(float(np.sum(np.abs(largest))), float(np.linalg.norm(largest)))


def _checked(covariates: Any, responses: Any) -> tuple[np.ndarray, np.ndarray]:
    rows, values = np.asarray(covariates, np.float64), np.asarray(responses, np.float64)
    if rows.ndim != 2 or values.ndim != 1 or len(rows) != len(values) or rows.size == 0:
        raise ValueError(
            "covariates must be (N, d) and responses (N,) with the same N and at least one covariate, got "
            f"{rows.ndim} and {values.ndim} axes or lengths that differ."
        )
    return rows, values


def _bounds(covariate_bounds: Any, size: int) -> np.ndarray:
    bounds = np.asarray(covariate_bounds, np.float64)
    if bounds.shape not in ((), (size,)) or not np.all(np.isfinite(bounds) & (bounds > 0)):
        raise ValueError(
            f"covariate_bounds must be one positive number, or one for each of {size} covariates, "
            f"got {covariate_bounds!r}."
        )
    return np.broadcast_to(bounds, (size,))


def _clamped(values: np.ndarray, bounds: Any) -> np.ndarray:
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf), -bounds, bounds)
