"""Private regressions as scikit-learn estimators, with intervals that include what privacy added."""

from dpvi.estimators.linear import PrivateBayesianLinearRegression
from dpvi.estimators.logistic import PrivateBayesianLogisticRegression
from dpvi.estimators.poisson import PrivateBayesianPoissonRegression
from dpvi.estimators.scaler import BoundedScaler

__all__ = [
    "BoundedScaler",
    "PrivateBayesianLinearRegression",
    "PrivateBayesianLogisticRegression",
    "PrivateBayesianPoissonRegression",
]
