"""The auto-encoder of the d3p paper: softplus layers, a code of independent normals, pixels black or white.

Training images are grey. Each is made black and white anew whenever it is drawn, a pixel white with the probability of
its grey value.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist


def _dense(name: str, x: jax.Array, size: int) -> jax.Array:
    weights = numpyro.param(f"{name} weights", partial(_glorot, shape=(x.shape[-1], size)))
    return x @ weights + numpyro.param(f"{name} bias", jnp.zeros(size))


def _glorot(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    return jax.random.normal(key, shape) * np.sqrt(2 / sum(shape))


def black_and_white(key: jax.Array, grey: jax.Array) -> jax.Array:
    """Every pixel 0 or 1, with mean ``grey``."""
    return jax.random.bernoulli(key, grey).astype(grey.dtype)


def model(images: jax.Array, hidden: int, code_size: int) -> None:
    """The decoder: from a code per image to the probability of each pixel."""
    with numpyro.plate("records", images.shape[0]):
        code = numpyro.sample("code", dist.Normal(0.0, 1.0).expand([code_size]).to_event(1))
        logits = _dense("decoder out", jax.nn.softplus(_dense("decoder in", code, hidden)), images.shape[1])
        # not validated: a grey pixel is no draw from a Bernoulli, but may be scored by its cross-entropy
        numpyro.sample("image", dist.Bernoulli(logits=logits, validate_args=False).to_event(1), obs=images)


def guide(images: jax.Array, hidden: int, code_size: int) -> None:
    """The encoder: from an image to the law of its code."""
    features = jax.nn.softplus(_dense("encoder in", images, hidden))
    location, log_scale = (_dense(f"encoder {part}", features, code_size) for part in ("location", "scale"))
    with numpyro.plate("records", images.shape[0]):
        numpyro.sample("code", dist.Normal(location, jnp.exp(log_scale)).to_event(1))


def of_grey_images(part: Any) -> Any:
    """``part``, model or guide, on grey images; ``prng_key`` is the image's own and gives both the same pixels."""

    def called(images: jax.Array, hidden: int, code_size: int) -> None:
        part(black_and_white(numpyro.prng_key(), images), hidden, code_size)

    return called
