"""One adapter for two ArviZ: 0.x takes ``from_dict(posterior=…)``, 1.x takes ``from_dict({"posterior": …})``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def to_arviz(draws: Mapping[str, Any], names: Mapping[str, Sequence[str]] | None = None) -> Any:
    """Wrap ``{site: (draws, …)}`` as one chain; ``names`` are those of the entries along a site's last axis."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.0 once a day
            import arviz
    except ImportError:
        raise ImportError("to_arviz needs ArviZ, which is optional: install dpvi[arviz] or arviz.") from None
    posterior = {name: np.asarray(draw)[None] for name, draw in draws.items()}
    named = {site: f"{site}_name" for site in names or {}}
    labels = {}
    if names:
        before = {site: [f"{site}_dim_{axis}" for axis in range(posterior[site].ndim - 3)] for site in named}
        labels["coords"] = {dimension: list(names[site]) for site, dimension in named.items()}
        labels["dims"] = {site: [*before[site], dimension] for site, dimension in named.items()}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({"posterior": posterior}, **labels)
    return arviz.from_dict(posterior=posterior, **labels)
