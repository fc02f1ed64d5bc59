"""Groups with characteristics, records with features: data, model, guide, and how a fit is judged."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.optimize
import scipy.special
import scipy.stats

NUM_FEATURES, NUM_GROUPS, NUM_CHARACTERISTICS = 5, 3, 3


class Part(NamedTuple):
    """Records: features (n, 5), labels (n,) and the group of each (n,)."""

    features: np.ndarray
    labels: np.ndarray
    groups: np.ndarray


class Problem(NamedTuple):
    """Training and test part of equal size; the groups' characteristics (3, 3) are public."""

    train: Part
    test: Part
    characteristics: np.ndarray


def make_problem(num_records: int, seed: int) -> Problem:
    """Records of one truth, whatever their number: M and g standard normal, w_l ~ N(M g_l, I), as the model has it."""
    random = np.random.default_rng(seed)
    characteristics = random.normal(size=(NUM_GROUPS, NUM_CHARACTERISTICS))
    matrix = random.normal(size=(NUM_FEATURES, NUM_CHARACTERISTICS))
    weights = characteristics @ matrix.T + random.normal(size=(NUM_GROUPS, NUM_FEATURES))

    def part(stream: int) -> Part:
        records = np.random.default_rng([seed, stream, num_records])
        features = records.normal(size=(num_records, NUM_FEATURES))
        groups = records.integers(0, NUM_GROUPS, num_records)
        logits = np.sum(features * weights[groups], axis=1)
        labels = records.uniform(size=num_records) < 1 / (1 + np.exp(-logits))
        return Part(features.astype(np.float32), labels.astype(np.int32), groups.astype(np.int32))

    return Problem(part(1), part(2), characteristics.astype(np.float32))


def model(features: Any, labels: Any, groups: Any, characteristics: Any) -> None:
    """M ~ N(0, 4²), w_l ~ N(M g_l, I), y ~ Bernoulli(logit w_l·x)."""
    matrix = numpyro.sample("M", dist.Normal(0.0, 4.0).expand([NUM_FEATURES, NUM_CHARACTERISTICS]).to_event(2))
    weights = numpyro.sample("ws", dist.Normal(characteristics @ matrix.T, 1.0).to_event(2))
    with numpyro.plate("records", features.shape[0]):
        logits = jnp.sum(features * weights[groups], axis=1)
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=labels)


def guide(features: Any, labels: Any, groups: Any, characteristics: Any) -> None:
    """M with independent normals; w_l given M as in the model, which is what d3p's guide means by leaving them out."""
    location = numpyro.param("M_location", jnp.zeros((NUM_FEATURES, NUM_CHARACTERISTICS)))
    log_scale = numpyro.param("M_log_scale", jnp.zeros((NUM_FEATURES, NUM_CHARACTERISTICS)))
    matrix = numpyro.sample("M", dist.Normal(location, jnp.exp(log_scale)).to_event(2))
    numpyro.sample("ws", dist.Normal(characteristics @ matrix.T, 1.0).to_event(2))


def probabilities(parameters: dict[str, Any], part: Part, characteristics: np.ndarray) -> np.ndarray:
    """P(y = 1 | x) under q: w_l·x is normal, and E sigmoid(N(m, v)) ≈ sigmoid(m / √(1 + πv/8))."""
    location = np.asarray(parameters["M_location"], np.float64)
    variance = np.exp(2 * np.asarray(parameters["M_log_scale"], np.float64))
    features, own = part.features.astype(np.float64), characteristics.astype(np.float64)[part.groups]
    mean = np.sum(features * (own @ location.T), axis=1)
    spread = np.sum(features**2 * (own**2 @ variance.T + 1), axis=1)
    return scipy.special.expit(mean / np.sqrt(1 + np.pi * spread / 8))


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Area under the ROC curve: the share of pairs, one of each class, that are in the right order; ties count half.

    Examples
    --------
    >>> auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))
    0.75
    """
    ranks = scipy.stats.rankdata(scores)
    positive = int(np.sum(labels))
    negative = len(labels) - positive
    return float((np.sum(ranks[labels == 1]) - positive * (positive + 1) / 2) / (positive * negative))


def plain_logistic_auc(problem: Problem) -> float:
    """AUC of a logistic regression without groups or privacy, as scikit-learn fits it by default.

    Minimises Σ log(1 + e^{−s_i(w·x_i + b)}) + ‖w‖²/2 with s = ±1, the penalty not on b: its ``C = 1``.
    """
    features, signs = problem.train.features.astype(np.float64), 2.0 * problem.train.labels - 1

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins = signs * (features @ weights[:-1] + weights[-1])
        slopes = -signs / (1 + np.exp(margins))
        penalty = np.append(weights[:-1], 0.0)
        gradient = np.append(features.T @ slopes, slopes.sum()) + penalty
        return float(np.sum(np.logaddexp(0, -margins)) + 0.5 * penalty @ penalty), gradient

    found = scipy.optimize.minimize(loss, np.zeros(NUM_FEATURES + 1), jac=True, method="L-BFGS-B", tol=1e-10).x
    return auc(problem.test.features @ found[:-1] + found[-1], problem.test.labels)
