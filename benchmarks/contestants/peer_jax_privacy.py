"""jax-privacy 2.0.0: its Poisson sampler, ``clipped_grad`` and Gaussian privatizer around an ELBO written by hand.

It has no modelling language and no training loop. What is released of a record is the gradient of its log likelihood
with respect to location and raw scale of a mean field, with a draw of its own; prior and entropy know no record and
are added after the noise. Batches are padded to a multiple of ``PADDING``, so that few shapes are compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from harness.judge import NUM_DRAWS
from harness.tasks import CODE, LAYERS, Arrays, Task, Trained, prior_precision
from jax_privacy import clipped_grad, noise_addition
from jax_privacy.batch_selection import CyclicPoissonSampling, PartitionType, pad_to_multiple_of

PADDING = {"logistic": 100, "hierarchical": 50, "vae": 32}
FIRST_SCALE = -2.0
_compiled: dict[Task, Any] = {}
_warm: set[Task] = set()


def normal_scale(raw: jax.Array) -> jax.Array:
    return jax.nn.softplus(raw)


def regression_loss(task: Task) -> Callable[..., jax.Array]:
    """Negative log likelihood of one record at a draw from the mean field."""

    def loss(params: Any, record: Any, key: jax.Array) -> jax.Array:
        location, raw = params["location"], params["raw_scale"]
        weights = location + normal_scale(raw) * jax.random.normal(key, location.shape)
        x, group, y = record
        logit = jnp.dot(x, weights.reshape(task.num_groups, task.dimension)[group])
        return jax.nn.softplus(logit) - y * logit

    return loss


def image_loss(params: Any, record: Any, key: jax.Array) -> jax.Array:
    """Negative ELBO of one image with one draw of its code."""

    def dense(name: str, inputs: jax.Array) -> jax.Array:
        return inputs @ params[f"{name} weights"] + params[f"{name} bias"]

    (image,) = record
    hidden = jax.nn.softplus(dense("encoder in", image))
    location, log_scale = dense("encoder location", hidden), dense("encoder scale", hidden)
    code = location + jnp.exp(log_scale) * jax.random.normal(key, (CODE,))
    logits = dense("decoder out", jax.nn.softplus(dense("decoder in", code)))
    divergence = 0.5 * jnp.sum(jnp.exp(2 * log_scale) + location**2 - 1 - 2 * log_scale)
    return divergence + jnp.sum(jax.nn.softplus(logits) - image * logits)


def without_records(task: Task, data: Arrays) -> Callable[[Any], jax.Array]:
    """Divergence of the mean field from the prior, up to a constant: the part of the negative ELBO without records."""
    precision = jnp.asarray(prior_precision(task, data))

    def divergence(params: Any) -> jax.Array:
        shape = (task.num_groups, task.dimension)
        location, scale = params["location"].reshape(shape), normal_scale(params["raw_scale"]).reshape(shape)
        variances = jnp.diag(precision) @ scale**2
        return 0.5 * (jnp.sum(location * (precision @ location)) + jnp.sum(variances)) - jnp.sum(jnp.log(scale))

    return divergence


def first_params(task: Task, key: jax.Array) -> dict[str, jax.Array]:
    if task.name != "vae":
        size = task.num_groups * task.dimension
        return {"location": jnp.zeros(size), "raw_scale": jnp.full(size, FIRST_SCALE)}
    params = {}
    for each, (name, size) in zip(jax.random.split(key, len(LAYERS)), LAYERS.items(), strict=True):
        params[f"{name} weights"] = jax.random.normal(each, size) / size[0] ** 0.5
        params[f"{name} bias"] = jnp.zeros(size[1])
    return params


def compiled(task: Task, data: Arrays) -> tuple[Any, Any, Any]:
    """``begin(seed) -> state``, the jitted step, and the records on the device; built once per task."""
    if task in _compiled:
        return _compiled[task]
    vae = task.name == "vae"
    columns = (data["images"].astype(np.float32),) if vae else tuple(data[name] for name in ("x", "group", "y"))
    gradient = clipped_grad(
        image_loss if vae else regression_loss(task),
        l2_clip_norm=task.clip_norm,
        keep_batch_dim=False,
        prng_argnum=2,
    )
    noise = noise_addition.gaussian_privatizer(stddev=task.noise_multiplier * gradient.sensitivity(), prng_key=0)
    optimizer = optax.adam(task.learning_rate)
    public = None if vae else jax.grad(without_records(task, data))

    @jax.jit
    def step(state: Any, records: Any, index: jax.Array) -> Any:
        params, noise_state, optimizer_state, key = state
        key, draw_key = jax.random.split(key)
        batch = jax.tree.map(lambda column: column[index], records)  # -1 is padding: read, then given no weight
        clipped = gradient(params, batch, draw_key, is_padding_example=index < 0)
        noisy, noise_state = noise.update(clipped, noise_state)
        descent = jax.tree.map(lambda each: each / task.sampling_rate, noisy)
        if public is not None:
            descent = jax.tree.map(jnp.add, descent, public(params))
        updates, optimizer_state = optimizer.update(descent, optimizer_state)
        return optax.apply_updates(params, updates), noise_state, optimizer_state, key

    def begin(seed: int) -> Any:
        start_key, noise_key, draw_key = jax.random.split(jax.random.key(seed), 3)
        params = first_params(task, start_key)
        noise_state = (noise_key, *noise.init(params)[1:])  # its own key would be the same in every run
        return params, noise_state, optimizer.init(params), draw_key

    _compiled[task] = begin, step, tuple(map(jnp.asarray, columns))
    return _compiled[task]


def warm_up(task: Task, step: Any, state: Any, records: Any) -> None:
    """Compile the step for every size of a padded batch that a later run may meet; a first model does without."""
    spread = 5 * task.batch_size**0.5
    padding = PADDING[task.name]
    for size in range(int(task.batch_size - spread), int(task.batch_size + spread) + padding, padding):
        step(state, records, pad_to_multiple_of(np.full(size, -1, np.int32), padding))
    _warm.add(task)


def train(task: Task, data: Arrays, seed: int) -> Trained:
    first = task not in _compiled
    begin, step, records = compiled(task, data)
    state = jax.block_until_ready(begin(seed))
    if not first and task not in _warm:
        warm_up(task, step, state, records)
    sampling = CyclicPoissonSampling(task.sampling_rate, task.num_steps, partition_type=PartitionType.INDEPENDENT)
    start = time.perf_counter()
    for index in sampling.batch_iterator(task.num_records, seed):
        state = step(state, records, pad_to_multiple_of(index, PADDING[task.name]))
    params = jax.block_until_ready(state)[0]
    seconds = (time.perf_counter() - start) / task.num_steps
    if task.name == "vae":
        return Trained(seconds, {name: np.asarray(values) for name, values in params.items()})
    scale = normal_scale(params["raw_scale"])
    noise = jax.random.normal(jax.random.key(seed), (NUM_DRAWS, *scale.shape))
    return Trained(seconds, {"weights": np.asarray(params["location"] + scale * noise)})
