"""d3p 0.2.0 by its documented recipe: ``DPSVI``, fixed-size batches, an automatic guide, a jitted ``fori_loop``.

Runs under the interpreter of :mod:`harness.environments`. It keeps no trace of the run, and its batches are not
the Poisson batches its accountant assumes; both make its step cheaper than ours has to be.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import d3p.random
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from d3p.minibatch import subsample_batchify_data
from d3p.svi import DPSVI
from harness.problem import Problem, records
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoDiagonalNormal


def model(x: jax.Array, y: jax.Array, num_obs_total: int) -> None:
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", num_obs_total, x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


@functools.cache
def compiled(problem: Problem, num_steps: int) -> Any:
    """``fit(key) -> final parameters``, with the state initialised and the loop jitted."""
    data = tuple(jnp.asarray(values) for values in records(problem))
    init_batches, get_batch = subsample_batchify_data(data, batch_size=problem.expected_batch)
    svi = DPSVI(
        model,
        AutoDiagonalNormal(model),
        numpyro.optim.Adam(problem.learning_rate),
        Trace_ELBO(),
        clipping_threshold=problem.clip_norm,
        dp_scale=problem.noise_multiplier,
        num_obs_total=problem.num_records,
    )
    batch_key, svi_key = d3p.random.split(d3p.random.PRNGKey(0), 2)
    _, batches = init_batches(batch_key)
    first = svi.init(svi_key, *get_batch(0, batches))

    @jax.jit
    def fit(state: Any, batches: Any) -> Any:
        def body(step: jax.Array, state: Any) -> Any:
            return svi.update(state, *get_batch(step, batches))[0]

        return svi.get_params(jax.lax.fori_loop(0, num_steps, body, state))

    return lambda key: fit(first, init_batches(key)[1])


def first_result(problem: Problem, num_steps: int) -> Any:
    return jax.block_until_ready(compiled(problem, num_steps)(d3p.random.PRNGKey(1)))


def run(problem: Problem, num_steps: int) -> float:
    """Seconds per step of one whole run; compiled by the first call."""
    start = time.perf_counter()
    first_result(problem, num_steps)
    return (time.perf_counter() - start) / num_steps
