"""Sizes of the study."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import dpvi
from dpvi.gradients import Estimator

ESTIMATORS: dict[str, Estimator] = {"vanilla": dpvi.Vanilla(), "aligned": dpvi.Aligned()}
PUBLISHED_ACCURACY = 0.767  # of the published program without privacy, PyMC3's ADVI


@dataclass(frozen=True)
class Settings:
    """One size of the study: clip norms at ``sampling_rate``, sampling rates at ``clip_norm``."""

    epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    clip_norms: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5, 1.0)
    sampling_rates: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1)
    estimators: tuple[str, ...] = ("vanilla", "aligned")
    clip_norm: float = 0.25
    sampling_rate: float = 0.02
    num_steps: int = 1_000
    reference_steps: int = 20_000
    num_seeds: int = 10
    delta: float = 1e-3

    def to_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


SIZES = {
    "full": Settings(),
    "small": Settings(epsilons=(0.05, 0.2, 1.0), clip_norms=(0.05, 0.25, 1.0), sampling_rates=(0.01, 0.02, 0.1)),
    "quick": Settings(
        epsilons=(1.0,),
        clip_norms=(0.25,),
        sampling_rates=(0.02,),
        estimators=("vanilla",),
        num_steps=40,
        reference_steps=60,
        num_seeds=2,
    ),
}
