"""The mean of a Gaussian with known variance: the posterior is known, and the private one lies beside it.

python -m examples.simple_gaussian_posterior [--full] [--use fit] [--seed 0]
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.distributions import constraints

import dpvi
from examples.common import arguments, train

VARIANCE = 0.5


def model(x):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, VARIANCE**0.5).to_event(1), obs=x)


def guide(x):
    location = numpyro.param("location", jnp.zeros(x.shape[1]))
    scale = numpyro.param("scale", 0.1 * jnp.ones(x.shape[1]), constraint=constraints.positive)
    numpyro.sample("mean", dist.Normal(location, scale).to_event(1))


def main(given: Sequence[str] | None = None) -> dict[str, float]:
    """Run the example; returns the largest distance from the exact posterior mean and the exact standard deviation."""
    options = arguments(__doc__, given)
    num_records, width, num_steps = (10_000, 100, 5_000) if options.full else (1_000, 4, 1_000)
    random = np.random.default_rng(0)
    x = random.normal(random.normal(size=width), VARIANCE**0.5, (num_records, width))
    plan = dpvi.plan(epsilon=2.0, delta=1e-5, sampling_rate=0.05, num_steps=num_steps, clip_norm=float(width))
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, num_steps, 0.02))
    params = train(options, model, guide, optimizer, plan, x).posterior().params
    precision = 1 + num_records / VARIANCE
    exact = x.sum(axis=0) / VARIANCE / precision
    distance = float(np.max(np.abs(np.asarray(params["location"]) - exact)))
    print(plan.guarantee)
    print(f"exact posterior:   mean {np.round(exact[:4], 3)}, standard deviation {precision**-0.5:.4f}")
    print(f"private posterior: mean {np.round(params['location'][:4], 3)}, largest distance {distance:.4f}")
    return {"distance": distance, "exact_sd": float(precision**-0.5)}


if __name__ == "__main__":
    main()
