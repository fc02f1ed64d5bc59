"""Five round clusters in the plane: data, model, and how a fit is judged."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

NUM_COMPONENTS, WIDTH = 5, 2
CENTRES = np.array([[0.0, 0.0], [2.0, 2.0], [2.0, -2.0], [-2.0, 2.0], [-2.0, -2.0]])
VARIANCE = 0.5


class Problem(NamedTuple):
    """Points, (n, 2), float32."""

    train: np.ndarray
    test: np.ndarray


def make_problem(num_records: int, num_test_records: int, seed: int) -> Problem:
    """Equal shares of five components of variance ½."""
    random = np.random.default_rng(seed)

    def points(count: int) -> np.ndarray:
        centres = CENTRES[random.integers(0, NUM_COMPONENTS, count)]
        return (centres + np.sqrt(VARIANCE) * random.normal(size=(count, WIDTH))).astype(np.float32)

    return Problem(points(num_records), points(num_test_records))


def mixture(weights: jax.Array, centres: jax.Array, scales: jax.Array) -> dist.Distribution:
    """The mixture with its components summed out."""
    components = dist.Normal(centres, scales[:, None]).to_event(1)
    return dist.MixtureSameFamily(dist.Categorical(probs=weights), components)


def model(x: Any) -> None:
    """Weights Dirichlet(1), centres N(0, I), standard deviations InverseGamma(1, 1), as in the paper's listing."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(NUM_COMPONENTS)))
    centres = numpyro.sample("centres", dist.Normal(0.0, 1.0).expand([NUM_COMPONENTS, WIDTH]).to_event(2))
    scales = numpyro.sample("scales", dist.InverseGamma(1.0, 1.0).expand([NUM_COMPONENTS]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("x", mixture(weights, centres, scales), obs=x)


def common_start(seed: int) -> dict[str, np.ndarray]:
    """Centres from their prior, equal weights, scales 1: known without the records and the same for all runs."""
    centres = np.random.default_rng([seed, 1]).normal(size=(NUM_COMPONENTS, WIDTH))
    weights, scales = np.full(NUM_COMPONENTS, 1 / NUM_COMPONENTS), np.ones(NUM_COMPONENTS)
    return {name: np.float32(value) for name, value in (("weights", weights), ("centres", centres), ("scales", scales))}


def log_likelihood(draws: dict[str, Any], test: np.ndarray) -> float:
    """Mean over test points of log p(x), p the mean of the mixtures at the draws."""
    found = np.asarray(_log_probs(test, *(draws[name] for name in ("weights", "centres", "scales"))), np.float64)
    return float(np.mean(np.logaddexp.reduce(found, axis=0) - np.log(len(found))))


@jax.jit
def _log_probs(test: jax.Array, weights: jax.Array, centres: jax.Array, scales: jax.Array) -> jax.Array:
    with jax.numpy_dtype_promotion("standard"):  # NumPyro's own code mixes kinds of numbers
        return jax.vmap(lambda *each: mixture(*each).log_prob(test))(weights, centres, scales)


def reference_scores(problem: Problem) -> dict[str, float]:
    """The same number for the truth, and for one Gaussian with the moments of the training points."""
    truth = {"weights": np.full(NUM_COMPONENTS, 1 / NUM_COMPONENTS), "centres": CENTRES}
    truth |= {"scales": np.full(NUM_COMPONENTS, np.sqrt(VARIANCE))}
    one = dist.Normal(problem.train.mean(axis=0), problem.train.std(axis=0)).to_event(1)
    exact = {name: np.float32(value)[None] for name, value in truth.items()}
    return {
        "truth": log_likelihood(exact, problem.test),
        "one Gaussian": float(np.mean(np.asarray(one.log_prob(problem.test)))),
    }
