"""Non-private NumPyro SVI on the same model with a fixed-size batch, as one jitted scan over ``svi.update``.

``svi.run`` compiles anew at every call, so it cannot be timed without its compilation; the scan is the same work.
``batch="plate"`` lets the plate subsample (on a CPU a sequential Fisher-Yates shuffle, which then is nearly all of
the cost); ``batch="given"`` draws indices with replacement before the scan and hands the model its batch, the fastest
way a user of NumPyro has.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from harness.problem import Problem, records
from numpyro.infer import SVI, Trace_ELBO, autoguide


def make_model(problem: Problem, batch: str) -> Callable[..., None]:
    def model(x: jax.Array, y: jax.Array) -> None:
        weights = numpyro.sample("weights", dist.Normal(0, 1).expand([problem.dimension]).to_event(1))
        with numpyro.plate("records", problem.num_records, subsample_size=problem.expected_batch) as index:
            if batch == "plate":
                x, y = x[index], y[index]
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    return model


@functools.cache
def compiled(problem: Problem, num_steps: int, guide: str, batch: str) -> Any:
    """``fit(key) -> (final state, losses)`` with the state initialised and the loop jitted."""
    x, y = (jnp.asarray(values) for values in records(problem))
    model = make_model(problem, batch)
    svi = SVI(model, getattr(autoguide, guide)(model), numpyro.optim.Adam(problem.learning_rate), Trace_ELBO())
    one_batch = slice(None) if batch == "plate" else slice(problem.expected_batch)
    state = svi.init(jax.random.key(0), x[one_batch], y[one_batch])

    def fit(key: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        if batch == "plate":
            return jax.lax.scan(lambda state, _: svi.update(state, x, y), state, None, length=num_steps)
        indices = jax.random.randint(key, (num_steps, problem.expected_batch), 0, problem.num_records)
        return jax.lax.scan(lambda state, index: svi.update(state, x[index], y[index]), state, indices)

    jitted = jax.jit(fit)
    return lambda key: jitted(key, x, y)


def first_result(problem: Problem, num_steps: int, guide: str, batch: str) -> Any:
    return jax.block_until_ready(compiled(problem, num_steps, guide, batch)(jax.random.key(1)))


def run(problem: Problem, num_steps: int, guide: str, batch: str) -> float:
    """Seconds per step of one whole run; compiled by the first call."""
    start = time.perf_counter()
    first_result(problem, num_steps, guide, batch)
    return (time.perf_counter() - start) / num_steps
