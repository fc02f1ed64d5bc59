"""A private Poisson regression for counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpvi.estimators import inputs, models, predictive, toolkit
from dpvi.estimators.base import PrivateRegression, checked_level
from dpvi.estimators.bounds import declared
from dpvi.ledger import Ledger


class PrivateBayesianPoissonRegression(toolkit.RegressorMixin, PrivateRegression):
    """Poisson regression with a log link, (ε, δ)-private, with intervals that include what privacy added.

    Parameters
    ----------
    epsilon, delta
        The budget of one fit. There is no default.
    bounds
        ``(lower, upper)`` of the features, two numbers or two sequences with one number per feature: public knowledge,
        never computed from the records. Values outside are put onto the bounds, in ``fit`` and in ``predict``, without
        a word.
    y_bounds
        The smallest and the largest count that a record may have, in the same way; the rates that are predicted have
        the same largest value. What is not whole is rounded.
    prior_scale
        Standard deviation of the prior of every coefficient, on the log rate, for half the range of its feature.
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
        Posterior means, (features,) and a number, of the log rate, on the features' own scales.
    coef_sd_, intercept_sd_
        Posterior standard deviations, what privacy added included.
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
        """The posterior mean of the rate at every row; a rate beyond ``y_bounds`` counts as the largest count."""
        return predictive.mean_rate(*self._predictor(X), self._ends()[1])

    def predict_interval(self, X: Any, level: float = 0.95) -> np.ndarray:
        """(rows, 2): the central interval of a new count, averaged over the posterior."""
        level = checked_level(level)
        return predictive.count_quantiles(np.array([1 - level, 1 + level]) / 2, *self._predictor(X), self._ends()[1]).T

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D², the share of deviance explained, as scikit-learn's Poisson regression has it. It protects no record."""
        return toolkit.d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1)

    def _model(self) -> models.Poisson:
        return models.poisson_for(self._ends()[1], float(self.prior_scale), bool(self.fit_intercept))

    def _response(self, y: Any, num_records: int) -> np.ndarray:
        counts = np.rint(inputs.responses(y, num_records, type(self).__name__))
        return np.clip(counts, *self._ends()).astype(np.int32)

    def _ends(self) -> tuple[float, float]:
        """The smallest and the largest count, as declared."""
        bounds = declared("y_bounds", self.y_bounds, 1)
        lower, upper = np.ceil(bounds.lower.item()), np.floor(bounds.upper.item())
        if not 0 <= lower < upper:
            raise ValueError(f"y_bounds of counts must be two whole numbers from 0 on, got {self.y_bounds!r}.")
        return lower, upper

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        tags.regressor_tags.poor_score = True  # of a few hundred records, at a small budget
        return tags
