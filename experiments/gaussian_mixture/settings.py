"""Sizes of the study."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import dpvi
from dpvi.gradients import Estimator

ESTIMATORS: dict[str, Estimator] = {"vanilla": dpvi.Vanilla(), "aligned": dpvi.Aligned()}

# The noise multipliers of the published program, whose figure shows them between ε = 0.1 and 10, not what they spend.
PUBLISHED_RATE, PUBLISHED_NOISE = 0.003, (0.27, 0.34, 0.48, 1.05, 2.0)


@dataclass(frozen=True)
class Settings:
    """One size of the study: runs at (sampling rate, noise multiplier), ε computed from both."""

    num_records: int = 2_000
    num_test_records: int = 100
    num_steps: int = 1_000
    runs: tuple[tuple[float, tuple[float, ...]], ...] = (
        (PUBLISHED_RATE, PUBLISHED_NOISE),
        (0.05, (0.8, 1.5, 3.0, 6.0, 12.0)),
    )
    estimators: tuple[str, ...] = ("vanilla", "aligned")
    num_seeds: int = 5
    clip_norm: float = 1.0
    delta: float = 1e-3
    learning_rate: float = 0.03
    num_draws: int = 200
    data_seed: int = 123

    def to_dict(self) -> dict[str, Any]:
        runs = [[rate, list(noise)] for rate, noise in self.runs]
        return asdict(self) | {"runs": runs, "estimators": list(self.estimators)}


SIZES = {
    "full": Settings(num_seeds=20),
    "small": Settings(runs=((PUBLISHED_RATE, PUBLISHED_NOISE), (0.05, (0.8, 3.0, 12.0)))),
    "quick": Settings(num_steps=40, runs=((0.05, (0.8,)),), estimators=("aligned",), num_seeds=2, num_draws=20),
}
