"""d3p 0.2.0 by its documented recipe: ``DPSVI``, fixed-size batches without replacement, a jitted ``fori_loop``.

Every record's gradient is clipped with a share 1/N of prior and entropy in it, and has a draw of its own.
``dp_scale`` is the noise multiplier; the noise falls on the mean over the batch.
"""

from __future__ import annotations

import time
from typing import Any

import d3p.random
import jax
import jax.numpy as jnp
import numpyro
from d3p.minibatch import subsample_batchify_data
from d3p.svi import DPSVI
from harness.judge import NUM_DRAWS
from harness.tasks import Arrays, Task, Trained
from numpyro.infer import Trace_ELBO

from contestants.peer_models import guide_of, handed_in, model_of, records_of

_compiled: dict[Task, Any] = {}


def compiled(task: Task, data: Arrays) -> tuple[Any, Any, Any]:
    """The guide, ``begin(seed) -> (state, batches)``, and ``fit(state, batches) -> trained parameters``, compiled."""
    if task in _compiled:
        return _compiled[task]
    model = model_of(task, data)
    guide = guide_of(task, model)
    records = tuple(map(jnp.asarray, records_of(task, data)))
    init_batches, get_batch = subsample_batchify_data(records, batch_size=task.batch_size)
    svi = DPSVI(
        model,
        guide,
        numpyro.optim.Adam(task.learning_rate),
        Trace_ELBO(),
        clipping_threshold=task.clip_norm,
        dp_scale=task.noise_multiplier,
        num_records=task.num_records,
    )

    def begin(seed: int) -> tuple[Any, Any]:
        batch_key, svi_key = d3p.random.split(d3p.random.PRNGKey(seed), 2)
        _, batches = init_batches(batch_key)
        return svi.init(svi_key, *get_batch(0, batches)), batches

    @jax.jit
    def fit(state: Any, batches: Any) -> Any:
        def body(step: jax.Array, state: Any) -> Any:
            return svi.update(state, *get_batch(step, batches))[0]

        return svi.get_params(jax.lax.fori_loop(0, task.num_steps, body, state))

    ready = fit.lower(*begin(0)).compile()
    _compiled[task] = guide, begin, ready
    return _compiled[task]


def train(task: Task, data: Arrays, seed: int) -> Trained:
    guide, begin, fit = compiled(task, data)
    state = jax.block_until_ready(begin(seed))
    start = time.perf_counter()
    params = jax.block_until_ready(fit(*state))
    seconds = (time.perf_counter() - start) / task.num_steps
    return Trained(seconds, handed_in(task, guide, params, seed, NUM_DRAWS))
