"""The simulated logistic regression that all contestants fit. Needs numpy only: it runs in every environment."""

from __future__ import annotations

import functools
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Problem:
    """Logistic regression with a N(0, I) prior on the weights, and the settings of the private step.

    The sampling rate is ``expected_batch / num_records``: sizes are compared at a fixed expected batch.
    """

    num_records: int = 30_000
    dimension: int = 100
    expected_batch: int = 300
    clip_norm: float = 2.0
    noise_multiplier: float = 2.0
    delta: float = 1e-5
    learning_rate: float = 1e-2

    @property
    def sampling_rate(self) -> float:
        return self.expected_batch / self.num_records

    @property
    def physical_batch(self) -> int:
        """Rows a fixed-shape batch needs to hold all but about one Poisson draw in 26,000, at a batch of 300."""
        return min(self.num_records, math.ceil(self.expected_batch + 4 * math.sqrt(self.expected_batch)))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@functools.cache
def records(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Covariates (float32, ``[num_records, dimension]``) and labels (float32 0/1) simulated from the model."""
    generator = np.random.default_rng(20_240_229)
    weights = generator.standard_normal(problem.dimension, dtype=np.float32) / np.float32(math.sqrt(problem.dimension))
    x = generator.standard_normal((problem.num_records, problem.dimension), dtype=np.float32)
    threshold = generator.random(problem.num_records, dtype=np.float32)
    labels = threshold * (1 + np.exp(-(x @ weights))) < 1
    return x, labels.astype(np.float32)
