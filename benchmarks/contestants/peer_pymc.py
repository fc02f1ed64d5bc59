"""PyMC's ADVI, not private: ``pm.Minibatch`` and ``total_size``, Adam. It has no guides for an auto-encoder.

``fit`` compiles its step at every call, so steps are timed from the first to the last one's callback.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pymc as pm
from harness.judge import NUM_DRAWS
from harness.tasks import PRIOR_SCALE, Arrays, Task, Trained


def model_of(task: Task, data: Arrays) -> pm.Model:
    labels = data["y"].astype(np.int32)  # PyMC's own type: what it has to cast is refused as data
    x, group, y = pm.Minibatch(data["x"], data["group"], labels, batch_size=task.batch_size)
    with pm.Model() as model:
        if task.name == "hierarchical":
            M = pm.Normal("M", 0.0, PRIOR_SCALE, shape=(task.num_characteristics, task.dimension))
            weights = pm.Normal("weights", pm.math.dot(data["characteristics"], M), 1.0)
            logits = pm.math.sum(x * weights[group], axis=-1)
        else:
            weights = pm.Normal("weights", 0.0, 1.0, shape=task.dimension)
            logits = pm.math.dot(x, weights)
        pm.Bernoulli("y", logit_p=logits, observed=y, total_size=task.num_records)
    return model


class Clock:
    """Seconds per step between the first callback and the last."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, *_: Any) -> None:
        self.times.append(time.perf_counter())

    @property
    def seconds_per_step(self) -> float:
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1)


def train(task: Task, data: Arrays, seed: int) -> Trained:
    clock = Clock()
    optimizer = pm.adam(learning_rate=task.learning_rate)
    with model_of(task, data):
        approximation = pm.fit(
            task.num_steps,
            method="advi",
            obj_optimizer=optimizer,
            callbacks=[clock],
            random_seed=seed,
            progressbar=False,
        )
    draws = approximation.sample(NUM_DRAWS, random_seed=seed, return_inferencedata=False)
    return Trained(clock.seconds_per_step, {"weights": np.asarray(draws["weights"]).reshape(NUM_DRAWS, -1)})
