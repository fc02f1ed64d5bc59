"""One line of the compatibility suite: a model, records for it, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist

N = 400


class Entry(NamedTuple):
    """A model after a tutorial, in words of our own.

    Attributes
    ----------
    model
        The model, which no entry may change.
    after
        Where models like it are taught.
    data
        Made-up records, as ``fit`` takes them.
    refused
        Part of the sentence that refuses it; None where it fits.
    static
        Constants that ``fit`` is given beside the records.
    guided
        Whether it needs ``guide=dpvi.AutoAmortised(model)``.
    eligible
        Whether its records are independent given what they share, and something is shared: the others must be refused.
    """

    model: Callable
    after: str
    data: Any
    refused: str | None = None
    static: dict[str, Any] | None = None
    guided: bool = False
    eligible: bool = True

    @property
    def name(self) -> str:
        """Of the model."""
        return self.model.__name__


def normal(name: str, scale: Any = 1.0, shape: tuple[int, ...] = ()) -> Any:
    """A latent site with independent normal entries."""
    return numpyro.sample(name, dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))


def positive(name: str, scale: float = 1.0) -> Any:
    """A latent site with a half-normal prior."""
    return numpyro.sample(name, dist.HalfNormal(scale))


random = np.random.default_rng(0)
X = random.normal(size=(N, 3)).astype(np.float32)
WEIGHTS = np.array([0.8, -0.5, 0.3], np.float32)
LINE = X @ WEIGHTS
Y = (0.4 + LINE + 0.7 * random.normal(size=N)).astype(np.float32)
BITS = (random.random(N) < 1 / (1 + np.exp(-LINE))).astype(np.int32)
OTHER_BITS = random.integers(0, 2, N).astype(np.int32)
COUNTS = random.poisson(np.exp(0.5 + 0.5 * LINE)).astype(np.int32)
POSITIVE = (0.1 + random.gamma(2.0, np.exp(0.3 * LINE) / 2)).astype(np.float32)
SHARES = np.clip(random.beta(2.0, 3.0, N), 0.01, 0.99).astype(np.float32)
GRADES = np.digitize(LINE + random.logistic(size=N), [-0.7, 0.8]).astype(np.int32)
GROUP = random.integers(0, 6, N).astype(np.int32)
OTHER_GROUP = random.integers(0, 4, N).astype(np.int32)
TRIALS = random.integers(10, 40, N).astype(np.int32)
HITS = random.binomial(TRIALS, random.beta(6.0, 14.0, N)).astype(np.int32)
GROUPED = (Y + np.array([-1.2, -0.5, 0.1, 0.4, 0.9, 1.3])[GROUP]).astype(np.float32)
ERRORS = (0.3 + random.random(N)).astype(np.float32)
TIMES = np.linspace(0.0, 1.0, N).astype(np.float32)
SERIES = np.cumsum(0.5 * random.normal(size=(N, 5)), axis=1).astype(np.float32)
ITEMS = (random.random((N, 6)) < 1 / (1 + np.exp(-random.normal(size=(N, 1)) + np.linspace(-1, 1, 6)))).astype(np.int32)
LABELS = np.where(random.random((N, 4)) < 0.8, OTHER_BITS[:, None], 1 - OTHER_BITS[:, None]).astype(np.int32)
MIXED = np.where(random.random(N) < 0.6, 2.0, -2.0).astype(np.float32) + (0.5 * random.normal(size=N)).astype(
    np.float32
)
PAIRS = (MIXED[:, None] * np.array([1.0, 0.5]) + 0.5 * random.normal(size=(N, 2))).astype(np.float32)
