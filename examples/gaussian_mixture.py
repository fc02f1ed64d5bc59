"""A mixture of Gaussians with its components summed out, and a hand-written guide.

python -m examples.gaussian_mixture [--full] [--use fit] [--seed 0]
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.distributions import constraints
from numpyro.distributions.transforms import StickBreakingTransform

import dpvi
from examples.common import arguments, train

NUM_COMPONENTS, WIDTH = 3, 2


def mixture(weights, centres, scales):
    components = dist.Normal(centres, scales[:, None]).to_event(1)
    return dist.MixtureSameFamily(dist.Categorical(probs=weights), components)


def model(x):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(NUM_COMPONENTS)))
    centres = numpyro.sample("centres", dist.Normal(0.0, 3.0).expand([NUM_COMPONENTS, WIDTH]).to_event(2))
    scales = numpyro.sample("scales", dist.LogNormal(0.0, 1.0).expand([NUM_COMPONENTS]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("x", mixture(weights, centres, scales), obs=x)


def guide(x):
    positive = {"constraint": constraints.softplus_positive}
    # a logistic normal: the draws of a Dirichlet are slow to differentiate
    ratios = numpyro.param("ratios", jnp.zeros(NUM_COMPONENTS - 1))
    spreads = numpyro.param("spreads", 0.1 * jnp.ones(NUM_COMPONENTS - 1), **positive)
    logistic_normal = dist.Normal(ratios, spreads).to_event(1)
    numpyro.sample("weights", dist.TransformedDistribution(logistic_normal, StickBreakingTransform()))
    # spread out at random: components that start alike would never part
    locations = numpyro.param("locations", lambda key: 1.5 * jax.random.normal(key, (NUM_COMPONENTS, WIDTH)))
    widths = numpyro.param("widths", 0.1 * jnp.ones((NUM_COMPONENTS, WIDTH)), **positive)
    numpyro.sample("centres", dist.Normal(locations, widths).to_event(2))
    logs = numpyro.param("log_scales", jnp.zeros(NUM_COMPONENTS))
    numpyro.sample("scales", dist.LogNormal(logs, 0.05).to_event(1))


def main(given: Sequence[str] | None = None) -> dict[str, float]:
    """Run the example; returns mean log-likelihoods of fresh records: fitted, true, and of one Gaussian."""
    options = arguments(__doc__, given)
    num_records, num_steps = (20_000, 10_000) if options.full else (3_000, 500)
    key = jax.random.key(0)
    truth = (jnp.array([0.5, 0.3, 0.2]), jnp.array([[2.5, 2.5], [-2.5, 0.0], [2.0, -2.5]]), jnp.array([0.6, 1.0, 0.4]))
    x = np.asarray(mixture(*truth).sample(key, (num_records,)))
    plan = dpvi.plan(epsilon=4.0, delta=1e-6, sampling_rate=0.05, num_steps=num_steps, clip_norm=2.0)
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, num_steps, 0.02))
    draws = train(options, model, guide, optimizer, plan, x).posterior().sample(200)
    fresh = mixture(*truth).sample(jax.random.fold_in(key, 1), (2_000,))
    found = tuple(jnp.mean(draws[name], axis=0) for name in ("weights", "centres", "scales"))
    fitted, best = (float(jnp.mean(mixture(*each).log_prob(fresh))) for each in (found, truth))
    one = float(jnp.mean(dist.Normal(jnp.mean(fresh, axis=0), jnp.std(fresh, axis=0)).to_event(1).log_prob(fresh)))
    print(plan.guarantee)
    print(f"mean log-likelihood of fresh records: {fitted:.3f}; of the truth {best:.3f}, of one Gaussian {one:.3f}")
    return {"fitted": fitted, "best": best, "one_gaussian": one}


if __name__ == "__main__":
    main()
