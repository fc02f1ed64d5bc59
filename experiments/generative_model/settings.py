"""What the study fixes: the published settings, and smaller sizes for smaller machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import dpvi
from dpvi.gradients import Estimator

VARIANTS: Mapping[str, Estimator] = {
    "vanilla": dpvi.Vanilla(),
    "preconditioned": dpvi.Preconditioned(),
    "aligned": dpvi.Aligned(),
    "natural": dpvi.Natural(),
    "aligned_natural": dpvi.AlignedNatural(),
}
CLIP_NORMS: Mapping[str, float] = {"vanilla": 2.0, "preconditioned": 4.0, "aligned": 2.0}
NATURAL_VARIANTS = ("natural", "aligned_natural")
PARTS = ("robustness", "epochs", "downstream", "census", "natural", "coverage")
CENSUSES = ("income", "poverty")


@dataclass(frozen=True)
class Settings:
    """One study. The defaults are the paper's.

    Parameters
    ----------
    num_records, census_records
        Size of the simulated cohort, and how many census records are taken (``None``: all).
    num_components
        K of the mixture.
    sampling_rate, learning_rate
        κ and Adam's rate.
    num_steps, run_lengths, census_steps, downstream_steps
        T of Figures 1 and H, of the runs of Figure 2, of Figure 4 and of Figure 3; 100 steps are an epoch.
    num_starts, runs_per_start
        Starts of the locations, uniform on (−2, 2), and runs from each. The paper has ten runs, each from a start of
        its own. Runs from one start are computed side by side.
    initial_scales, epsilons
        σ_q at the start of Figure 1, and ε of Figure 3. All else is at σ_q = 1 and ε = 1.
    natural_clip_norms
        C of the natural variants.
    num_repeats, repeats_at_once
        Cohorts of the downstream study, and how many are fitted side by side.
    num_datasets, dataset_records
        M, and records of a synthetic data set.
    downstream_clip_norms
        C of the aligned runs behind synthetic data: the paper's, and one that hardly clips.
    slope_threshold
        Largest drift over a converged tail.
    first_seed
        Run k has seed ``first_seed + k``, whatever the variant and ε.
    census
        ``"income"`` (Census-Income) or ``"poverty"`` (the paper's US Census 1990).
    """

    num_records: int = 58_261
    census_records: int | None = None
    num_components: int = 16
    sampling_rate: float = 0.01
    learning_rate: float = 1e-3
    num_steps: int = 100_000
    run_lengths: tuple[int, ...] = (20_000, 50_000, 100_000, 200_000, 400_000, 800_000)
    census_steps: int = 100_000
    downstream_steps: int = 400_000
    num_starts: int = 10
    runs_per_start: int = 1
    initial_scales: tuple[float, ...] = (0.01, 0.032, 0.1, 0.316, 1.0)
    epsilons: tuple[float, ...] = (1.0, 2.0, 4.0, 10.0)
    natural_clip_norms: tuple[float, ...] = (0.01, 0.02, 0.1)
    num_repeats: int = 100
    repeats_at_once: int = 10
    num_datasets: int = 100
    dataset_records: int = 58_261
    downstream_clip_norms: tuple[float, ...] = (2.0, 6.0)
    slope_threshold: float = 0.05
    first_seed: int = 123
    census: str = "income"

    def __post_init__(self) -> None:
        if self.num_starts * self.runs_per_start < 2:
            raise ValueError("num_starts times runs_per_start must be at least 2: a spread over runs is asked for.")
        if self.num_repeats % self.repeats_at_once:
            raise ValueError(
                f"num_repeats must be a multiple of repeats_at_once, got {self.num_repeats} and {self.repeats_at_once}."
            )
        if self.census not in CENSUSES:
            raise ValueError(f"census must be one of {', '.join(CENSUSES)}, got {self.census!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values as JSON reads them back."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


# Fewer steps take a larger rate to go as far. At the same ε each of them carries less noise, and a smaller table bears
# more of it per record: numbers of one size are not those of another.
SIZES: Mapping[str, Settings] = {
    "full": Settings(),
    "gpu": Settings(
        learning_rate=5e-3,
        num_steps=20_000,
        run_lengths=(4_000, 10_000, 20_000, 40_000),
        census_steps=20_000,
        downstream_steps=20_000,
        num_starts=2,
        runs_per_start=5,
        num_datasets=50,
    ),
    "small": Settings(
        num_records=20_000,
        census_records=20_000,
        num_components=6,
        learning_rate=5e-3,
        num_steps=4000,
        run_lengths=(1000, 4000),
        census_steps=4000,
        downstream_steps=4000,
        num_starts=2,
        runs_per_start=2,
        initial_scales=(0.1, 1.0),
        epsilons=(1.0,),
        natural_clip_norms=(0.01, 0.02, 0.1),
        num_repeats=20,
        repeats_at_once=10,
        num_datasets=20,
        dataset_records=10_000,
    ),
    "quick": Settings(
        num_records=1500,
        census_records=1500,
        num_components=3,
        sampling_rate=0.05,
        learning_rate=0.02,
        num_steps=60,
        run_lengths=(30, 60),
        census_steps=60,
        downstream_steps=60,
        num_starts=1,
        runs_per_start=2,
        initial_scales=(0.1, 1.0),
        epsilons=(10.0,),
        natural_clip_norms=(0.1,),
        num_repeats=2,
        repeats_at_once=2,
        num_datasets=3,
        dataset_records=3000,
        downstream_clip_norms=(2.0,),
    ),
}
