"""A variational auto-encoder: a latent code per image, encoder in the guide, decoder in the model.

By default 8 × 8 images of bars; with --full MNIST and the network of the d3p paper, 784-400-50 with 688,884 parameters,
batches of 128, 20 epochs, σ = 1.5, images made black and white anew whenever they are drawn.

    python -m examples.variational_auto_encoder [--full] [--use fit] [--seed 0]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax

import dpvi
from dpvi.run.dpsvi import DPSVI
from examples.common import arguments, train


def dense(name, x, size):
    """x W + b with parameters ``name``; a network of one's own needs no library."""
    weights = numpyro.param(f"{name} weights", partial(_start, shape=(x.shape[-1], size)))
    return x @ weights + numpyro.param(f"{name} bias", jnp.zeros(size))


def _start(key, shape):
    return jax.random.normal(key, shape) / np.sqrt(shape[0])


def black_and_white(images):
    """Every pixel 0 or 1, drawn with its grey value; the key is the image's own and the same in guide and model."""
    return jax.random.bernoulli(numpyro.prng_key(), images).astype(images.dtype)


def model(images, hidden=32, code_size=4):
    with numpyro.plate("records", images.shape[0]):
        code = numpyro.sample("code", dist.Normal(0.0, 1.0).expand([code_size]).to_event(1))
        logits = dense("decoder out", jax.nn.softplus(dense("decoder in", code, hidden)), images.shape[1])
        numpyro.sample("image", dist.Bernoulli(logits=logits).to_event(1), obs=black_and_white(images))


def guide(images, hidden=32, code_size=4):
    features = jax.nn.softplus(dense("encoder in", black_and_white(images), hidden))
    location, scale = dense("encoder location", features, code_size), dense("encoder scale", features, code_size)
    with numpyro.plate("records", images.shape[0]):
        numpyro.sample("code", dist.Normal(location, jnp.exp(scale)).to_event(1))


def bars(random: np.random.Generator, count: int) -> np.ndarray:
    """Images with one dark row or column each."""
    images = np.full((count, 8, 8), 0.05)
    place, across = random.integers(0, 8, count), random.uniform(size=count) < 0.5
    images[across, place[across], :] = 0.95
    images[~across, :, place[~across]] = 0.95
    return images.reshape(count, -1)


def main(given: Sequence[str] | None = None) -> dict[str, float]:
    """Run the example; returns negative ELBOs per fresh image, of the start and after training."""
    options = arguments(__doc__, given)
    if options.full:
        from studies.datasets.mnist import mnist

        images, fresh = (part.images.reshape(-1, 784) / 255.0 for part in mnist())
        sizes, rate, num_epochs, optimizer = {"hidden": 400, "code_size": 50}, 128 / 60_000, 20, optax.adam(1e-3)
        num_steps = round(num_epochs / rate)
    else:
        random = np.random.default_rng(0)
        images, fresh = bars(random, 4_000), bars(random, 500)
        sizes, rate, num_steps, optimizer = {"hidden": 32, "code_size": 4}, 0.02, 300, optax.adam(1e-2)
    plan = dpvi.plan(delta=1e-6, sampling_rate=rate, num_steps=num_steps, clip_norm=10.0, noise_multiplier=1.5)
    pair = partial(model, **sizes), partial(guide, **sizes)
    trace = train(options, *pair, optimizer, plan, images).trace
    judge = DPSVI(*pair, optimizer, plan=plan)  # a loss may be had of public data: here, of simulated or test images
    state = judge.init(None, fresh)
    states = [state._replace(xi=jnp.asarray(xi)) for xi in (trace.iterates[0], trace.final)]
    start, trained = (judge.evaluate(each, fresh, data_is_public=True) / len(fresh) for each in states)
    print(plan.guarantee)
    print(f"negative ELBO per fresh image: {trained:.1f}, at the start {start:.1f}")
    return {"trained": trained, "start": start}


if __name__ == "__main__":
    main()
