"""Scaling by declared bounds: what StandardScaler and MinMaxScaler read from the records, a person says here."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpvi.estimators import inputs, toolkit
from dpvi.estimators.bounds import declared


class BoundedScaler(toolkit.OneToOneFeatureMixin, toolkit.TransformerMixin, toolkit.BaseEstimator):
    """Map declared bounds of features to [−1, 1]. ``fit`` reads no value, so nothing is spent.

    In a pipeline before a private regression, which then has ``bounds=(-1, 1)``.

    Parameters
    ----------
    bounds
        ``(lower, upper)`` of the features, two numbers or two sequences with one number per feature. Values outside are
        put onto the bounds.

    Examples
    --------
    >>> scaler = BoundedScaler(bounds=([0, 18], [1, 90])).fit([[1, 20], [0, 30]])
    >>> scaler.transform([[0.5, 90], [3, 18]]).tolist()
    [[0.0, 1.0], [1.0, -1.0]]
    """

    def __init__(self, bounds: Any = None) -> None:
        self.bounds = bounds

    def fit(self, X: Any, y: Any = None) -> BoundedScaler:
        """Learn how many features there are, and what they are called."""
        matrix = inputs.features(self, X, reset=True)
        self._bounds = declared("bounds", self.bounds, matrix.shape[1])
        return self

    def transform(self, X: Any) -> np.ndarray:
        """(rows, features) in [−1, 1]."""
        toolkit.check_is_fitted(self)
        return self._bounds.scaled(inputs.features(self, X, reset=False))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """From [−1, 1] to the features' own scales."""
        toolkit.check_is_fitted(self)
        return self._bounds.unscaled(inputs.numbers("X", X))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_bounds")
