"""What this package takes from scikit-learn, an optional dependency; without it, one sentence."""

from __future__ import annotations

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, RegressorMixin, TransformerMixin
    from sklearn.exceptions import DataConversionWarning
    from sklearn.metrics import d2_tweedie_score
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ImportError("dpvi's estimators need scikit-learn; install it with: pip install 'dpvi[sklearn]'") from None

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "DataConversionWarning",
    "OneToOneFeatureMixin",
    "RegressorMixin",
    "TransformerMixin",
    "check_classification_targets",
    "check_is_fitted",
    "d2_tweedie_score",
    "type_of_target",
    "validate_data",
]
