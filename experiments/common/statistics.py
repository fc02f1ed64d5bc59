"""What reports of several experiments compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def standard_error(values: Sequence[float]) -> float:
    """Of the mean.

    Examples
    --------
    >>> standard_error([1.0, 3.0])
    1.0
    """
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
