"""The three models in NumPyro's language, for dpvi, d3p and NumPyro itself; the same text runs on all their versions.

``num_records`` is the size of the whole data set when a model is handed one batch of it. dpvi hands a model what it
wants scored and needs no number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from harness.tasks import CODE, HIDDEN, LAYERS, PIXELS, PRIOR_SCALE, Arrays, Task
from numpyro.infer.autoguide import AutoDiagonalNormal
from numpyro.infer.initialization import init_to_feasible


def logistic(x: Any, y: Any = None, num_records: int | None = None) -> None:
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", num_records or x.shape[0], x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def hierarchical(x: Any, group: Any, y: Any = None, num_records: int | None = None, *, characteristics: Any) -> None:
    shape = (characteristics.shape[1], x.shape[1])
    M = numpyro.sample("M", dist.Normal(0.0, PRIOR_SCALE).expand(shape).to_event(2))
    weights = numpyro.sample("weights", dist.Normal(characteristics @ M, 1.0).to_event(2))
    with numpyro.plate("records", num_records or x.shape[0], x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.sum(x * weights[group], axis=-1)), obs=y)


def _start(key: Any, shape: tuple[int, int]) -> Any:
    return jax.random.normal(key, shape) / np.sqrt(shape[0])


def dense(name: str, inputs: Any, size: int) -> Any:
    weights = numpyro.param(f"{name} weights", partial(_start, shape=(inputs.shape[-1], size)))
    return inputs @ weights + numpyro.param(f"{name} bias", jnp.zeros(size))


def decoder(images: Any, num_records: int | None = None) -> None:
    """The model of an image: code, hidden layer, pixels."""
    with numpyro.plate("records", num_records or images.shape[0], images.shape[0]):
        code = numpyro.sample("code", dist.Normal(0.0, 1.0).expand([CODE]).to_event(1))
        logits = dense("decoder out", jax.nn.softplus(dense("decoder in", code, HIDDEN)), PIXELS)
        numpyro.sample("image", dist.Bernoulli(logits=logits).to_event(1), obs=images)


def encoder(images: Any, num_records: int | None = None) -> None:
    """The guide: the distribution of an image's code, computed from the image."""
    hidden = jax.nn.softplus(dense("encoder in", images, HIDDEN))
    location, log_scale = dense("encoder location", hidden, CODE), dense("encoder scale", hidden, CODE)
    with numpyro.plate("records", num_records or images.shape[0], images.shape[0]):
        numpyro.sample("code", dist.Normal(location, jnp.exp(log_scale)).to_event(1))


def model_of(task: Task, data: Arrays) -> Callable[..., None]:
    if task.name == "hierarchical":
        return partial(hierarchical, characteristics=jnp.asarray(data["characteristics"]))
    return {"logistic": logistic, "vae": decoder}[task.name]


def guide_of(task: Task, model: Callable[..., None]) -> Callable[..., None]:
    """Mean field with normals that starts at zero, as all contestants do, or the encoder."""
    return encoder if task.name == "vae" else AutoDiagonalNormal(model, init_loc_fn=init_to_feasible)


def records_of(task: Task, data: Arrays) -> tuple[np.ndarray, ...]:
    """The positional arguments of the model."""
    if task.name == "vae":
        return (data["images"].astype(np.float32),)
    names = ("x", "group", "y") if task.name == "hierarchical" else ("x", "y")
    return tuple(data[name] for name in names)


def handed_in(task: Task, guide: Any, params: dict[str, Any], seed: int, num_draws: int) -> Arrays:
    """Trained parameters of a guide as the judge wants them."""
    if task.name == "vae":
        names = [f"{layer} {part}" for layer in LAYERS for part in ("weights", "bias")]
        return {name: np.asarray(params[name]) for name in names}
    draws = guide.sample_posterior(jax.random.PRNGKey(seed), params, sample_shape=(num_draws,))
    return {"weights": np.asarray(draws["weights"]).reshape(num_draws, -1)}
