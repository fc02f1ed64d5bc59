"""The noise that makes ε the same for every peer, whatever it samples. Add/remove adjacency; one record is protected.

Poisson sampling at rate q
    A step is the sampled Gaussian mechanism, which dpvi's accountant composes tightly.
B of N records without replacement
    Let D have one record more than D', and q = B/N. Given that the record is not drawn, a step on D is the step on D'.
    Given that it is drawn it takes the place of another, so that the clipped sum moves by up to 2C: one by taking the
    other away, one by putting the record in. Each of these pairs is a map of (N(2, σ²), N(0, σ²)), the same map for
    both, so a step on D and a step on D' are one map of ((1-q) N(0, σ²) + q N(2, σ²), N(0, σ²)). That is the sampled
    Gaussian mechanism with half the noise multiplier; it is reached when all other records pull the other way. Hence ε
    of fixed-size batches is exactly that of Poisson batches at σ/2, and they need twice the noise for the same ε. An
    accountant that takes them for Poisson batches, as d3p's does, reports too little.
"""

from __future__ import annotations

import math
from typing import Any

from dpvi.privacy import epsilon, noise_multiplier
from harness.tasks import Task

# how a peer samples -> how far one record moves its sum, in clip norms
SAMPLING = {"Poisson": 1.0, "Poisson, 1/⌈N/B⌉": 1.0, "fixed size": 2.0}


def sampling_rate(task: Task, sampling: str) -> float:
    """Opacus derives the rate from the number of batches in a pass over the records."""
    return 1 / math.ceil(task.num_records / task.batch_size) if "⌈" in sampling else task.sampling_rate


def calibrated(task: Task, sampling: str) -> dict[str, Any]:
    """Noise multiplier for the task's (ε, δ), with the true ε it gives and the ε of the formula for Poisson batches."""
    rate, moved = sampling_rate(task, sampling), SAMPLING[sampling]
    sigma = moved * noise_multiplier(task.epsilon, task.delta, rate, task.num_steps)
    true = epsilon(sigma / moved, task.delta, rate, task.num_steps)
    return {
        "sampling": sampling,
        "sampling_rate": rate,
        "noise_multiplier": sigma,
        "true_epsilon": true,
        "epsilon_by_the_poisson_formula": true if moved == 1 else epsilon(sigma, task.delta, rate, task.num_steps),
    }


def hidden_epsilon(task: Task) -> float:
    """The true ε of fixed-size batches whose noise was calibrated to the task's ε as if they were Poisson batches."""
    sigma = noise_multiplier(task.epsilon, task.delta, task.sampling_rate, task.num_steps)
    return epsilon(sigma / 2, task.delta, task.sampling_rate, task.num_steps)
