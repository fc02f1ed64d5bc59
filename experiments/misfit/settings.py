"""What the study fixes: budgets, seeds, and the settings of the versions before."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

EPSILONS = (0.1, 0.3, 1.0, 3.0)
NUM_SEEDS = 40
GROUP = 10  # seeds of a cell that run together and share compiled programs; a study that is killed loses one group
# The default's own settings were chosen on seeds 0 to 9: the study has to judge them on others.
FIRST_SEED = 1000

# what the study is asked to show
INSIDE, RMS_Z, CELLS = 0.93, 1.15, 0.90
WORST_SLOPES = 0.85
WIDTH_BY_EPSILON = ((1.0, 1.15), (0.3, 1.4))  # (least ε, median width over the limit)
ENOUGH_SIGNAL = 10.0  # widths count where N μ² is above this many d
WORST_WIDTH = 3.0  # mean width over the oracle's
WARNED_MISSING, WARNED_HONEST = 0.90, 0.05


@dataclass(frozen=True)
class Settings:
    """One study.

    Parameters
    ----------
    num_records
        Of every problem; ``None`` for those of the full study, which differ between problems.
    sampling_rate, num_steps, clip_norm
        κ, T and C of the methods that need to be told: the versions before.
    first_seed
        Run k has seed ``first_seed + k``: of the mechanism, and of simulated records.
    """

    num_records: int | None = None
    sampling_rate: float = 0.1
    num_steps: int = 10_000
    clip_norm: float = 3.0
    first_seed: int = FIRST_SEED

    def to_dict(self) -> dict[str, Any]:
        """Plain values as JSON reads them back."""
        return asdict(self)


# quick shows that everything runs; its numbers mean nothing
SIZES = {"full": Settings(), "quick": Settings(num_records=1000, num_steps=500)}
