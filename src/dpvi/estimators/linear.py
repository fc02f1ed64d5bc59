"""A private linear regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpvi.estimators import inputs, models, predictive, toolkit
from dpvi.estimators.base import PrivateRegression, checked_level
from dpvi.estimators.bounds import Bounds, declared
from dpvi.ledger import Ledger


class PrivateBayesianLinearRegression(toolkit.RegressorMixin, PrivateRegression):
    """Linear regression with normal errors, (ε, δ)-private, with intervals that include what privacy added.

    Parameters
    ----------
    epsilon, delta
        The budget of one fit. There is no default.
    bounds
        ``(lower, upper)`` of the features, two numbers or two sequences with one number per feature: public knowledge,
        never computed from the records. Values outside are put onto the bounds, in ``fit`` and in ``predict``, without
        a word.
    y_bounds
        ``(lower, upper)`` of the response, two numbers, in the same way.
    prior_scale
        Standard deviation of the prior of every coefficient, in half the range of y for half the range of its feature.
    fit_intercept
        Whether there is an intercept.
    unit, rows_per_unit
        Who is protected, and the most rows that one has; see :func:`dpvi.plan`.
    ledger
        A :class:`dpvi.Ledger` that every fit is charged to.
    random_state
        ``None`` takes 256 bits from the operating system. A number makes a fit repeatable, for research; with one below
        2^128 the guarantee says NOT PRIVATE.
    verbose
        Whether a bar shows progress.

    Attributes
    ----------
    coef_, intercept_
        Posterior means, (features,) and a number, on the features' and the response's own scales.
    coef_sd_, intercept_sd_
        Posterior standard deviations, what privacy added included.
    sigma_
        Posterior median of the errors' standard deviation.
    guarantee_
        The statement of privacy; print it.
    result_, posterior_
        What the run released (``result_.save(path)``), and the posterior in scaled coordinates.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        prior_scale: float = 2.5,
        fit_intercept: bool = True,
        unit: str = "one record",
        rows_per_unit: int = 1,
        ledger: Ledger | None = None,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.y_bounds = y_bounds
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.unit = unit
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def predict(self, X: Any) -> np.ndarray:
        """The posterior mean of the response at every row."""
        mean, _ = self._predictor(X)
        return self._response_bounds().unscaled(mean)

    def predict_interval(self, X: Any, level: float = 0.95) -> np.ndarray:
        """(rows, 2): the central interval of a new response, averaged over the posterior."""
        level = checked_level(level)
        rows = self._belief.rows(self._scaled(X))
        belief, (place,) = self._belief, range(len(self._belief.mean))[self._belief.places["log_sigma"]]
        ends = predictive.normal_quantiles(
            np.array([1 - level, 1 + level]) / 2,
            rows @ belief.mean,
            np.einsum("ij,jk,ik->i", rows, belief.covariance, rows),
            rows @ belief.covariance[:, place],
            (belief.mean[place], belief.covariance[place, place]),
        )
        return self._response_bounds().unscaled(ends.T)

    def _model(self) -> models.Linear:
        return models.Linear(float(self.prior_scale), bool(self.fit_intercept), intercept_scale=1.0)

    def _response(self, y: Any, num_records: int) -> np.ndarray:
        bounds = self._response_bounds()
        return bounds.scaled(inputs.responses(y, num_records, type(self).__name__)).astype(np.float32)

    def _response_bounds(self) -> Bounds:
        return declared("y_bounds", self.y_bounds, 1, centred=self.fit_intercept)

    def _learn(self, belief: Any) -> None:
        super()._learn(belief)
        log_sigma = belief.mean[belief.places["log_sigma"]].item()
        self.sigma_ = float(np.exp(log_sigma) * self._response_bounds().half.item())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # of a few hundred records, at a small budget
        return tags
