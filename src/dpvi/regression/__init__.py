"""Private regressions from a formula: fitted in one line, read and drawn as statistical packages do it."""

from dpvi.models.formula import FAMILIES, FormulaError, FormulaModel
from dpvi.regression.checks import PredictiveCheck
from dpvi.regression.comparisons import Effects
from dpvi.regression.fitted import RegressionResult, load, regression_of
from dpvi.regression.predictions import Predictions
from dpvi.regression.preview import Preview
from dpvi.regression.prior_summary import PriorTable
from dpvi.regression.summary import CoefficientTable

__all__ = [
    "FAMILIES",
    "CoefficientTable",
    "Effects",
    "FormulaError",
    "FormulaModel",
    "Predictions",
    "PredictiveCheck",
    "Preview",
    "PriorTable",
    "RegressionResult",
    "load",
    "regression_of",
]
