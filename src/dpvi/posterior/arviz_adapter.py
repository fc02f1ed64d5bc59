"""One adapter for two ArviZ: 0.x takes ``from_dict(posterior=…)``, 1.x takes ``from_dict({"posterior": …})``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_arviz(draws: Mapping[str, Any]) -> Any:
    """Wrap ``{site: (draws, …)}`` as one chain."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.0 once a day
            import arviz
    except ImportError:
        raise ImportError("to_arviz needs ArviZ, which is optional: install dpvi[arviz] or arviz.") from None
    posterior = {name: np.asarray(draw)[None] for name, draw in draws.items()}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({"posterior": posterior})
    return arviz.from_dict(posterior=posterior)
