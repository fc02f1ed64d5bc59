"""What a step makes of its batch, however the batch is cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from support.small_models import private_plan

from dpvi.data.sampling import poisson_sampler
from dpvi.families import MeanField
from dpvi.gradients import Aligned
from dpvi.models.functions import from_functions
from dpvi.train.step import Algorithm, clipped_sum

NUM_RECORDS = 50_000


def test_a_large_batch_in_small_parts_is_added_as_precisely_as_in_one():
    """Small parts, added plainly, would add up their rounding errors; tests/mechanism/test_bounded_sum.py shows it."""
    model = from_functions(
        log_prior=lambda z: -0.5 * jnp.sum(z["mean"] ** 2),
        log_likelihood=lambda z, record: jnp.dot(record, z["mean"]),  # a record is its own release
        parameters={"mean": (2,)},
    )
    plan = private_plan(1, sampling_rate=1.0, clip_norm=1.0)
    sampler = poisson_sampler(NUM_RECORDS, 1.0)
    algorithm = Algorithm(model, MeanField(), Aligned(), optax.sgd(0.01), plan, sampler, microbatch_size=250)
    xi, eta = MeanField().initial(jnp.zeros(2)), jnp.zeros((1, 2))

    def error(algorithm: Algorithm) -> float:
        """How far from C the sum moves when the first record leaves: the largest of four, each of them random."""
        summed = jax.jit(clipped_sum(algorithm, xi, eta, eta, False))
        return max(abs(change(summed, seed) - 1) for seed in range(4))

    def change(summed: Any, seed: int) -> float:
        rows = np.abs(np.random.default_rng(seed).normal(size=(NUM_RECORDS, 2))).astype(np.float32) + 2  # all clipped
        shorter = np.concatenate([rows[1:], rows[-1:]])
        included = jnp.arange(NUM_RECORDS) < NUM_RECORDS - 1
        totals = (
            summed(jnp.asarray(rows), jnp.ones(NUM_RECORDS, bool)).total,
            summed(jnp.asarray(shorter), included).total,
        )
        before, after = (np.float64(total.high) + np.float64(total.low) for total in totals)
        return float(np.linalg.norm(before - after))

    assert error(algorithm) < 2e-6  # of which 5e-7 is the slack of the clip
