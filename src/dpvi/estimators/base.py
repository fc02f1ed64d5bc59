"""What the private regressions share: declared bounds, one measuring run, coefficients on the user's own scales."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dpvi.declared import validation
from dpvi.declared.validation import PrivacyWarning
from dpvi.estimators import inputs, toolkit
from dpvi.estimators.belief import Belief, belief_of
from dpvi.estimators.bounds import Bounds, declared
from dpvi.ledger import Ledger
from dpvi.posterior.posterior import Summary
from dpvi.posterior.result import Result
from dpvi.privacy import planning
from dpvi.run import fitting


class Fits:
    """How many fits one estimator and its clones have made."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, charged: bool) -> None:
        """Count one more, and say so where nothing adds up what the fits spend."""
        self.count += 1
        if self.count > 1 and not charged:
            warnings.warn(
                f"This is fit number {self.count} by one estimator and its clones, as GridSearchCV and cross_val_score "
                "make them. Every fit spends epsilon on the records that it is given, and nothing adds these up. Pass "
                "ledger=dpvi.Ledger(path, epsilon=..., delta=...), which refuses what it does not hold.",
                PrivacyWarning,
                stacklevel=4,
            )


class PrivateRegression(toolkit.BaseEstimator):
    """Base of the private regressions; see one of them for parameters and attributes."""

    # set by constructors, which scikit-learn wants to spell out their arguments
    epsilon: float | None
    delta: float | None
    bounds: Any
    prior_scale: float
    fit_intercept: bool
    unit: str
    rows_per_unit: int
    ledger: Ledger | None
    random_state: int | None
    verbose: bool

    n_features_in_: int
    _fits: Fits

    # what a regression of one kind says

    def _model(self) -> Any:
        """The NumPyro model in scaled coordinates."""
        raise NotImplementedError

    def _response(self, y: Any, num_records: int) -> np.ndarray:
        """``y`` as the model observes it."""
        raise NotImplementedError

    def _response_bounds(self) -> Bounds | None:
        """How the response is scaled, where it is."""
        return None

    # what all of them do

    def fit(self, X: Any, y: Any) -> Any:
        """Fit under the budget. Records are read here alone, and values outside the bounds are put onto them.

        Parameters
        ----------
        X
            (records, features): numbers, or a data frame of them.
        y
            One response per record.

        Returns
        -------
        self

        Guarantees
        ----------
        All that is learned from ``X`` and ``y`` is what ``guarantee_`` speaks of. An error in the shape or the type of
        the input is raised before anything is computed from a record, and tells no value and no number of records.
        """
        settings, seed = self._settings(), self._seed()
        matrix = inputs.features(self, X, reset=True)
        bounds = declared("bounds", self.bounds, matrix.shape[1], centred=self.fit_intercept)
        response = self._response(y, len(matrix))
        model = self._model()
        plan = planning.plan(covariates=bounds.columns, **settings)
        self._family().add(charged=self.ledger is not None)
        self.result_, self.posterior_ = released(
            model,
            (bounds.scaled(matrix).astype(np.float32), response),
            plan,
            seed=seed,
            ledger=self.ledger,
            progress=bool(self.verbose),
        )
        self.guarantee_ = self.result_.guarantee
        self._bounds = bounds
        self._learn(belief_of(self.posterior_))
        return self

    def intervals(self, level: float = 0.95) -> Summary:
        """Every coefficient with its interval and its parts, sampling and privacy; prints as a table.

        An interval is about what this model and prior would say without privacy, and includes what privacy added.
        """
        toolkit.check_is_fitted(self)
        level = checked_level(level)
        own = self._own
        first = 0 if self.fit_intercept else 1
        lower, upper = (end[first:] for end in own.interval(level))
        variance, privacy = (np.diag(part)[first:] for part in (own.covariance, own.privacy))
        return Summary(
            ("intercept", *self._feature_names())[first:],
            own.mean[first:],
            np.sqrt(variance),
            lower,
            upper,
            level,
            self.guarantee_.warning,
            getattr(self.posterior_.distribution, "caveat", ""),
            np.sqrt(privacy),
            np.sqrt(np.maximum(variance - privacy, 0.0)),
        )

    def _predictor(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of η at rows of X, which are put onto the bounds as records are."""
        scaled = self._scaled(X)  # refuses before a fit
        return self._belief.predictor(scaled)

    def _scaled(self, X: Any) -> np.ndarray:
        toolkit.check_is_fitted(self)
        return self._bounds.scaled(inputs.features(self, X, reset=False))

    def _learn(self, belief: Belief) -> None:
        """Coefficients on the user's own scales, in the shapes of scikit-learn's linear models."""
        self._belief = belief
        self._own = own = belief.on_own_scales(self._bounds, self._response_bounds())
        sd = np.sqrt(np.diag(own.covariance))
        self.coef_, self.coef_sd_ = own.mean[1:], sd[1:]
        self.intercept_, self.intercept_sd_ = own.mean[0], sd[0]  # zero where none is fitted

    def _feature_names(self) -> tuple[str, ...]:
        return tuple(getattr(self, "feature_names_in_", [f"x{index}" for index in range(self.n_features_in_)]))

    def _settings(self) -> dict[str, Any]:
        """What a plan is made of, once it was declared."""
        for name in ("epsilon", "delta"):
            if getattr(self, name) is None:
                raise ValueError(
                    f"{name} must be declared: there is no default budget. For example epsilon=1.0, and a delta well "
                    "below one over the number of records."
                )
        validation.positive("prior_scale", self.prior_scale)
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "rows_per_unit": self.rows_per_unit,
        }

    def _seed(self) -> int | None:
        state = self.random_state
        if state is None or (isinstance(state, int | np.integer) and not isinstance(state, bool)):
            return None if state is None else int(state)
        raise ValueError(
            f"random_state must be None (256 bits of the operating system) or a whole number, got "
            f"{type(state).__name__}."
        )

    def _family(self) -> Fits:
        """The count that this estimator shares with its clones."""
        if not hasattr(self, "_fits"):
            self._fits = Fits()
        return self._fits

    def __sklearn_clone__(self) -> Any:
        copy: Any = super().__sklearn_clone__()
        copy._fits = self._family()
        return copy

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def released(model: Any, data: Any, plan: Any, **settings: Any) -> tuple[Result, Any]:
    """One private run and its posterior."""
    result = fitting.fit(model, data, plan, **settings)
    return result, result.posterior()


def checked_level(level: float) -> float:
    """The probability of an interval."""
    if not 0 < validation.number("level", level) < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}.")
    return float(level)
