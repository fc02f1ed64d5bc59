"""The three private tasks that all peers are given, and their records. Needs numpy only: it runs in every environment.

logistic
    yᵢ ~ Bernoulli(sigmoid(xᵢ·w)), w ~ N(0, I).
hierarchical
    The model of the d3p paper (section 3.3): groups l with public characteristics gₗ, M ~ N(0, 4²) elementwise,
    wₗ ~ N(M gₗ, I), yᵢ ~ Bernoulli(sigmoid(xᵢ·wₗᵢ)).
vae
    A variational auto-encoder of black and white MNIST digits, 784-400-50 and back: 688,884 parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

Arrays = Mapping[str, np.ndarray]
PRIOR_SCALE = 4.0  # of the elements of M
PIXELS, HIDDEN, CODE = 784, 400, 50
# dense layers of the auto-encoder: (inputs, outputs); the encoder's are used by the guide, the decoder's by the model
LAYERS = {
    "encoder in": (PIXELS, HIDDEN),
    "encoder location": (HIDDEN, CODE),
    "encoder scale": (HIDDEN, CODE),  # log of the standard deviation
    "decoder in": (CODE, HIDDEN),
    "decoder out": (HIDDEN, PIXELS),
}


@dataclass(frozen=True)
class Task:
    """Sizes and settings that every peer gets alike, but for ``noise_multiplier``: it makes ε the same for all.

    ``noise_multiplier`` is the standard deviation of the noise on the sum over the batch, in clip norms.
    """

    name: str
    num_records: int
    num_test: int
    dimension: int
    batch_size: int  # expected, where batches are Poisson
    num_steps: int
    clip_norm: float
    learning_rate: float  # of Adam, constant
    num_groups: int = 1
    num_characteristics: int = 0
    epsilon: float = 1.0
    delta: float = 1e-5
    noise_multiplier: float = math.nan

    @property
    def sampling_rate(self) -> float:
        return self.batch_size / self.num_records

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Trained(NamedTuple):
    """What a contestant hands in.

    Attributes
    ----------
    seconds_per_step
        Of the training loop alone: without imports, compilation and what follows the last step.
    parameters
        ``{"weights": (draws, groups * dimension)}`` from the posterior, one draw for a point estimate; or, of an
        auto-encoder, ``{"<layer> weights": (inputs, outputs), "<layer> bias": (outputs,)}`` for :data:`LAYERS`.
    """

    seconds_per_step: float
    parameters: Arrays


LOGISTIC = Task("logistic", 50_000, 10_000, 50, 500, 1_000, clip_norm=2.0, learning_rate=0.02)
HIERARCHICAL = Task(
    "hierarchical",
    20_000,
    10_000,
    5,
    200,
    2_000,
    clip_norm=1.0,
    learning_rate=0.02,
    num_groups=10,
    num_characteristics=3,
)
VAE = Task("vae", 60_000, 10_000, PIXELS, 128, 30, clip_norm=10.0, learning_rate=1e-3)


def simulated(task: Task) -> dict[str, np.ndarray]:
    """Records for training and for testing, simulated from the model with weights that are also returned.

    ``x``, ``y`` (float32 0/1), ``group`` (int32; zeros without groups) and ``test_x``, ``test_y``, ``test_group`` are
    records; ``characteristics`` (groups, K) and ``true_weights`` (groups, dimension) are not.
    """
    generator = np.random.default_rng(20_261_115)
    total, shape = task.num_records + task.num_test, (task.num_groups, task.dimension)
    characteristics = generator.normal(size=(task.num_groups, task.num_characteristics))
    if task.num_characteristics:
        weights = characteristics @ generator.normal(size=(task.num_characteristics, task.dimension))
        weights = 0.5 * (weights + generator.normal(size=shape))
    else:
        weights = 2.0 / math.sqrt(task.dimension) * generator.normal(size=shape)
    x = generator.normal(size=(total, task.dimension))
    group = generator.integers(0, task.num_groups, total)
    logits = np.sum(x * weights[group], axis=1)
    y = generator.uniform(size=total) < 1 / (1 + np.exp(-logits))
    columns = {"x": x.astype(np.float32), "y": y.astype(np.float32), "group": group.astype(np.int32)}
    return {
        **{name: values[: task.num_records] for name, values in columns.items()},
        **{f"test_{name}": values[task.num_records :] for name, values in columns.items()},
        "characteristics": characteristics.astype(np.float32),
        "true_weights": weights.astype(np.float32),
    }


def black_and_white(train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    """Grey images (count, 28, 28) of 0 to 255 as rows of 0 and 1, every pixel drawn once with its grey value."""
    generator = np.random.default_rng(20_261_115)

    def drawn(images: np.ndarray) -> np.ndarray:
        grey = images.reshape(len(images), PIXELS)
        return (generator.integers(0, 255, grey.shape, dtype=np.uint8) < grey).astype(np.uint8)

    return {"images": drawn(train), "test_images": drawn(test)}


def prior_precision(task: Task, data: Arrays) -> np.ndarray:
    """Precision over groups, (groups, groups), of each column of the weights, with M integrated out.

    For libraries without a modelling language. Given M, a column of the weights is N(G mₖ, I) over groups, with
    mₖ ~ N(0, 4² I): its marginal is N(0, I + 4² G Gᵀ), G the ``characteristics``. One group has N(0, 1).
    """
    G = np.asarray(data["characteristics"], np.float64)
    return np.linalg.inv(np.eye(task.num_groups) + PRIOR_SCALE**2 * G @ G.T).astype(np.float32)
