"""Test log loss of what a contestant trained: one program for all of them, in numpy."""

from __future__ import annotations

import math

import numpy as np

from harness.tasks import CODE, Arrays, Task

NUM_DRAWS = 100


def test_log_loss(task: Task, data: Arrays, parameters: Arrays) -> float:
    """Nats per test record: of the posterior predictive distribution, or of an auto-encoder the negative ELBO."""
    if task.name == "vae":
        return negative_elbo(data["test_images"].astype(np.float32), parameters)
    return predictive_log_loss(task, data, parameters["weights"])


def predictive_log_loss(task: Task, data: Arrays, weights: np.ndarray) -> float:
    """``-mean log (1/S) Σₛ p(y | x, wₛ)``, S the number of rows of ``weights`` (draws, groups * dimension)."""
    draws = np.asarray(weights, np.float64).reshape(-1, task.num_groups, task.dimension)
    x, y, group = (data[f"test_{name}"] for name in ("x", "y", "group"))
    total = np.zeros(len(y))
    for drawn in draws:
        logits = np.sum(x * drawn[group], axis=1)
        total += np.exp(-np.logaddexp(0, np.where(y > 0, -logits, logits)))
    return float(-np.mean(np.log(total / len(draws))))


def negative_elbo(images: np.ndarray, parameters: Arrays) -> float:
    """Per image, with one draw of its code and the divergence from the prior in closed form."""

    def dense(name: str, inputs: np.ndarray) -> np.ndarray:
        return inputs @ np.asarray(parameters[f"{name} weights"]) + np.asarray(parameters[f"{name} bias"])

    def softplus(values: np.ndarray) -> np.ndarray:
        return np.logaddexp(np.float32(0), values)

    noise = np.random.default_rng(1).normal(size=(len(images), CODE)).astype(np.float32)
    hidden = softplus(dense("encoder in", images))
    location, log_scale = dense("encoder location", hidden), dense("encoder scale", hidden)
    logits = dense("decoder out", softplus(dense("decoder in", location + np.exp(log_scale) * noise)))
    likelihood = np.sum(images * logits - softplus(logits), axis=1, dtype=np.float64)
    divergence = 0.5 * np.sum(np.exp(2 * log_scale) + location**2 - 1 - 2 * log_scale, axis=1, dtype=np.float64)
    return float(np.mean(divergence - likelihood))


def reference_losses(task: Task, data: Arrays) -> dict[str, float]:
    """What the loss is of knowing nothing, and of knowing the weights that made the records."""
    if task.name == "vae":
        share = np.clip(data["images"].mean(axis=0, dtype=np.float64), 1e-4, 1 - 1e-4)
        images = data["test_images"]
        entropy = -np.mean(images @ np.log(share) + (1 - images) @ np.log1p(-share))
        return {"each pixel its frequency, not private": float(entropy)}
    return {
        "fair coin": math.log(2),
        "the weights that made the records": predictive_log_loss(task, data, data["true_weights"]),
    }
