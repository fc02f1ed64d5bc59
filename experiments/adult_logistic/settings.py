"""What the study fixes: the published settings, and smaller sizes for smaller machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import dpvi
from dpvi.gradients import Estimator
from experiments.common.sized_command import ADJACENCIES

VARIANTS: Mapping[str, Estimator] = {
    "vanilla": dpvi.Vanilla(),
    "preconditioned": dpvi.Preconditioned(),
    "natural": dpvi.Natural(),
    "aligned": dpvi.Aligned(),
    "aligned_natural": dpvi.AlignedNatural(),
}

# Table F.1. There C bounds the gradient of one record's −log p(x_i|θ) with 1/N of prior and entropy added; here
# prior and entropy stay outside, so the same number bounds the same gradient but for a share of order √d/N.
PUBLISHED_CLIP_NORMS: Mapping[str, float] = {
    "vanilla": 3.0,
    "preconditioned": 4.0,
    "natural": 0.1,
    "aligned": 3.0,
    "aligned_natural": 0.1,
}

CLIPPINGS = ("published", "simulated")
AT_START = "simulated, at the start"


@dataclass(frozen=True)
class Settings:
    """One study.

    Parameters
    ----------
    num_steps, num_seeds, epsilons
        T, the number of repeated runs and the budgets; the paper has 400,000, 50 and 1, 2, 4, 10.
    sampling_rate, learning_rate, initial_scale
        κ, Adam's rate and the standard deviation of q at the start. Locations start at 0.1 N(0, 1), as published.
    slope_threshold, num_candidates
        Largest drift over a converged tail, and how many starting points of a tail are tried.
    noise
        A key of :data:`~experiments.common.sized_command.ADJACENCIES`; with ``"published"`` the published accountant
        and ours agree to six digits.
    first_seed
        Repeat k runs with seed ``first_seed + k``, whatever the variant and ε.
    simulated_records
        Size of a simulated table, or ``None`` for Adult itself.
    """

    num_steps: int = 400_000
    num_seeds: int = 50
    epsilons: tuple[float, ...] = (1.0, 2.0, 4.0, 10.0)
    sampling_rate: float = 0.01
    learning_rate: float = 1e-3
    initial_scale: float = 1.0
    slope_threshold: float = 0.05
    num_candidates: int = 10
    noise: str = "exact"
    first_seed: int = 123
    simulated_records: int | None = None

    def __post_init__(self) -> None:
        if self.noise not in ADJACENCIES:
            raise ValueError(f"noise must be one of {', '.join(ADJACENCIES)}, got {self.noise!r}.")
        if self.num_seeds < 2:
            raise ValueError(f"num_seeds must be at least 2, a spread over runs being asked for, got {self.num_seeds}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values as JSON reads them back."""
        return asdict(self) | {"epsilons": list(self.epsilons)}


# A twentieth of the steps at the same ε carry less noise each; distances are not those of the full size.
SIZES: Mapping[str, Settings] = {
    "full": Settings(),
    "gpu": Settings(num_seeds=5),
    "small": Settings(num_steps=20_000, num_seeds=5, epsilons=(1.0, 4.0)),
    "quick": Settings(num_steps=200, num_seeds=2, epsilons=(4.0,), sampling_rate=0.1, simulated_records=2000),
}
