"""What the study fixes: the published settings, and smaller sizes for smaller machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import dpvi
from dpvi.families import Family
from dpvi.gradients import Estimator
from experiments.common.sized_command import ADJACENCIES


class Method(NamedTuple):
    """A line of the figure."""

    label: str
    family: Family
    estimator: Estimator


METHODS: Mapping[str, Method] = {
    "vanilla": Method("full rank, vanilla", dpvi.FullRank(), dpvi.Vanilla()),
    "aligned": Method("full rank, aligned", dpvi.FullRank(), dpvi.Aligned()),
    "low_rank": Method("low rank (10), aligned", dpvi.LowRank(10), dpvi.Aligned()),
}


@dataclass(frozen=True)
class Settings:
    """One study.

    Parameters
    ----------
    num_steps, num_seeds, learning_rate
        T, repeated runs and Adam's rate; the paper has 100,000, 50 and 0.001.
    dimensions, densities
        d, without the intercept, and the share of non-zero entries in the covariance factor.
    clip_norms
        C: 0.2 as printed in the paper's appendix J, 2 as in its program.
    epsilon, sampling_rate, delta_factor
        The budget, κ, and δ = ``delta_factor``/N.
    num_records
        N of the training and of the test part.
    noise
        A key of :data:`~experiments.common.sized_command.ADJACENCIES`.
    first_seed, data_seed
        Repeat k runs with seed ``first_seed + k``; data and the common start are the same for all of them.
    """

    num_steps: int = 100_000
    num_seeds: int = 50
    learning_rate: float = 1e-3
    dimensions: tuple[int, ...] = (100, 200)
    densities: tuple[float, ...] = (0.2, 0.8)
    clip_norms: tuple[float, ...] = (0.2, 2.0)
    epsilon: float = 1.0
    sampling_rate: float = 0.01
    delta_factor: float = 0.1
    num_records: int = 10_000
    noise: str = "exact"
    first_seed: int = 123
    data_seed: int = 123

    def __post_init__(self) -> None:
        if self.noise not in ADJACENCIES:
            raise ValueError(f"noise must be one of {', '.join(ADJACENCIES)}, got {self.noise!r}.")
        if self.num_seeds < 2:
            raise ValueError(f"num_seeds must be at least 2, an error over runs being asked for, got {self.num_seeds}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values as JSON reads them back."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


# Short runs have a larger rate: Adam moves a parameter by at most rate × steps, and starts are up to 2 away from 0.
SIZES: Mapping[str, Settings] = {
    "full": Settings(),
    "gpu": Settings(num_seeds=10),
    "small": Settings(num_steps=3000, num_seeds=3, learning_rate=0.005, dimensions=(100,)),
    "quick": Settings(
        num_steps=60,
        num_seeds=2,
        learning_rate=0.03,
        dimensions=(4,),
        densities=(0.8,),
        clip_norms=(2.0,),
        sampling_rate=0.1,
        num_records=300,
    ),
}
