"""Arrays for fit and predict, checked as scikit-learn does but in sentences that tell nothing of a record.

scikit-learn's own errors print arrays, values that are no numbers, and numbers of records. The phrases that its checks
of estimators look for are kept.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dpvi.estimators import toolkit

_TOO_LARGE = "infinity or a value too large for dtype('float64')"


def features(estimator: Any, X: Any, *, reset: bool) -> np.ndarray:
    """(n, features) as float64. With ``reset`` the estimator learns the number and the names of its features.

    Raises
    ------
    ValueError, TypeError
        With a sentence that holds no value and no number of records.
    """
    owner = type(estimator).__name__
    if hasattr(X, "tocsr"):
        raise TypeError(f"Sparse data was passed for X, but {owner} needs dense data; use X.toarray().")
    array = numbers("X", X)
    if array.ndim != 2:
        kind = {0: "a scalar", 1: "a 1D array"}.get(array.ndim, f"an array with dim {array.ndim}")
        raise ValueError(
            f"{owner} expected <= 2 dimensions, and exactly 2, for X: a row per record and a column per feature. Found "
            f"{kind}. Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one record."
        )
    if array.shape[1] == 0:
        raise ValueError(f"X has 0 feature(s) (shape=(, 0)) while a minimum of 1 is required by {owner}.")
    if array.shape[0] == 0:
        raise ValueError(f"X has 0 records, and a minimum of 1 is required by {owner}.")
    finite("X", array, owner)
    toolkit.validate_data(estimator, X, reset=reset, skip_check_array=True)
    return array


def numbers(name: str, values: Any) -> np.ndarray:
    """``values`` as float64, or a sentence that holds none of them."""
    array = _rectangular(name, values)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} must hold real numbers.")
    try:
        return np.asarray(array, np.float64)
    except ValueError:
        raise ValueError(f"{name} holds text that is no number; encode it by levels that you declare.") from None
    except OverflowError:
        raise ValueError(f"Input {name} contains {_TOO_LARGE}.") from None
    except TypeError:
        raise TypeError(
            f"{name} holds something that is no number: an argument must be a string or a real number."
        ) from None


def _rectangular(name: str, values: Any) -> np.ndarray:
    """``values`` as an array; NumPy's own error would tell how many rows there are."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a rectangular array, and its rows have different lengths.") from None


def finite(name: str, array: np.ndarray, owner: str) -> None:
    """Refuse NaN and infinity, which a record must not hold; where they are is not told."""
    if np.isnan(array).any():
        raise ValueError(
            f"Input {name} contains NaN, and {owner} has no model of missing values. Leave such records out, or impute "
            "them by a rule that reads one record alone."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"Input {name} contains {_TOO_LARGE}.")


def vector(y: Any, num_records: int, owner: str) -> np.ndarray:
    """``y`` as a vector with one entry for each of ``num_records`` rows of X, of any type."""
    if y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None.")
    array = _rectangular("y", y)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,), "
            "for example using ravel().",
            toolkit.DataConversionWarning,
            stacklevel=4,
        )
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"y should be a 1d array for {owner}, with one entry per record, got {array.ndim} dimensions.")
    if len(array) != num_records:
        raise ValueError("X and y have different numbers of records.")
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: y must hold real numbers or labels.")
    if array.dtype.kind == "f":
        finite("y", array, owner)
    return array


def responses(y: Any, num_records: int, owner: str) -> np.ndarray:
    """``y`` as finite float64 numbers."""
    array = numbers("y", vector(y, num_records, owner))
    finite("y", array, owner)
    return array
