"""The images, and what a trained auto-encoder is judged by."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import Trace_ELBO

from experiments.vae.network import black_and_white, guide, model
from experiments.vae.settings import Settings
from studies.datasets import fashion_mnist, mnist

_LOADERS = {"mnist": mnist, "fashion_mnist": fashion_mnist}
_JUDGED_AT_A_TIME = 1_000


class Problem(NamedTuple):
    """Grey images, float32 between 0 and 1, one row of 784 pixels each."""

    train: np.ndarray
    test: np.ndarray


def load(dataset: str, settings: Settings) -> Problem:
    """The first images of the published parts, as many as the size asks for."""
    split = _LOADERS[dataset]()
    sizes = (settings.num_records, settings.num_test_records)
    return Problem(*(_grey(part.images[:size]) for part, size in zip(split, sizes, strict=True)))


def simulated(settings: Settings) -> Problem:
    """Images of noise, for what asks for time and memory alone or has no data at hand."""
    random = np.random.default_rng(0)
    sizes = (settings.num_records, settings.num_test_records)
    return Problem(*(random.integers(0, 256, (size, 784)).astype(np.float32) / np.float32(255) for size in sizes))


def network_sizes(settings: Settings) -> dict[str, int]:
    return {"hidden": settings.hidden, "code_size": settings.code_size}


def loss_on_test_images(
    parameters: dict[str, Any], problem: Problem, settings: Settings, grey_images: bool = False
) -> float:
    """Negative ELBO per test image, black and white unless ``grey_images``, with one draw of its code each."""
    groups = range(0, len(problem.test), _JUDGED_AT_A_TIME)
    keys = jax.random.split(jax.random.key(1), len(groups))
    losses = [
        _total_loss(
            key,
            parameters,
            jnp.asarray(problem.test[at : at + _JUDGED_AT_A_TIME]),
            grey_images,
            settings.hidden,
            settings.code_size,
        )
        for key, at in zip(keys, groups, strict=True)
    ]
    return float(np.sum(losses, dtype=np.float64)) / len(problem.test)


@partial(jax.jit, static_argnums=(3, 4, 5))
def _total_loss(
    key: jax.Array, parameters: dict[str, Any], grey: jax.Array, grey_images: bool, hidden: int, code_size: int
) -> jax.Array:
    pixels, draw = jax.random.split(key)
    images = grey if grey_images else black_and_white(pixels, grey)
    parts = (partial(part, hidden=hidden, code_size=code_size) for part in (model, guide))
    with jax.numpy_dtype_promotion("standard"):  # NumPyro's own code mixes kinds of numbers
        return Trace_ELBO().loss(draw, parameters, *parts, images)


def _grey(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
