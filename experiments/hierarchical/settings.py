"""Sizes of the study and what the paper finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

NOT_PRIVATE = "inf"  # ε of a run without noise, as JSON can hold it
MAIN_SIZE = 500  # N of Figures 4 and 6

FINDINGS = (
    "ε ≥ 4 close to the run without privacy, with more spread (Figure 4)",
    "ε = 2 above the logistic regression without groups (Figure 4)",
    "AUC falls quickly below N = 500 (Figure 5)",
    "longer training is never worse (Figure 6)",
)


@dataclass(frozen=True)
class Settings:
    """One size of the study. Each list is varied with the others at N = 500 and the longest training."""

    num_records: tuple[int, ...] = (100, 200, 500, 1000)
    epsilons: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    num_steps: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000)
    num_seeds: int = 10
    sampling_rate: float = 0.1
    clip_norm: float = 1.0
    learning_rate: float = 1e-3
    data_seed: int = 2022

    @property
    def longest(self) -> int:
        return max(self.num_steps)

    def to_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


SIZES = {
    "full": Settings(),
    "small": Settings(num_records=(100, 500, 1000), num_steps=(1_000, 10_000), num_seeds=5, learning_rate=3e-3),
    "quick": Settings(num_records=(500,), epsilons=(4.0,), num_steps=(40,), num_seeds=2, learning_rate=0.03),
}
