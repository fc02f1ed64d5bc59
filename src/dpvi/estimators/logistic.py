"""A private logistic regression for two classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from dpvi.estimators import inputs, models, predictive, toolkit
from dpvi.estimators.base import PrivateRegression, checked_level
from dpvi.estimators.belief import Belief
from dpvi.ledger import Ledger


class PrivateBayesianLogisticRegression(toolkit.ClassifierMixin, PrivateRegression):
    """Logistic regression for two declared classes, (ε, δ)-private, with intervals that include what privacy added.

    Parameters
    ----------
    epsilon, delta
        The budget of one fit. There is no default.
    bounds
        ``(lower, upper)`` of the features, two numbers or two sequences with one number per feature: public knowledge,
        never computed from the records. Values outside are put onto the bounds, in ``fit`` and in ``predict``, without
        a word.
    classes
        The two labels, declared. ``fit`` refuses any other label.
    prior_scale
        Standard deviation of the prior of every coefficient, on the log odds, for half the range of its feature.
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
        Posterior means, (1, features) and (1,), of the log odds of the second class, on the features' own scales.
    coef_sd_, intercept_sd_
        Posterior standard deviations, what privacy added included.
    classes_
        The two labels, sorted.
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
        classes: Any = None,
        prior_scale: float = 5.0,
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
        self.classes = classes
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.unit = unit
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds of ``predict_proba``, (rows,)."""
        return special.logit(self._probability(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of both classes, averaged over the posterior: what privacy added draws them towards a half."""
        second = self._probability(X)
        return np.stack([1 - second, second], axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of ``predict_proba``."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label of every row."""
        second = self._probability(X) > 0.5  # first, because it says whether there was a fit
        return self.classes_[second.astype(int)]

    def predict_interval(self, X: Any, level: float = 0.95) -> np.ndarray:
        """(rows, 2): the central interval of the probability of the second class, what privacy added included."""
        level = checked_level(level)
        mean, variance = self._predictor(X)
        reach = special.ndtri((1 + level) / 2) * np.sqrt(variance)
        return special.expit(np.stack([mean - reach, mean + reach], axis=1))

    def _probability(self, X: Any) -> np.ndarray:
        return predictive.mean_probability(*self._predictor(X))

    def _model(self) -> models.Logistic:
        return models.Logistic(float(self.prior_scale), bool(self.fit_intercept))

    def _response(self, y: Any, num_records: int) -> np.ndarray:
        owner = type(self).__name__
        classes = self._declared_classes(y)
        labels = inputs.vector(y, num_records, owner)
        toolkit.check_classification_targets(labels)
        if (kind := toolkit.type_of_target(labels)) != "binary":
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}. For several classes fit a "
                "NumPyro model with dpvi.fit."
            )
        if not np.isin(labels, classes).all():
            raise ValueError(
                "y holds a label that is not among the declared classes; declare both labels that the column may have, "
                "and leave out or recode records that have others."
            )
        self.classes_ = classes
        return (labels == classes[1]).astype(np.int32)

    def _declared_classes(self, y: Any) -> np.ndarray:
        """The declared labels, sorted. They do not come from ``y``."""
        if self.classes is None:
            raise ValueError(
                "classes must be declared: the two labels that y may hold, such as classes=(0, 1). They are not read "
                "from the records, because a label that one record alone has would tell of it."
            )
        try:
            classes = np.unique(np.asarray(self.classes))
        except TypeError:
            classes = np.empty(0)
        if classes.ndim != 1 or len(classes) != 2:
            raise ValueError(f"classes must be two distinct labels of one type, got {self.classes!r}.")
        return classes

    def _learn(self, belief: Belief) -> None:
        super()._learn(belief)
        self.coef_, self.coef_sd_ = self.coef_[None], self.coef_sd_[None]
        self.intercept_, self.intercept_sd_ = np.atleast_1d(self.intercept_), np.atleast_1d(self.intercept_sd_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # of a few hundred records, at a small budget
        return tags
