"""What the study fixes: the published settings, the published numbers, and a small version to see that it runs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

EPSILONS = (0.1, 0.3, 1.0)

# Table 3 of the paper: calibration RMSE, mean and standard deviation over 20 repeats.
PUBLISHED: dict[str, dict[float, tuple[float, float]]] = {
    "na_dpvi_nuts": {0.1: (0.061, 0.031), 0.3: (0.026, 0.005), 1.0: (0.024, 0.007)},
    "na_dpvi_laplace": {0.1: (0.084, 0.043), 0.3: (0.044, 0.011), 1.0: (0.046, 0.014)},
    "naive": {0.1: (0.120, 0.065), 0.3: (0.067, 0.024), 1.0: (0.054, 0.017)},
    "dpvim": {0.1: (0.101, 0.052), 0.3: (0.065, 0.025), 1.0: (0.038, 0.014)},
}

# What the paper's accountant, with an error of 0.01 in ε on either side, gives for the three budgets. All of
# these spend less than the budget; at ε = 0.1 they carry 16 % more noise than it needs.
PUBLISHED_NOISE_MULTIPLIERS = {0.1: 360.0, 0.3: 117.5, 1.0: 37.8125}


@dataclass(frozen=True)
class Settings:
    """One study.

    Parameters
    ----------
    delta, sampling_rate, num_steps
        δ, κ and T of every private run.
    clip_norm, scale_factor, num_draws, burn_in
        C, β of the scales (β of locations is 1), J and the share of steps left out, of the noise-aware runs;
        their initial scale is softplus(−6) and λ_c the root of the number of weights.
    aligned_clip_norm, aligned_learning_rate, aligned_initial_scale
        C, Adam's rate and the initial scale of DPVIm, as in its own Adult experiment.
    noise
        ``"published"`` takes the paper's noise multipliers, ``"calibrated"`` what the budget needs.
    scaling
        ``"published"`` z-scores or ``"declared"`` public constants.
    num_components, num_warmup
        Draws of the optimum in a noise-aware posterior, and warm-up steps of NUTS.
    num_predictive_draws
        Posterior draws that a prediction integrates over.
    first_seed
        Repeat k runs with seed ``first_seed + k``, whatever ε.
    simulated_records
        Train and test size of a simulated table, or ``None`` for Adult itself.
    """

    delta: float = 1e-5
    sampling_rate: float = 0.1
    num_steps: int = 10_000
    clip_norm: float = 11.0
    scale_factor: float = 550.0
    num_draws: int = 10
    burn_in: float = 0.2
    aligned_clip_norm: float = 3.0
    aligned_learning_rate: float = 1e-3
    aligned_initial_scale: float = 1.0
    noise: str = "published"
    scaling: str = "published"
    num_components: int = 4000
    num_warmup: int = 1000
    num_predictive_draws: int = 4000
    first_seed: int = 984
    simulated_records: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.noise not in ("published", "calibrated"):
            raise ValueError(f"noise must be 'published' or 'calibrated', got {self.noise!r}.")

    @property
    def initial_scale(self) -> float:
        """Standard deviation of q at the start of a noise-aware run."""
        return math.log1p(math.exp(-6.0))

    def to_dict(self) -> dict[str, Any]:
        """Plain values as JSON reads them back."""
        content = asdict(self)
        return content | {"simulated_records": self.simulated_records and list(self.simulated_records)}


# The same code path on simulated records: too few steps and records for its numbers to mean anything. δ stays below
# one over the number of records.
QUICK = Settings(
    num_steps=240,
    num_draws=2,
    aligned_learning_rate=0.02,
    noise="calibrated",
    num_components=200,
    num_warmup=100,
    num_predictive_draws=400,
    simulated_records=(3000, 1500),
)
