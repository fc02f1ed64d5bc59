"""The batch of a step, put together where no thread waits for another."""

from __future__ import annotations

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.small_models import DIMENSION, location_model, private_plan

from dpvi.families import MeanField
from dpvi.gradients import Aligned
from dpvi.mechanism.rng import root_key, streams
from dpvi.records.sampling import poisson_sampler, whole_tiles
from dpvi.records.sharding import Records
from dpvi.run.program import room
from dpvi.run.program.loop import Run
from dpvi.run.program.room import make_room, put_together
from dpvi.run.program.step import Algorithm

NUM_RECORDS = 200_000


def algorithm_of(sampling_rate: float = 0.001) -> Algorithm:
    return Algorithm(
        model=location_model(),
        family=MeanField(),
        estimator=Aligned(),
        optimizer=optax.sgd(0.1),
        plan=private_plan(64, sampling_rate=sampling_rate),
        sampler=poisson_sampler(NUM_RECORDS, sampling_rate),
    )


def test_a_batch_is_the_records_at_its_positions_and_nothing_of_the_batch_before():
    records = {"x": jnp.arange(12.0).reshape(6, 2), "y": jnp.arange(6)}
    before = {"x": jnp.full((4, 2), jnp.nan), "y": jnp.full(4, -1)}
    after, batch = jax.jit(put_together)(before, records, jnp.array([0, 5, 6]), jnp.array(7))
    np.testing.assert_array_equal(batch["x"], [[0, 1], [10, 11], [10, 11]])  # 6 is nobody, and stays inside
    np.testing.assert_array_equal(batch["y"], [0, 5, 5])
    np.testing.assert_array_equal(after["y"], [0, 5, 5, -1])


def test_room_is_for_batches_that_a_cache_holds(monkeypatch):
    algorithm = algorithm_of()
    records = {"x": jnp.zeros((4, 3)), "y": jnp.zeros(4, jnp.int32)}
    found = make_room(algorithm, records)
    assert {name: leaf.shape for name, leaf in found.items()} == {
        "x": (algorithm.slots + 1, 3),
        "y": (algorithm.slots + 1,),
    }
    assert make_room(algorithm, {"x": jnp.zeros((4, 1000))}) is None
    assert make_room(algorithm_of(sampling_rate=1.0), records) is None
    monkeypatch.setattr(room, "on_host", lambda: False)
    assert make_room(algorithm, records) is None


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core: nothing is cut")
def test_no_step_waits_for_another_thread(monkeypatch):
    def cut() -> list[str]:
        algorithm = algorithm_of()
        run, draws = Run(algorithm), streams(root_key(0))
        rows = jnp.zeros((whole_tiles(NUM_RECORDS), DIMENSION))
        records = Records(rows, jnp.array([0, NUM_RECORDS], jnp.int32))
        state = algorithm.initial(jnp.zeros(DIMENSION))
        program = run.lowered(records, draws, state).compile().as_text()
        return re.findall(r"outer_dimension_partitions", program)

    assert not cut()
    monkeypatch.setattr(room, "on_host", lambda: False)
    assert cut(), "a plain gather is no longer cut: this room can go"
