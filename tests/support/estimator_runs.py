"""A stand-in for the private run inside an estimator: the mode of the same model without privacy, in milliseconds.

scikit-learn's checks of estimators are about arguments, shapes, copies and errors, and fit a hundred times; what a
private run answers is tested with real ones.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dpvi.estimators import models

PRIVACY_SHARE = 0.5  # of the variance


class Answer(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray
    privacy_covariance: np.ndarray


def mode(model: models.Regression, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mode of (coef, intercept) and the inverse curvature there, by Newton's method; σ of a linear model apart."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    rows = np.concatenate([x, np.ones((len(x), 1))], axis=1) if model.fit_intercept else x
    precision = np.full(rows.shape[1], model.prior_scale**-2.0)
    centre = np.zeros(rows.shape[1])
    if model.fit_intercept:
        precision[-1], centre[-1] = model.intercept_scale**-2.0, model.intercept_mean
    z, variance = centre.copy(), 0.25
    for _ in range(100):
        predictor = rows @ z
        if isinstance(model, models.Logistic):
            fitted = special.expit(predictor)
            slope, curvature = y - fitted, fitted * (1 - fitted)
        elif isinstance(model, models.Poisson):
            fitted = np.exp(np.minimum(predictor, 20.0))
            slope, curvature = y - fitted, fitted
        else:
            variance = np.mean((y - predictor) ** 2) + 1e-6
            slope, curvature = (y - predictor) / variance, np.full(len(y), 1 / variance)
        hessian = (rows * curvature[:, None]).T @ rows + np.diag(precision)
        step = np.linalg.solve(hessian, rows.T @ slope - precision * (z - centre))
        z = z + step * min(1.0, 2.0 / np.max(np.abs(step), initial=1e-12))
    return z, np.linalg.inv(hessian)


def released(model: models.Regression, data: Any, plan: Any, **settings: Any) -> tuple[Any, Any]:
    """In place of ``dpvi.estimators.base.released``."""
    x, y = data
    mean, covariance = mode(model, x, y)
    sizes = {"coef": x.shape[1], **({"intercept": 1} if model.fit_intercept else {})}
    if isinstance(model, models.Linear):
        sizes["log_sigma"] = 1
        log_sigma = 0.5 * np.log(np.mean((y - x @ mean[: x.shape[1]] - mean[x.shape[1] :].sum()) ** 2) + 1e-6)
        mean = np.append(mean, log_sigma)
        covariance = np.pad(covariance, (0, 1))
        covariance[-1, -1] = 0.5 / len(y)
    sites = [SimpleNamespace(name=name, unconstrained_shape=(size,)) for name, size in sizes.items()]
    posterior = SimpleNamespace(
        bijections=SimpleNamespace(sites=sites),
        distribution=Answer(mean, covariance, PRIVACY_SHARE * covariance),
    )
    return SimpleNamespace(guarantee=plan.guarantee), posterior
