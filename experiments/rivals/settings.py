"""Settings of the study: which methods run on which problem with which budget."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dpvi.privacy.gaussian import gaussian_epsilon, gaussian_signal

REFERENCE, OURS = "without privacy", "dpvi"
_DELTA = 1e-6


@dataclass(frozen=True)
class Setting:
    """One row block of the table: a problem, a budget for adding or removing one record, and who takes part."""

    title: str
    problem: str
    epsilon: float
    delta: float
    methods: tuple[str, ...]

    @property
    def signal(self) -> float:
        """μ: the Gaussian mechanism with this budget."""
        return gaussian_signal(self.epsilon, self.delta)


LINEAR = ("noisy moments", "AdaSSP, bootstrap", "diffprivlib")
LOGISTIC = ("noisy Newton, T = 5", "noisy Newton, T = 10", "diffprivlib")
SETTINGS: dict[str, Setting] = {
    "awan-1": Setting("Awan and Wang, n = 1,000", "arcsine-1000", 1.0, 1e-7, LOGISTIC),
    "awan-0.3": Setting("Awan and Wang, n = 2,000", "arcsine-2000", 0.3, 2.5e-8, LOGISTIC),
    "binagg-mu": Setting(
        "BinAgg, μ = 1", "cube", gaussian_epsilon(1.0, _DELTA), _DELTA, ("BinAgg", "BinAgg, charged", *LINEAR)
    ),
    "binagg-1": Setting("BinAgg, ε = 1", "cube", 1.0, _DELTA, ("BinAgg", "BinAgg, charged", *LINEAR)),
    "newton": Setting("noisy Newton, n = 5,000, d = 4", "four-columns", 1.0, _DELTA, LOGISTIC),
    "wages": Setting("wages, simulated, n = 50,000", "wages", 1.0, _DELTA, LINEAR),
    "oracle-10": Setting("exact posterior, n = 100", "oracle", 10.0, _DELTA, ("data augmentation", *LINEAR)),
    "oracle-3": Setting("exact posterior, n = 100", "oracle", 3.0, _DELTA, ("data augmentation", *LINEAR)),
}


@dataclass(frozen=True)
class Settings:
    """One size of the study; the data sets of dpvi are an option of the command and can grow."""

    num_data_sets: int = 200
    part: int = 20  # data sets in a cell of a rival
    own_part: int = 5  # and of ours
    num_records: int | None = None  # instead of a problem's own
    num_bootstraps: int = 400
    num_sweeps: int = 20_000  # of data augmentation, the first third left out
    settings: tuple[str, ...] = tuple(SETTINGS)

    def to_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


SIZES = {
    "small": Settings(),
    "quick": Settings(
        num_data_sets=4,
        part=4,
        own_part=1,
        num_records=300,
        num_bootstraps=50,
        num_sweeps=60,
        settings=("awan-1", "binagg-mu", "newton", "oracle-10"),
    ),
}
