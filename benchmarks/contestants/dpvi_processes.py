"""Our step in one of several processes, each on one core with one thread; what joins them is in the environment.

``DPVI_PROCESS``, ``DPVI_PROCESSES``, ``DPVI_PORT`` and ``DPVI_CORE`` say which of how many this is, where the first one
listens, and where it runs. Two models: ``regression`` has little to compute of a record but its own numbers to fetch;
``random_effect`` is bound by computing, 64 times the logistic function of every record and its derivatives.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from harness.problem import Problem, records

import dpvi
from contestants.dpvi_step import make_plan, seconds_per_step
from contestants.dpvi_step import model as regression
from dpvi.mechanism.rng import root_key, streams
from dpvi.models.numpyro import NumPyroModel
from dpvi.records.arrays import structure_of
from dpvi.records.sampling import poisson_sampler
from dpvi.records.sharding import make_shards
from dpvi.run.placement.placement import bring_in, place, shard_lengths
from dpvi.run.program.loop import Run
from dpvi.run.program.step import Algorithm

PROCESS, PROCESSES = int(os.environ["DPVI_PROCESS"]), int(os.environ["DPVI_PROCESSES"])
if hasattr(os, "sched_setaffinity"):  # before XLA starts its threads, which inherit it
    os.sched_setaffinity(0, {int(os.environ["DPVI_CORE"])})
if PROCESSES > 1:
    jax.distributed.initialize(f"localhost:{os.environ['DPVI_PORT']}", PROCESSES, PROCESS)

NUM_NODES = 64


def random_effect(x: Any, y: Any = None) -> None:
    """Logistic regression in which every record has a normal effect of its own, integrated out by quadrature."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(NUM_NODES)
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", x.shape[0]):
        logits = (x @ weights)[:, None] + spread * jnp.asarray(nodes, x.dtype)
        node = dist.Categorical(probs=jnp.broadcast_to(jnp.asarray(shares / shares.sum(), x.dtype), logits.shape))
        numpyro.sample("y", dist.MixtureSameFamily(node, dist.Bernoulli(logits=logits)), obs=y)


MODELS = {"regression": regression, "random_effect": random_effect}


@functools.cache
def compiled(problem: Problem, num_steps: int, model: str) -> Callable[[], Any]:
    x, y = records(problem)
    data = (x[PROCESS::PROCESSES], y[PROCESS::PROCESSES])
    rows, structure = bring_in(data, None), structure_of(data)
    lengths = shard_lengths(rows)
    sampler = poisson_sampler(sum(lengths), problem.sampling_rate)
    ready = NumPyroModel(MODELS[model], structure)
    algorithm = Algorithm(
        model=ready,
        family=dpvi.MeanField(),
        estimator=dpvi.Aligned(),
        optimizer=optax.adam(problem.learning_rate),
        plan=make_plan(problem, num_steps),
        sampler=sampler,
        shards=None if rows.mesh is None else make_shards(lengths, sampler, problem.sampling_rate),
    )
    algorithm, placed = place(rows, algorithm, structure)
    state = algorithm.initial(jnp.zeros(ready.dimension))
    fit = functools.partial(Run(algorithm, mesh=placed.mesh), placed.records, streams(root_key(0)), state)
    fit()
    return fit


def run(problem: Problem, num_steps: int, model: str) -> float:
    """Seconds per step of one whole run; compiled by the first call."""
    return seconds_per_step(compiled(problem, num_steps, model), num_steps)
