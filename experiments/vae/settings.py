"""Sizes of the study and what the paper reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

DATASETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
PARTS = ("training", "readings", "samplers", "batches", "memory")
PRECISIONS = ("default", "highest")
NUM_PIXELS = 784

# d3p (PoPETs 2022), Table 2: seconds per epoch on a V100 and loss on the test set after 20 epochs, mean and its error
PAPER = {
    "mnist": {"private": (0.56, 174.06, 0.59), "not private": (0.34, 99.63, 0.30)},
    "fashion_mnist": {"private": (0.55, 304.74, 0.68), "not private": (0.33, 243.99, 0.29)},
}
# Table 3: what the paper's sampler and jax.random.choice add up to in an epoch, training included
PAPER_SAMPLERS = {"mnist": (0.56, 0.66), "fashion_mnist": (0.55, 0.65)}


@dataclass(frozen=True)
class Settings:
    """One size of the study. The network has one hidden layer each way and a code of normals."""

    num_records: int = 60_000
    num_test_records: int = 10_000
    hidden: int = 400
    code_size: int = 50
    batch_size: int = 128
    num_epochs: float = 20.0
    repeats: int = 5
    noise_multiplier: float = 1.5
    clip_norm: float = 10.0
    delta: float = 1e-5
    learning_rate: float = 1e-3
    batch_sizes: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048)
    steps_per_batch_size: int = 100
    sampler_steps: int = 1_000
    memory_batch_size: int = 2_048

    @property
    def sampling_rate(self) -> float:
        return self.batch_size / self.num_records

    @property
    def num_steps(self) -> int:
        return round(self.num_epochs / self.sampling_rate)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"batch_sizes": list(self.batch_sizes)}


def num_parameters(settings: Settings) -> int:
    """Of encoder and decoder: two layers between pixels and hidden units, three between these and the code."""
    weights = 2 * NUM_PIXELS * settings.hidden + 3 * settings.hidden * settings.code_size
    return weights + 2 * settings.hidden + 2 * settings.code_size + NUM_PIXELS


SIZES = {
    "full": Settings(),
    "small": Settings(num_epochs=1, repeats=1, batch_sizes=(32, 128, 512), steps_per_batch_size=10, sampler_steps=300),
    "quick": Settings(
        num_records=300,
        num_test_records=40,
        hidden=8,
        code_size=2,
        batch_size=20,
        num_epochs=0.4,
        repeats=2,
        delta=1e-4,
        batch_sizes=(20,),
        steps_per_batch_size=4,
        sampler_steps=5,
        memory_batch_size=30,
    ),
}
